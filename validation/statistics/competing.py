"""Competing risks: cumulative incidence, cause-specific hazards, Fine and Gray's model.

Aalen and Johansen 1978 (Scand J Stat); Gray 1988 (Annals of Statistics); Fine and Gray 1999 (J Am
Stat Assoc). The cause-specific hazard is the one for etiology, the subdistribution for prognosis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from validation.statistics.base import FloatArray, IntArray, as_float, design, survival_arrays, z_of
from validation.statistics.concordance import censoring_weight
from validation.statistics.cox import CoxFit, cox
from validation.statistics.errors import (
    BadEventsError,
    ConvergenceError,
    NoEventsError,
    SeparationError,
    TooManyCovariatesError,
)


@dataclass(frozen=True)
class CumulativeIncidence:
    """Probability of the event of interest by each time, others having happened first or not."""

    times: FloatArray
    incidence: FloatArray
    se: FloatArray
    lower: FloatArray
    upper: FloatArray
    at_risk: IntArray
    cause: int
    n: int
    n_events: int


def _causes(time: npt.ArrayLike, status: npt.ArrayLike, cause: int) -> tuple[FloatArray, IntArray]:
    values = as_float(status, "status")
    if np.isnan(values).any() or (values < 0).any() or (values != np.round(values)).any():
        raise BadEventsError("status: 0 is censored, 1, 2, ... are causes; found another value")
    t, _ = survival_arrays(time, values > 0)
    codes = values.astype(np.int64)
    if cause < 1 or not (codes == cause).any():
        raise NoEventsError(f"no patient had the event with cause {cause}")
    return t, codes


def aalen_johansen(
    time: npt.ArrayLike, status: npt.ArrayLike, cause: int = 1, *, level: float = 0.95
) -> CumulativeIncidence:
    """Cumulative incidence of `cause`: sum over t_j <= t of S(t_j-) d_cause,j / n_j.

    S is Kaplan-Meier's for any event. The variance is the delta-method one (Marubini and Valsecchi
    1995); limits are on the log(-log) scale.

    Parameters
    ----------
    status : (n,) 0 censored, 1, 2, ... the cause
    """
    t, codes = _causes(time, status, cause)
    times, inverse = np.unique(t, return_inverse=True)
    m = len(times)
    leaving = np.bincount(inverse, minlength=m)
    at_risk = (len(t) - np.concatenate(([0], np.cumsum(leaving)[:-1]))).astype(np.float64)
    d_any = np.bincount(inverse, weights=codes > 0, minlength=m)
    d_one = np.bincount(inverse, weights=codes == cause, minlength=m)
    survival = np.cumprod(1.0 - d_any / at_risk)
    before = np.concatenate(([1.0], survival[:-1]))
    incidence = np.cumsum(before * d_one / at_risk)
    # Var I(t) = sum [I(t) - I(t_j)]^2 a_j + sum b_j - 2 sum [I(t) - I(t_j)] c_j, expanded so that
    # each term is a cumulative sum.
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.where(at_risk > d_any, d_any / (at_risk * (at_risk - d_any)), 0.0)
    b = before**2 * d_one * (at_risk - d_one) / at_risk**3
    c = before * d_one / at_risk**2
    variance = (
        incidence**2 * np.cumsum(a)
        - 2.0 * incidence * np.cumsum(a * incidence)
        + np.cumsum(a * incidence**2)
        + np.cumsum(b)
        - 2.0 * incidence * np.cumsum(c)
        + 2.0 * np.cumsum(c * incidence)
    )
    se = np.sqrt(np.maximum(variance, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        width = z_of(level) * se / (incidence * np.log(incidence))
        lower, upper = incidence ** np.exp(-width), incidence ** np.exp(width)
    inside = (incidence > 0.0) & (incidence < 1.0)
    lower, upper = np.where(inside, lower, incidence), np.where(inside, upper, incidence)
    return CumulativeIncidence(
        times=times,
        incidence=incidence,
        se=se,
        lower=lower,
        upper=upper,
        at_risk=at_risk.astype(np.int64),
        cause=cause,
        n=len(t),
        n_events=int((codes == cause).sum()),
    )


def cause_specific(
    time: npt.ArrayLike,
    status: npt.ArrayLike,
    X: npt.ArrayLike,
    names: Sequence[str],
    cause: int = 1,
) -> CoxFit:
    """Cox model of one cause's hazard: patients with another cause are censored there."""
    t, codes = _causes(time, status, cause)
    return cox(t, codes == cause, X, names)


