"""Natural direct and indirect effects by the product method, with a bootstrap of patients.

The mediator is modeled by least squares and the outcome by additive hazards (or least
squares), so that the indirect effect is the product of two coefficients regardless of the
share of patients with the event: hazard differences are collapsible, whereas hazard
ratios are not. Under no unmeasured confounding of exposure, mediator and outcome, no
mediator-outcome confounder affected by the exposure, and no interaction between exposure
and mediator, the product is the natural indirect effect, and the exposure's coefficient
adjusted for the mediator is the natural direct effect (Lange and Hansen 2011,
Epidemiology).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sage.core.seeds import generator
from validation.statistics.base import FloatArray, IntArray, as_float, survival_arrays, two_sided
from validation.statistics.continuous import linear
from validation.statistics.errors import ConvergenceError

CHUNK = 64


@dataclass(frozen=True)
class AdditiveHazards:
    """Coefficients (hazard differences per unit of time) with standard errors and p-values."""

    coef: FloatArray
    se: FloatArray
    p: FloatArray


@dataclass(frozen=True)
class Part:
    """An effect with its percentile interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Mediation:
    """Indirect, direct and total effects, and the two paths of the indirect effect with p-values.

    `p` is the larger of the two path p-values, because the product is zero if either path is (the
    joint significance test; MacKinnon and others 2002, Psychological Methods).
    """

    indirect: Part
    direct: Part
    total: Part
    first: float
    first_p: float
    second: float
    second_p: float
    p: float
    draws: int


def additive_hazards(
    time: npt.ArrayLike, event: npt.ArrayLike, X: npt.ArrayLike, strata: npt.ArrayLike | None = None
) -> AdditiveHazards:
    """Fit additive hazards with constant effects and a free baseline (in each stratum).

    h(t | x) = h0(t) + b'x; b solves a linear system. Source: Lin and Ying 1994 (Biometrika).

    Parameters
    ----------
    time, event : (n,) follow-up, and 1 if the event ended it
    X : (n, k) covariates
    strata : (n,) stratum codes, or None
    """
    t, e = survival_arrays(time, event)
    x = as_float(X, "covariates")
    weights = np.ones((1, len(t)))
    coef = _solve_weighted(t, e, x, weights, strata)[0]
    left, spread = np.zeros((x.shape[1],) * 2), np.zeros((x.shape[1],) * 2)
    for mine in _layers(strata, len(t)):
        left += _system(t[mine], e[mine], x[mine], weights[:, mine])[0][0]
        spread += _martingale(t[mine], e[mine], x[mine])
    inverse = np.linalg.inv(left)
    se = np.sqrt(np.diag(inverse @ spread @ inverse))
    return AdditiveHazards(coef, se, np.array([two_sided(float(z)) for z in coef / se]))


def mediation(
    exposure: npt.ArrayLike,
    mediator: npt.ArrayLike,
    covariates: npt.ArrayLike,
    outcome: npt.ArrayLike,
    event: npt.ArrayLike | None = None,
    strata: npt.ArrayLike | None = None,
    *,
    draws: int = 1000,
    seed: int = 0,
) -> Mediation:
    """Compute natural effects of an exposure through a mediator, with percentile intervals.

    Parameters
    ----------
    exposure, mediator : (n,) values
    covariates : (n, q) values included in both models; q may be 0
    outcome : (n,) times if `event` is given, otherwise values
    event : (n,) 1 if the event ended follow-up; None for an outcome that is not time to event
    strata : (n,) codes within which hazards are compared, or None
    draws : number of bootstrap resamples of patients

    Returns
    -------
    Effects on the hazard (per unit of time), or on the mean of the outcome.

    Raises
    ------
    StatisticsError
        If a model cannot be fitted, or can be fitted in too few resamples.
    """
    x, m = as_float(exposure, "exposure"), as_float(mediator, "mediator")
    c, y = as_float(covariates, "covariates").reshape(len(x), -1), as_float(outcome, "outcome")
    to_mediator, to_outcome = np.column_stack([x, c]), np.column_stack([m, x, c])
    named = [f"c{at}" for at in range(c.shape[1])]
    path = linear(m, to_mediator, ["exposure", *named], robust=True)
    if event is None:
        end = linear(y, to_outcome, ["mediator", "exposure", *named], robust=True)
        coef, end_p = end.coef, float(end.p[0])
    else:
        hazards = additive_hazards(y, event, to_outcome, strata)
        coef, end_p = hazards.coef, float(hazards.p[0])
    first, second = float(path.coef[0]), float(coef[0])
    counts = generator(seed, len(x), 11).multinomial(
        len(x), np.full(len(x), 1 / len(x)), size=draws
    )
    firsts = _squares(m, to_mediator, counts)[:, 1]
    if event is None:
        seconds = _squares(y, to_outcome, counts)[:, 1:3]
    else:
        t, e = survival_arrays(y, event)
        parts = [
            _solve_weighted(t, e, to_outcome, counts[at : at + CHUNK].astype(float), strata)[:, :2]
            for at in range(0, draws, CHUNK)
        ]
        seconds = np.vstack(parts)
    product = firsts * seconds[:, 0]
    kept = np.isfinite(product) & np.isfinite(seconds[:, 1])
    if kept.sum() < 0.95 * draws:
        raise ConvergenceError(
            f"the models could be fitted in only {int(kept.sum())} of {draws} bootstrap resamples"
        )

    def part(value: float, drawn: FloatArray) -> Part:
        lower, upper = np.quantile(drawn[kept], [0.025, 0.975])
        return Part(value, float(lower), float(upper))

    return Mediation(
        indirect=part(first * second, product),
        direct=part(float(coef[1]), seconds[:, 1]),
        total=part(first * second + float(coef[1]), product + seconds[:, 1]),
        first=first,
        first_p=float(path.p[0]),
        second=second,
        second_p=end_p,
        p=max(float(path.p[0]), end_p),
        draws=int(kept.sum()),
    )


