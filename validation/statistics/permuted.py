"""Empirical null distributions for a claim, computed on arrays.

- Permuted outcome: the exposure is reassigned among the patients, while the outcome and
  the covariates keep their relation. The statistic then has the distribution for no
  association.
- Random matched features: genes with similar expression undergo the same construction. A
  claim about this gene must beat similar genes: most random signatures relate to outcome
  in some cancers (Venet and others 2011, PLoS Comput Biol).

Empirical p-values are (1 + number at least as extreme) / (1 + number drawn), never zero
(Phipson and Smyth 2010, Stat Appl Genet Mol Biol).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sage.core.seeds import generator
from validation.statistics.base import FloatArray, IntArray, as_float, group_codes
from validation.statistics.errors import ConvergenceError, ShapeError


def empirical_p(observed: float, null: FloatArray) -> float:
    """Compute the two-sided (1 + draws at least as extreme) / (1 + draws).

    Raises `ConvergenceError` if the statistic or a fifth of the draws could not be computed.
    """
    kept = null[np.isfinite(null)]
    if not np.isfinite(observed) or len(kept) < 0.8 * len(null) or not len(kept):
        raise ConvergenceError(f"only {len(kept)} of {len(null)} draws could be computed")
    extreme = np.abs(kept) >= abs(observed) - 1e-12
    return float((1 + int(extreme.sum())) / (1 + len(kept)))


def score_z(
    value: FloatArray, x: FloatArray, others: FloatArray | None, layers: IntArray | None = None
) -> FloatArray:
    """Compute the standardized covariance of an outcome with each column of exposures (n, m).

    Both are centered within strata and adjusted for the other terms.
    """
    rows: list[Any] = (
        [slice(None)] if layers is None else [layers == code for code in np.unique(layers)]
    )

    def center(block: FloatArray) -> FloatArray:
        found = np.empty_like(block, dtype=float)
        for mine in rows:
            found[mine] = block[mine] - block[mine].mean(axis=0)
        return found

    base = None if others is None else center(others)

    def residual(block: FloatArray) -> FloatArray:
        block = center(block)
        return block if base is None else block - base @ np.linalg.lstsq(base, block, rcond=None)[0]

    y, columns = residual(value[:, None])[:, 0], residual(x)
    spread = columns.std(axis=0) * y.std()
    with np.errstate(invalid="ignore", divide="ignore"):
        r = (columns * y[:, None]).mean(axis=0) / spread
    return np.asarray(r * np.sqrt(len(value)), dtype=float)


def permutations(
    n: int,
    times: int,
    seed: int,
    strata: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
) -> IntArray:
    """Draw (times, n) random orders of the patients, within strata if given.

    Clusters stay whole: each swaps places with another of the same size (and strata), row by
    row.

    Parameters
    ----------
    strata : (n,) labels within which patients are permuted
    clusters : (n,) person for each row; rows of a person stay together
    """
    rng = generator(seed)
    whole = np.tile(np.arange(n, dtype=np.int64), (times, 1))
    if clusters is not None:
        for places in _exchangeable(n, clusters, strata):
            order = rng.permuted(np.tile(np.arange(len(places)), (times, 1)), axis=1)
            whole[:, places] = places[order]
        return whole
    if strata is None:
        return rng.permuted(whole, axis=1)
    codes, _ = group_codes(strata, n, at_least=1)
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        whole[:, rows] = rng.permuted(whole[:, rows], axis=1)
    return whole


def _exchangeable(
    n: int, clusters: npt.ArrayLike, strata: npt.ArrayLike | None
) -> Iterator[IntArray]:
    """Yield (clusters, size) rows of exchangeable clusters, equal in size and strata."""
    codes, _ = group_codes(clusters, n, at_least=1)
    layers = np.zeros(n, np.int64) if strata is None else group_codes(strata, n, at_least=1)[0]
    order = np.lexsort((layers, codes))
    members = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    alike: dict[tuple[int, ...], list[IntArray]] = {}
    for rows in members:
        alike.setdefault(tuple(layers[rows]), []).append(rows)
    for group in alike.values():
        yield np.array(group, dtype=np.int64)


def dealt_at_risk(
    entry: FloatArray,
    time: FloatArray,
    event: FloatArray,
    exposed: FloatArray,
    layers: IntArray | None = None,
    *,
    times: int,
    seed: int,
) -> tuple[float, FloatArray]:
    """Compute an exposure's score statistic with delayed entry, and its null distribution.

    If the exposure has no effect, failures are random among the patients at risk: at each
    event time the exposures of the failures are a random draw from those at risk, regardless
    of earlier events.

    Parameters
    ----------
    entry, time, event : (records,) start, stop (same unit), and 1 if the event ended the
        record
    exposed : (records,) exposure during the record, such as 1 while exposed and 0 before
    layers : (records,) stratum of each record, within which failures are drawn

    Returns
    -------
    The standardized statistic, positive if exposed patients fare worse, and (times,) draws of
    it.
    """
    rng = generator(seed, len(time))
    total, null, variance = 0.0, np.zeros(times), 0.0
    groups = np.zeros(len(time), dtype=np.int64) if layers is None else layers
    for layer in np.unique(groups):
        mine = groups == layer
        for moment in np.unique(time[mine & (event == 1)]):
            at_risk = mine & (entry < moment) & (time >= moment)
            failed = at_risk & (time == moment) & (event == 1)
            x, failures = exposed[at_risk], int(failed.sum())
            mean = failures * float(x.mean())
            total += float(exposed[failed].sum()) - mean
            null += _sums_of_draws(x, failures, times, rng) - mean
            if len(x) > 1:
                variance += failures * float(x.var()) * (len(x) - failures) / (len(x) - 1)
    if variance <= 0:
        raise ConvergenceError(
            "exposed and unexposed patients were never at risk together at an event"
        )
    return total / float(np.sqrt(variance)), null / float(np.sqrt(variance))


def _sums_of_draws(
    x: FloatArray, size: int, times: int, rng: np.random.Generator
) -> FloatArray | IntArray:
    """Sum `size` values drawn from (n,) x without replacement, (times,) times."""
    if np.isin(x, (0.0, 1.0)).all():
        ones = int(x.sum())
        return rng.hypergeometric(ones, len(x) - ones, size, size=times)
    taken = np.empty((times, 0), dtype=np.int64)
    for drawn in range(size):
        place = rng.integers(0, len(x) - drawn, size=times)
        for before in taken.T:  # ascending: the place-th value that was not taken yet
            place = place + (place >= before)
        taken = np.sort(np.column_stack((taken, place)), axis=1)
    return np.asarray(x[taken].sum(axis=1), dtype=np.float64)


def matched_features(
    values: npt.ArrayLike,
    index: int,
    *,
    draws: int = 500,
    pool: int = 1000,
    seed: int = 0,
    exclude: npt.ArrayLike | None = None,
) -> IntArray:
    """Select features similar to column `index` in mean and spread.

    Features are ordered by distance in the ranks of mean and standard deviation; `draws` of
    them are chosen at random, without replacement, from the nearest `pool`.

    Parameters
    ----------
    values : (n, p) all features on the same scale, such as log expression

    Returns
    -------
    At most `draws` column positions; fewer if there are fewer features.
    """
    x = as_float(values, "values")
    p = x.shape[1]
    if not 0 <= index < p:
        raise ShapeError(f"feature index {index} is out of range for {p} features")
    sd = np.nanstd(x, axis=0)
    ranks = []
    for level in (np.nanmean(x, axis=0), sd):
        order = np.argsort(level, kind="stable")
        rank = np.empty(p)
        rank[order] = np.arange(p)
        ranks.append(rank / p)
    distance = np.hypot(ranks[0] - ranks[0][index], ranks[1] - ranks[1][index])
    barred = np.zeros(p, dtype=bool)
    barred[index] = True
    if exclude is not None:
        barred[np.asarray(exclude, dtype=np.int64)] = True
    barred |= ~(sd > 0.0)
    nearest = np.argsort(np.where(barred, np.inf, distance), kind="stable")
    nearest = nearest[: min(pool, int((~barred).sum()))]
    rng = generator(seed)
    return np.sort(rng.permutation(nearest)[:draws]).astype(np.int64)