@dataclass(frozen=True)
class FineGray:
    """Subdistribution hazard ratios with robust (sandwich) standard errors."""

    names: tuple[str, ...]
    coef: FloatArray
    se: FloatArray
    hr: FloatArray
    lower: FloatArray
    upper: FloatArray
    p: FloatArray
    n: int
    events: int
    competing: int
    converged: bool
    level: float = 0.95


def fine_gray(
    time: npt.ArrayLike,
    status: npt.ArrayLike,
    X: npt.ArrayLike,
    names: Sequence[str],
    cause: int = 1,
    *,
    level: float = 0.95,
) -> FineGray:
    """Proportional subdistribution hazards.

    A patient with a competing event stays in the risk set with weight G(t) / G(own time), G being
    the censoring survival. Breslow ties. Standard errors are the sandwich of per-patient score
    residuals; the uncertainty of G itself is not added (as with weights of the R function
    finegray).
    """
    t, codes = _causes(time, status, cause)
    x, labels = design(X, names, len(t))
    main = codes == cause
    k = x.shape[1]
    if k >= int(main.sum()):
        raise TooManyCovariatesError(f"{k} covariates for {int(main.sum())} events of the cause")
    scale = x.std(axis=0)
    z = (x - x.mean(axis=0)) / scale
    when, d = np.unique(t[main], return_counts=True)
    own = censoring_weight(t, codes > 0, np.nextafter(t, -np.inf))
    at = censoring_weight(t, codes > 0, np.nextafter(when, -np.inf))
    other = (codes > 0) & ~main
    weight = np.where(
        t[None, :] >= when[:, None], 1.0, np.where(other[None, :], at[:, None] / own[None, :], 0.0)
    )
    total = z[main].sum(axis=0)
    beta, converged = np.zeros(k), False
    for _ in range(50):
        risk = weight * np.exp(z @ beta)[None, :]
        s0 = risk.sum(axis=1)
        mean = (risk @ z) / s0[:, None]
        second = np.einsum("ji,ia,ib->jab", risk, z, z) / s0[:, None, None]
        information = (d[:, None, None] * (second - mean[:, :, None] * mean[:, None, :])).sum(0)
        score = total - (d[:, None] * mean).sum(axis=0)
        step = np.clip(np.linalg.solve(information, score), -2.0, 2.0)
        beta = beta + step
        if float(np.abs(beta).max()) > 15.0:
            raise SeparationError(
                "a covariate separates the events of this cause: its effect is infinite"
            )
        if float(np.abs(step).max()) < 1e-10:
            converged = True
            break
    if not converged:
        raise ConvergenceError("Fine and Gray's model did not converge: simplify it")
    row = np.searchsorted(when, t[main])
    residual = np.zeros_like(z)
    residual[main] = z[main] - mean[row]
    jump = (d / s0)[:, None] * risk
    residual -= z * jump.sum(axis=0)[:, None] - jump.T @ mean
    inverse = np.linalg.inv(information)
    se_z = np.sqrt(np.diag(inverse @ (residual.T @ residual) @ inverse))
    if not np.all(se_z > 1e-12):
        raise ConvergenceError(
            "Fine and Gray's model leaves no residual variation to judge its coefficients by: too"
            " few events"
        )
    half = z_of(level) * se_z
    return FineGray(
        names=labels,
        coef=beta / scale,
        se=se_z / scale,
        hr=np.exp(beta / scale),
        lower=np.exp((beta - half) / scale),
        upper=np.exp((beta + half) / scale),
        p=2.0 * ndtr(-np.abs(beta / se_z)),
        n=len(t),
        events=int(main.sum()),
        competing=int(other.sum()),
        converged=True,
        level=level,
    )
