"""Empirical null distributions of a claim, computed on arrays.

- Permuted outcome: the exposure is reassigned among the patients, while the outcome and the
  covariates keep their relation. The distribution of the statistic is then that of no association.
- Random matched features: genes with similar expression undergo the same construction. A claim
  about this gene must beat genes of its kind: most random signatures relate to outcome in some
  cancers (Venet and others 2011, PLoS Comput Biol).

Empirical p-values are (1 + number at least as extreme) / (1 + number drawn), never zero (Phipson
and Smyth 2010, Stat Appl Genet Mol Biol).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sage.core.seeds import generator
from validation.statistics.base import (
    BoolArray,
    FloatArray,
    IntArray,
    as_float,
    chi2_p,
    design,
    group_codes,
    survival_arrays,
)
from validation.statistics.batched import batched_cox
from validation.statistics.errors import ConvergenceError, ShapeError

Direction = Literal["two-sided", "higher", "lower"]


@dataclass(frozen=True)
class EmpiricalNull:
    """A claim's statistic compared with its empirical null distribution.

    `observed` and `null` are signed roots of the Cox score statistic (positive: more risk).
    `false_positive_rate` is the share of null draws that the nominal chi-squared test would call
    significant at `alpha`: it is near `alpha` if the test is valid on these data, and above it if
    features of this kind tend to be related to outcome.
    """

    observed: float
    null: FloatArray
    p: float
    false_positive_rate: float


def empirical_p(observed: float, null: FloatArray, direction: Direction = "two-sided") -> float:
    """Compute (1 + draws at least as extreme) / (1 + draws)."""
    slack = 1e-12
    if direction == "two-sided":
        extreme = np.abs(null) >= abs(observed) - slack
    elif direction == "higher":
        extreme = null >= observed - slack
    else:
        extreme = null <= observed + slack
    return float((1 + int(extreme.sum())) / (1 + len(null)))


def _signed_scores(
    t: FloatArray, e: BoolArray, features: FloatArray, c: FloatArray | None
) -> tuple[FloatArray, BoolArray]:
    """Compute the signed root of the score statistic per column, and which columns have a value."""
    sd = features.std(axis=0)
    usable = np.isfinite(features).all(axis=0) & (sd > 0.0)
    z = np.zeros(features.shape[1])
    if usable.any():
        kept = features[:, usable]
        batch = batched_cox(t, e, (kept - kept.mean(axis=0)) / sd[usable], c, newton=False)
        z[usable] = np.sqrt(batch.score) * batch.score_sign
    return z, usable & np.isfinite(z)


def _standard(covariates: npt.ArrayLike | None, n: int) -> FloatArray | None:
    if covariates is None:
        return None
    raw = as_float(covariates, "covariates")
    raw = raw[:, None] if raw.ndim == 1 else raw
    c, _ = design(raw, [f"covariate {i + 1}" for i in range(raw.shape[1])], n)
    return np.asarray((c - c.mean(axis=0)) / c.std(axis=0), dtype=np.float64)


def permutations(
    n: int,
    times: int,
    seed: int,
    strata: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
) -> IntArray:
    """Draw (times, n) random orders of the patients, within strata if given.

    Clusters stay whole: each changes places with another of the same size (and strata), row by row.

    Parameters
    ----------
    strata : (n,) labels within which patients are permuted
    clusters : (n,) person of each row; rows of a person stay together
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


def permuted_outcome(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    exposure: npt.ArrayLike,
    covariates: npt.ArrayLike | None = None,
    *,
    times: int = 1000,
    seed: int = 0,
    strata: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
    alpha: float = 0.05,
) -> EmpiricalNull:
    """Compute the null distribution of the exposure's adjusted Cox score statistic by permutation.

    Parameters
    ----------
    exposure : (n,) exposure of the claim as analyzed (0/1 group, or continuous)
    covariates : (n, q) other covariates of the model, which stay with the outcome
    clusters : (n,) labels of rows that stay together

    Raises
    ------
    ConstantFeatureError, NoEventsError, ...
    """
    t, e = survival_arrays(time, event)
    x, _ = design(as_float(exposure, "exposure"), ["exposure"], len(t))
    c = _standard(covariates, len(t))
    orders = permutations(len(t), times, seed, strata, clusters)
    observed, _ = _signed_scores(t, e, x, c)
    null, usable = _signed_scores(t, e, x[:, 0][orders].T, c)
    kept = null[usable]
    if len(kept) < 0.8 * len(null) or len(kept) == 0:
        raise ConvergenceError(
            f"control permuted_outcome: only {len(kept)} of {len(null)} draws could be computed"
        )
    signed = float(observed[0])
    nominal = np.array([chi2_p(float(z) ** 2, 1) for z in kept])
    return EmpiricalNull(
        observed=signed,
        null=kept,
        p=empirical_p(signed, kept),
        false_positive_rate=float((nominal < alpha).mean()),
    )


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
    """Compute the log-rank statistic of a time-dependent exposure, and its null distribution.

    If the exposure has no effect, failures are random among the patients at risk: at each event
    time the number of exposed patients among the failures is hypergeometric, whatever came before.

    Parameters
    ----------
    entry, time, event : (records,) start, stop (same unit), and 1 if the event ended the record
    exposed : (records,) 1 while exposed, 0 before
    layers : (records,) stratum of each record, within which failures are drawn

    Returns
    -------
    The standardized statistic, positive when the exposed fare worse, and (times,) draws of it.
    """
    rng = generator(seed, len(time))
    total, null, variance = 0.0, np.zeros(times), 0.0
    groups = np.zeros(len(time), dtype=np.int64) if layers is None else layers
    for layer in np.unique(groups):
        mine = groups == layer
        for moment in np.unique(time[mine & (event == 1)]):
            at_risk = mine & (entry < moment) & (time >= moment)
            failed = at_risk & (time == moment) & (event == 1)
            n, exposures, failures = (
                int(a.sum()) for a in (at_risk, at_risk & (exposed == 1), failed)
            )
            mean = failures * exposures / n
            total += float(exposed[failed].sum()) - mean
            null += rng.hypergeometric(exposures, n - exposures, failures, size=times) - mean
            if n > 1:
                variance += mean * (1 - exposures / n) * (n - failures) / (n - 1)
    if variance <= 0:
        raise ConvergenceError(
            "exposed and unexposed patients were never at risk together at an event"
        )
    return total / float(np.sqrt(variance)), null / float(np.sqrt(variance))


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

    Features are ordered by distance in the ranks of mean and standard deviation; `draws` of them
    are chosen at random, without replacement, from the nearest `pool`.

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
        raise ShapeError(f"feature {index} of {p}")
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
