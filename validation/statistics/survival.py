"""Kaplan-Meier curves, log-rank tests and restricted mean survival time.

References: Kaplan and Meier 1958 (J Am Stat Assoc); Greenwood 1926; Brookmeyer and
Crowley 1982 (Biometrics) for the median's interval; Mantel 1966; Royston and Parmar 2013
(BMC Medical Research Methodology) for restricted means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from validation.statistics.base import (
    Z95,
    Estimate,
    FloatArray,
    IntArray,
    TestResult,
    difference_test,
    entry_array,
    group_codes,
    survival_arrays,
    two_sided,
)
from validation.statistics.errors import BadTimesError, EmptyGroupError, NoEventsError


@dataclass(frozen=True)
class KaplanMeier:
    """A survival curve. Arrays have one value per distinct time, the first being time 0.

    `at_risk` counts patients just before each time. The median and its limits are NaN if the curve
    does not fall to one half.
    """

    times: FloatArray
    survival: FloatArray
    lower: FloatArray
    upper: FloatArray
    at_risk: IntArray
    events: IntArray
    median: float
    median_lower: float
    median_upper: float
    n: int = 0
    n_events: int = 0

    def survival_at(self, when: npt.ArrayLike) -> FloatArray:
        """Return survival at the given times (a right-continuous step function)."""
        where = np.searchsorted(self.times, np.asarray(when, dtype=np.float64), side="right") - 1
        return self.survival[np.maximum(where, 0)]


def numbers_at_risk(
    time: npt.ArrayLike, when: npt.ArrayLike, entry: npt.ArrayLike | None = None
) -> IntArray:
    """Count patients followed just before each time in `when`: already entered, not yet left."""
    moments = np.asarray(when, dtype=np.float64)
    left = np.searchsorted(np.sort(np.asarray(time, dtype=np.float64)), moments, side="left")
    entered: int | IntArray = np.size(time)
    if entry is not None:
        starts = np.sort(np.asarray(entry, dtype=np.float64))
        entered = np.searchsorted(starts, moments, side="left").astype(np.int64)
    return np.asarray(entered - left, dtype=np.int64)


def _counts(
    time: FloatArray, event: npt.NDArray[np.bool_], entry: FloatArray | None = None
) -> tuple[FloatArray, IntArray, IntArray]:
    """Return distinct times, patients at risk just before each, and events at each."""
    times = np.unique(time if entry is None else np.concatenate((time, entry)))
    at = np.searchsorted(times, time[event])
    deaths = np.bincount(at, minlength=len(times)).astype(np.int64)
    return times, numbers_at_risk(time, times, entry), deaths


def kaplan_meier(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    entry: npt.ArrayLike | None = None,
) -> KaplanMeier:
    """Compute the product-limit estimate of survival with log(-log) intervals.

    S(t) = prod over t_j <= t of (1 - d_j / n_j). The variance of log S is Greenwood's sum of d_j /
    (n_j (n_j - d_j)); limits are S ** exp(+-z * se / log S), which stay within 0 and 1.

    Parameters
    ----------
    time, event : (n,) follow-up and 0/1 flags; a sample without events is allowed here
    entry : (n,) delayed entry; survival is then that of patients alive at the first entry
    """
    t, e = survival_arrays(time, event, need_events=False)
    started = entry_array(entry, t)
    times, at_risk, deaths = _counts(t, e, started)
    survival = np.asarray(np.cumprod(1.0 - deaths / np.maximum(at_risk, 1)), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = (at_risk - deaths).astype(np.float64)
        greenwood = np.cumsum(np.where(deaths > 0, deaths / (at_risk * left), 0.0))
        log_s = np.log(survival)
        width = Z95 * np.sqrt(greenwood) / log_s
        lower = survival ** np.exp(-width)
        upper = survival ** np.exp(width)
    certain = survival >= 1.0
    lower, upper = np.where(certain, 1.0, lower), np.where(certain, 1.0, upper)
    dead = survival <= 0.0
    lower, upper = np.where(dead, 0.0, lower), np.where(dead, 0.0, upper)
    if started is not None and times[0] == 0.0:
        at_risk[0] = int((started == 0.0).sum())
    if times[0] > 0.0:
        at_start = len(t) if started is None else 0
        times = np.concatenate(([0.0], times))
        survival, lower, upper = (np.concatenate(([1.0], a)) for a in (survival, lower, upper))
        at_risk = np.concatenate(([at_start], at_risk)).astype(np.int64)
        deaths = np.concatenate(([0], deaths)).astype(np.int64)
    return KaplanMeier(
        times=times,
        survival=survival,
        lower=lower,
        upper=upper,
        at_risk=at_risk,
        events=deaths,
        median=_first_below(times, survival),
        median_lower=_first_below(times, lower),
        median_upper=_first_below(times, upper),
        n=len(t),
        n_events=int(e.sum()),
    )


def _first_below(times: FloatArray, curve: FloatArray) -> float:
    """Return the first time at which the curve is at most half, or NaN if there is none."""
    below = curve <= 0.5 + 1e-12
    return float(times[np.argmax(below)]) if below.any() else float("nan")


def _logrank_parts(
    t: FloatArray,
    e: npt.NDArray[np.bool_],
    codes: IntArray,
    k: int,
    entry: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Compute observed minus expected events per group and their hypergeometric covariance."""
    times, inverse = np.unique(t[e], return_inverse=True)
    cells = np.bincount(inverse * k + codes[e], minlength=len(times) * k)
    deaths = cells.reshape(len(times), k).astype(np.float64)
    sides = [codes == group for group in range(k)]
    at_risk = np.column_stack(
        [numbers_at_risk(t[mine], times, None if entry is None else entry[mine]) for mine in sides]
    ).astype(np.float64)
    n, d = at_risk.sum(axis=1), deaths.sum(axis=1)
    share = at_risk / n[:, None]
    difference = (deaths - share * d[:, None]).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = np.where(n > 1, d * (n - d) / (n - 1), 0.0)
    covariance = np.diag((factor[:, None] * share).sum(axis=0)) - (share.T * factor) @ share
    return difference, covariance


