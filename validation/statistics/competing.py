"""Competing risks: cumulative incidence, Gray's test, cause-specific hazards.

Aalen and Johansen 1978 (Scand J Stat); Gray 1988 (Annals of Statistics). The
cause-specific hazard is suited to questions of etiology; the subdistribution hazard
(Gray's test, and the Fine-Gray model in `fine_gray`) is suited to prognosis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from validation.statistics.base import (
    Z95,
    FloatArray,
    IntArray,
    TestResult,
    as_float,
    difference_test,
    entry_array,
    group_codes,
    survival_arrays,
)
from validation.statistics.errors import BadEventsError, NoEventsError
from validation.statistics.survival import numbers_at_risk


@dataclass(frozen=True)
class CumulativeIncidence:
    """Probability of the event of interest by each time, in the presence of competing events."""

    times: FloatArray
    incidence: FloatArray
    se: FloatArray
    lower: FloatArray
    upper: FloatArray
    at_risk: IntArray
    cause: int
    n: int
    n_events: int

    def index_at(self, when: npt.ArrayLike) -> IntArray:
        """Return the index of the last time at or before each time in `when`, or -1 if none."""
        found = np.searchsorted(self.times, np.asarray(when, dtype=np.float64), side="right") - 1
        return np.asarray(found, dtype=np.int64)


def causes(
    time: npt.ArrayLike, status: npt.ArrayLike, cause: int, *, need_events: bool = True
) -> tuple[FloatArray, IntArray]:
    """Check times and event codes: 0 is censored, and 1, 2, ... are the causes.

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    status : (n,) 0 if censored, otherwise the number of the cause
    cause : the number of the cause of interest
    need_events : whether to reject data without an event from that cause

    Returns
    -------
    (n,) times and (n,) causes as integers.

    Raises
    ------
    BadEventsError, NoEventsError
        The latter if there was no event from `cause` and `need_events` is set.
    """
    values = as_float(status, "status")
    if np.isnan(values).any() or (values < 0).any() or (values != np.round(values)).any():
        raise BadEventsError("status must be 0 (censored) or a cause 1, 2, ...; got another value")
    t, _ = survival_arrays(time, values > 0, need_events=need_events)
    codes = values.astype(np.int64)
    if need_events and (cause < 1 or not (codes == cause).any()):
        raise NoEventsError(
            f"no patient had the event with cause {cause}: all {int((codes > 0).sum())} events "
            "are competing events"
        )
    return t, codes


def aalen_johansen(
    time: npt.ArrayLike,
    status: npt.ArrayLike,
    cause: int = 1,
    entry: npt.ArrayLike | None = None,
    *,
    need_events: bool = True,
) -> CumulativeIncidence:
    """Estimate cumulative incidence of `cause`: sum over t_j <= t of S(t_j-) d_cause,j / n_j.

    S is the Kaplan-Meier estimate for any event. The variance uses the delta method (Marubini
    and Valsecchi 1995); limits are computed on the log(-log) scale.

    Parameters
    ----------
    status : (n,) 0 if censored, otherwise the number of the cause
    entry : (n,) delayed entry, in the unit of time
    need_events : whether to reject a sample without an event from this cause; otherwise its
        curve stays at zero
    """
    t, codes = causes(time, status, cause, need_events=need_events)
    started = entry_array(entry, t)
    times = np.unique(t if started is None else np.concatenate((t, started)))
    inverse, m = np.searchsorted(times, t), len(times)
    at_risk = np.maximum(numbers_at_risk(t, times, started), 1).astype(np.float64)
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
        width = Z95 * se / (incidence * np.log(incidence))
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


def gray_test(
    time: npt.ArrayLike,
    status: npt.ArrayLike,
    group: npt.ArrayLike,
    cause: int = 1,
) -> TestResult:
    """Run Gray's test for equal cumulative incidence of a cause in two or more groups (rho = 0).

    The test resembles the log-rank test, with R_k(t) = n_k(t) (1 - F_k(t-)) / S_k(t-) in
    place of the number at risk: patients who had a competing event still count, corrected for
    censoring. Observed minus expected events are compared with Gray's covariance, giving a
    chi-squared statistic with k - 1 degrees of freedom. Results match R's cmprsk::cuminc.

    Parameters
    ----------
    status : (n,) 0 if censored, otherwise the number of the cause

    Raises
    ------
    EmptyGroupError, NoEventsError, BadTimesError, BadEventsError
    """
    t, codes = causes(time, status, cause)
    groups, labels = group_codes(group, len(t))
    return difference_test(*_gray_parts(t, codes, groups, len(labels), cause))


def _gray_parts(
    t: FloatArray, codes: IntArray, groups: IntArray, k: int, cause: int
) -> tuple[FloatArray, FloatArray]:
    """Compute observed minus expected events of the cause per group, and their covariance.

    The score's variance is a sum over event times and groups of squared influences: an event of the
    cause at t in group k influences group i's score by a_ik(t) plus its later effect through the
    risk sets; a competing event has only the later effect. In the far tail of unequal groups, the
    pooled incidence is bounded at one and the tie correction at zero.
    """
    times, inverse = np.unique(t, return_inverse=True)
    cell, shape = inverse * k + groups, (len(times), k)
    leaving, cause_events, other_events = (
        np.bincount(cell, weights=w, minlength=len(times) * k).reshape(shape)
        for w in (np.ones(len(t)), codes == cause, (codes > 0) & (codes != cause))
    )
    at_risk = np.cumsum(leaving[::-1], axis=0)[::-1]
    used = (cause_events + other_events).sum(axis=1) > 0
    at_risk = at_risk[used]
    cause_events, other_events = cause_events[used], other_events[used]
    n = np.maximum(at_risk, 1.0)
    after = np.cumprod(1.0 - (cause_events + other_events) / n, axis=0)
    before = np.vstack([np.ones(k), after[:-1]])
    incidence = np.cumsum(before * cause_events / n, axis=0)
    free = 1.0 - np.vstack([np.zeros(k), incidence[:-1]])
    safe_before = np.where(at_risk > 0, before, 1.0)
    risk = at_risk / safe_before
    total, events = risk.sum(axis=1), cause_events.sum(axis=1)
    weighted = risk * free
    expected = events[:, None] * weighted / weighted.sum(axis=1)[:, None]
    difference = (cause_events - expected).sum(axis=0)

    pooled = np.minimum(np.cumsum(events / total), 1.0)
    left = 1.0 - np.concatenate(([0.0], pooled[:-1]))
    a = risk[:, :, None] * (np.eye(k) - (risk / total[:, None])[:, None, :])
    rate = np.divide(events, total * left, out=np.zeros(len(left)), where=left > 1e-12)
    c = np.cumsum(a * rate[:, None, None], axis=0)
    later = c[-1] - c
    share = (1.0 - pooled)[:, None] / np.where(after > 0.0, after, 1.0)
    own = np.where(after > 0.0, 1.0 - share, 1.0)
    many = np.maximum(total[:, None] * safe_before - 1.0, 1e-12)
    tied = np.where(events[:, None] > 1, 1.0 - (events[:, None] - 1.0) / many, 1.0)
    first = np.where(
        at_risk > 0, np.maximum(tied, 0.0) * safe_before * (events / total)[:, None] / n, 0.0
    )
    tied = np.where(other_events > 1, 1.0 - (other_events - 1.0) / np.maximum(n - 1.0, 1.0), 1.0)
    second = np.where(after > 0.0, tied * before**2 * other_events / n**2, 0.0)
    by_cause = a + own[:, None, :] * later
    by_other = share[:, None, :] * later
    covariance = np.einsum("tk,tik,tjk->ij", first, by_cause, by_cause)
    covariance += np.einsum("tk,tik,tjk->ij", second, by_other, by_other)
    return difference, np.asarray(covariance)