def _layers(strata: npt.ArrayLike | None, n: int) -> list[IntArray]:
    """Return the positions of the patients in each stratum."""
    if strata is None:
        return [np.arange(n)]
    codes = np.asarray(strata)
    return [np.flatnonzero(codes == code) for code in np.unique(codes)]


def _squares(y: FloatArray, X: FloatArray, counts: IntArray) -> FloatArray:
    """Compute least-squares coefficients for resamples given as counts.

    The result is (draws, 1 + k), with the intercept first.
    """
    Z = np.column_stack([np.ones(len(y)), X])
    k = Z.shape[1]
    weights = counts.astype(float)
    left = (weights @ (Z[:, :, None] * Z[:, None, :]).reshape(len(y), -1)).reshape(-1, k, k)
    right = weights @ (Z * y[:, None])
    return _solve(left, right)


def _solve(left: FloatArray, right: FloatArray) -> FloatArray:
    """Solve many small linear systems; solutions are NaN where singular."""
    found = np.full(right.shape, np.nan)
    fine = np.linalg.cond(left) < 1e12
    if fine.any():
        found[fine] = np.linalg.solve(left[fine], right[fine][:, :, None])[:, :, 0]
    return found


def _solve_weighted(
    t: FloatArray,
    e: npt.NDArray[np.bool_],
    X: FloatArray,
    weights: FloatArray,
    strata: npt.ArrayLike | None,
) -> FloatArray:
    """Solve for (draws, k) additive hazards coefficients, one per row of weights (draws, n)."""
    k = X.shape[1]
    left, right = np.zeros((len(weights), k, k)), np.zeros((len(weights), k))
    for mine in _layers(strata, len(t)):
        more = _system(t[mine], e[mine], X[mine], weights[:, mine])
        left, right = left + more[0], right + more[1]
    return _solve(left, right)


def _system(
    t: FloatArray, e: npt.NDArray[np.bool_], X: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Build a stratum's linear system: integrals over the risk sets and sums over the events."""
    order = np.argsort(t, kind="stable")
    t, e, X, w = t[order], e[order], X[order], weights[:, order]
    k = X.shape[1]
    at_risk = _from_the_end(w)
    sums = np.stack([_from_the_end(w * X[:, at]) for at in range(k)], axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(at_risk[:, :, None] > 0, sums / at_risk[:, :, None], 0.0)
    # The risk set at a time includes all patients followed until then, ties included.
    first = np.searchsorted(t, t, side="left")
    steps = np.diff(t, prepend=0.0)
    squares = (w @ (X[:, :, None] * X[:, None, :] * t[:, None, None]).reshape(len(t), -1)).reshape(
        len(w), k, k
    )
    left = squares - (steps[:, None] * sums).transpose(0, 2, 1) @ means
    off = X[None, e] - means[:, first][:, e]
    right = np.einsum("bs,bsi->bi", w[:, e], off)
    return left, right


def _martingale(t: FloatArray, e: npt.NDArray[np.bool_], X: FloatArray) -> FloatArray:
    """Sum, over the events, squared distances from the mean of the patients at risk."""
    order = np.argsort(t, kind="stable")
    t, e, X = t[order], e[order], X[order]
    first = np.searchsorted(t, t, side="left")
    count = np.arange(len(t), 0, -1.0)
    means = np.cumsum(X[::-1], axis=0)[::-1] / count[:, None]
    off = X[e] - means[first][e]
    return np.asarray(off.T @ off, dtype=float)


def _from_the_end(values: FloatArray) -> FloatArray:
    """Compute the sum of each row from each position to the end."""
    return np.asarray(np.cumsum(values[:, ::-1], axis=1)[:, ::-1], dtype=float)