def logrank(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    group: npt.ArrayLike,
    strata: npt.ArrayLike | None = None,
    entry: npt.ArrayLike | None = None,
) -> TestResult:
    """Run the log-rank test for equal survival in two or more groups, optionally stratified.

    The test sums observed minus expected events over event times (and strata) and compares
    the vector with its hypergeometric covariance, which gives a chi-squared statistic with k
    - 1 degrees of freedom.

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    group : (n,) labels of two or more groups
    strata : (n,) labels of strata within which groups are compared
    entry : (n,) delayed entry, in the unit of time

    Returns
    -------
    Chi-squared statistic, its degrees of freedom and p-value.

    Raises
    ------
    EmptyGroupError, NoEventsError, BadTimesError, BadEventsError
    """
    return difference_test(*_logrank_sums(time, event, group, strata, entry))


def logrank_trend(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    group: npt.ArrayLike,
    strata: npt.ArrayLike | None = None,
    entry: npt.ArrayLike | None = None,
) -> TestResult:
    """Run the log-rank test for trend over ordered groups, scored 0, 1, 2, ... in their order.

    The score-weighted sum of observed minus expected events is compared with its
    hypergeometric variance, which gives a chi-squared statistic with one degree of freedom
    (Tarone 1975, Biometrika). Parameters and errors are those of `logrank`; sorted labels
    give the order.
    """
    difference, covariance = _logrank_sums(time, event, group, strata, entry)
    score = np.arange(len(difference), dtype=float)
    total, variance = score @ difference, np.atleast_2d(score @ covariance @ score)
    return difference_test(np.atleast_1d(total), variance)


def _logrank_sums(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    group: npt.ArrayLike,
    strata: npt.ArrayLike | None,
    entry: npt.ArrayLike | None,
) -> tuple[FloatArray, FloatArray]:
    """Sum each group's observed minus expected events, and their covariance, over all strata."""
    t, e = survival_arrays(time, event)
    started = entry_array(entry, t)
    codes, labels = group_codes(group, len(t))
    k = len(labels)
    layer = np.zeros(len(t), dtype=np.int64)
    if strata is not None:
        layer, _ = group_codes(strata, len(t), at_least=1)
    difference, covariance = np.zeros(k), np.zeros((k, k))
    for item in np.unique(layer):
        here = layer == item
        begin = None if started is None else started[here]
        part, spread = _logrank_parts(t[here], e[here], codes[here], k, begin)
        difference, covariance = difference + part, covariance + spread
    return difference, covariance


@dataclass(frozen=True)
class RestrictedMean:
    """Mean survival up to `tau` and its standard error, in the unit of time."""

    value: float
    se: float
    tau: float


def restricted_mean(time: npt.ArrayLike, event: npt.ArrayLike, tau: float) -> RestrictedMean:
    """Compute the area under the Kaplan-Meier curve from 0 to tau.

    The variance is the sum over event times t_j <= tau of A_j^2 d_j / (n_j (n_j - d_j)), where A_j
    is the area under the curve from t_j to tau.
    """
    t, e = survival_arrays(time, event, need_events=False)
    if not np.isfinite(tau) or tau <= 0.0:
        raise BadTimesError(f"tau must be positive, got {tau:g}")
    if tau > t.max():
        raise BadTimesError(
            f"tau {tau:g} is beyond the longest follow-up ({t.max():g}); choose a smaller tau"
        )
    times, at_risk, deaths = _counts(t, e)
    survival = np.cumprod(1.0 - deaths / at_risk)
    keep = times <= tau
    times, at_risk, deaths, survival = times[keep], at_risk[keep], deaths[keep], survival[keep]
    edges = np.concatenate(([0.0], times, [tau]))
    steps = np.diff(edges) * np.concatenate(([1.0], survival))
    after = np.cumsum(steps[::-1])[::-1][1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = after**2 * deaths / (at_risk * (at_risk - deaths).astype(np.float64))
    variance = float(np.where(after > 0.0, terms, 0.0).sum())
    return RestrictedMean(float(steps.sum()), float(np.sqrt(variance)), tau)


def rmst_difference(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    group: npt.ArrayLike,
    tau: float,
) -> Estimate:
    """Compute the difference in restricted mean survival to tau between two groups.

    The difference is the second group (in sorted order) minus the first. With 0/1 groups this
    is exposed minus unexposed: negative if exposed patients have shorter survival. It remains
    meaningful when hazards are not proportional.

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    group : (n,) two labels
    tau : horizon, in the unit of `time`

    Returns
    -------
    The difference in the unit of `time`, with limits and p-value.

    Raises
    ------
    EmptyGroupError
        If there are not exactly two groups.
    """
    t, e = survival_arrays(time, event)
    codes, labels = group_codes(group, len(t))
    if len(labels) != 2:
        raise EmptyGroupError(f"restricted means compare exactly two groups, got {len(labels)}")
    means = [restricted_mean(t[codes == c], e[codes == c], tau) for c in (0, 1)]
    value = means[1].value - means[0].value
    se = float(np.hypot(means[0].se, means[1].se))
    if se == 0.0:
        raise NoEventsError(f"no events before tau {tau:g}, so restricted means do not vary")
    half = Z95 * se
    return Estimate(value, value - half, value + half, two_sided(value / se), se)
