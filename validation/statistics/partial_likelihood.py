"""The Cox partial likelihood with Efron's ties: value, score and information.

Everything is computed from reverse cumulative sums over patients sorted by time, so an evaluation
is O(n k^2) with no loop over patients. Efron 1977 (J Am Stat Assoc) for ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from validation.statistics.base import BoolArray, FloatArray, IntArray
from validation.statistics.newton import Likelihood


@dataclass(frozen=True)
class RiskSets:
    """Patients in a stratum in descending order of time, with groups of tied events.

    `last` is the position of the last patient at risk at each distinct event time; `who`
    holds the positions of events ordered by group; `group` and `fraction` have one entry per
    event: its group and its Efron fraction l / d. `entered` is the position, in descending
    order of entry, up to which patients have not entered yet (None without delayed entry).
    `case` holds all patients' weights (n,); tied events each count their mean weight (None:
    every patient counts once).
    """

    order: IntArray
    last: IntArray
    who: IntArray
    starts: IntArray
    group: IntArray
    fraction: FloatArray
    event_times: FloatArray
    entry_order: IntArray | None = None
    not_entered: IntArray | None = None
    case: FloatArray | None = None

    @cached_property
    def reached(self) -> IntArray:
        """Position (patients,) of the earliest event time at which each patient is at risk."""
        return np.searchsorted(self.last, np.arange(len(self.order)), side="left")

    @cached_property
    def tied(self) -> bool:
        """True if any events occur at the same time."""
        return bool((self.fraction > 0.0).any())

    @cached_property
    def shares(self) -> FloatArray:
        """Weight of the risk set at each event: the mean weight of its tied group."""
        if self.case is None:
            return np.ones(len(self.who))
        tied = np.add.reduceat(self.case[self.order[self.who]], self.starts)
        shares: FloatArray = (tied / np.bincount(self.group))[self.group]
        return shares


def risk_sets(
    time: FloatArray,
    event: BoolArray,
    rows: IntArray,
    entry: FloatArray | None = None,
    case: FloatArray | None = None,
) -> RiskSets:
    """Sort the patients `rows` in a stratum by time and find the risk set for each event.

    Patients are at risk only after their `entry` time.

    Parameters
    ----------
    time : (n,) follow-up of all patients
    event : (n,) whether follow-up ends in the event
    rows : row numbers of the stratum's patients
    entry : (n,) times from which patients are at risk; None if all are at risk from the start
    case : (n,) patient weights; None if every patient counts once

    Returns
    -------
    The stratum's patients in descending order of time, with the patients at risk at each
    event time.
    """
    order = rows[np.lexsort((~event[rows], -time[rows]))]
    t, e = time[order], event[order]
    who = np.flatnonzero(e)
    event_times, first, counts = np.unique(-t[who], return_index=True, return_counts=True)
    event_times = -event_times
    last = np.searchsorted(-t, -event_times, side="right") - 1
    group = np.repeat(np.arange(len(event_times)), counts)
    within = np.arange(len(who)) - np.repeat(first, counts)
    fraction = within / np.repeat(counts, counts) if len(who) else np.zeros(0)
    entry_order = not_entered = None
    if entry is not None:
        entry_order = rows[np.argsort(-entry[rows], kind="stable")]
        not_entered = np.searchsorted(-entry[entry_order], -event_times, side="right")
    return RiskSets(
        order=order,
        last=last.astype(np.int64),
        who=who.astype(np.int64),
        starts=first.astype(np.int64),
        group=group.astype(np.int64),
        fraction=np.asarray(fraction, dtype=np.float64),
        event_times=event_times,
        entry_order=entry_order,
        not_entered=None if not_entered is None else not_entered.astype(np.int64),
        case=case,
    )


@dataclass(frozen=True)
class Moments:
    """Risk-weighted moments of the covariates, one row per event (Efron-adjusted).

    `mean` is (events, k), `raw` and `covariance` (events, k, k). `weights` are exp(X beta) over
    `total`, up to a factor; they can be reused for further moments over the same risk sets.
    """

    mean: FloatArray
    raw: FloatArray
    covariance: FloatArray
    weights: FloatArray
    total: FloatArray
    event_rows: IntArray
    event_times: FloatArray


def _sums(sets: RiskSets, values: FloatArray) -> FloatArray:
    """Sum `values` over the risk set for each event, with Efron's correction for ties."""
    cumulative = np.cumsum(values[sets.order], axis=0)
    at_risk = cumulative.take(sets.last, axis=0)
    if sets.entry_order is not None and sets.not_entered is not None:
        outside = np.cumsum(values[sets.entry_order], axis=0)
        outside = np.concatenate((np.zeros_like(outside[:1]), outside))
        at_risk = at_risk - outside[sets.not_entered]
    if not sets.tied:
        return np.asarray(at_risk, dtype=np.float64)
    tied = np.add.reduceat(values[sets.order[sets.who]], sets.starts, axis=0)
    shape = (-1,) + (1,) * (values.ndim - 1)
    result: FloatArray = at_risk[sets.group] - sets.fraction.reshape(shape) * tied[sets.group]
    return result


def _weights(
    sets: RiskSets, X: FloatArray, beta: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Return (n,) exp(X beta) up to a shift, (events,) sums over the risk sets, and the shift.

    Case weights multiply the first two.
    """
    eta = X @ beta
    shift = float(eta[sets.order].max())
    w = np.exp(eta - shift) * (1.0 if sets.case is None else sets.case)
    return w, _sums(sets, w), shift


def _cumulated(sets: RiskSets, per_event: FloatArray) -> FloatArray:
    """Sum `per_event` (events, m) over the events at which each patient is at risk.

    The result is (patients, m). A patient with an event counts each member of its own tied group
    with Efron's share.
    """
    per_time = np.add.reduceat(per_event, sets.starts, axis=0)
    # Times descend: a patient is at risk at the event times up to its own position.
    ahead = np.zeros((len(per_time) + 1, per_event.shape[1]))
    ahead[:-1] = np.cumsum(per_time[::-1], axis=0)[::-1]
    found: FloatArray = ahead.take(sets.reached, axis=0)
    if sets.tied:
        lost = np.add.reduceat(sets.fraction[:, None] * per_event, sets.starts, axis=0)
        found[sets.who] -= lost[sets.group]
    if sets.entry_order is not None and sets.not_entered is not None:
        before = np.zeros((int(sets.order.max()) + 1, per_event.shape[1]))
        place = np.searchsorted(sets.not_entered, np.arange(len(sets.order)), side="right")
        before[sets.entry_order] = ahead[place]
        found -= before[sets.order]
    return found


def score_residuals(strata: list[RiskSets], X: FloatArray, beta: FloatArray) -> FloatArray:
    """Compute each patient's (n, k) contributions to the score, which sum to the score.

    Each is the integral of (x - E(s)) dM(s), where M is the martingale residual, with Efron's
    weights for ties; the mean at an event is that of its tied group (Lin and Wei 1989, J Am
    Stat Assoc; Therneau and Grambsch 2000, Modeling Survival Data). For a patient in several
    risk sets (one per interval of time-dependent weights), the contributions are summed.
    """
    found = np.zeros_like(X)
    for sets in strata:
        if len(sets.who) == 0:
            continue
        w, total, _ = _weights(sets, X, beta)
        mean = _sums(sets, w[:, None] * X) / total[:, None]
        inverse = (sets.shares / total)[:, None]
        rows, mine = sets.order, X[sets.order]
        hazard = _cumulated(sets, np.column_stack((inverse, inverse * mean)))
        found[rows] -= w[rows, None] * (mine * hazard[:, :1] - hazard[:, 1:])
        own = np.add.reduceat(mean, sets.starts, axis=0)
        size = np.diff(np.append(sets.starts, len(sets.who)))[:, None]
        case = 1.0 if sets.case is None else sets.case[rows[sets.who], None]
        found[rows[sets.who]] += case * (mine[sets.who] - (own / size)[sets.group])
    return found


def martingale_residuals(strata: list[RiskSets], X: FloatArray, beta: FloatArray) -> FloatArray:
    """Compute each patient's (n,) observed events minus those expected by the model.

    Source: Therneau, Grambsch and Fleming 1990, Biometrika; with Efron's weights for ties.
    """
    found = np.zeros(len(X))
    for sets in strata:
        w, total, _ = _weights(sets, X, beta)
        rows = sets.order
        found[rows] = -w[rows] * _cumulated(sets, (sets.shares / total)[:, None])[:, 0]
        found[rows[sets.who]] += 1.0
    return found


def cumulative_hazard(
    sets: RiskSets, X: FloatArray, beta: FloatArray, until: float
) -> tuple[float, FloatArray, FloatArray]:
    """Estimate the cumulative baseline hazard up to a time, with Efron's ties.

    Returns
    -------
    The hazard, its (k,) derivative with respect to beta, and each patient's (n,) contribution
    to its error at fixed beta.
    """
    w, total, shift = _weights(sets, X, beta)
    jump = np.where(sets.event_times[sets.group] <= until, sets.shares / total, 0.0)
    mean = _sums(sets, w[:, None] * X) / total[:, None]
    error, rows = np.zeros(len(X)), sets.order
    error[rows] = -w[rows] * _cumulated(sets, (jump / total)[:, None])[:, 0]
    case = np.ones(len(X)) if sets.case is None else sets.case
    tied = np.add.reduceat(jump, sets.starts) / np.add.reduceat(case[rows[sets.who]], sets.starts)
    error[rows[sets.who]] += case[rows[sets.who]] * tied[sets.group]
    scale = float(np.exp(-shift))
    return float(jump.sum()) * scale, -(jump @ mean) * scale, error * scale


def moments(sets: RiskSets, X: FloatArray, beta: FloatArray) -> Moments:
    """Compute the moments of X over each risk set under weights exp(X beta)."""
    w, s0, _ = _weights(sets, X, beta)
    mean = _sums(sets, w[:, None] * X) / s0[:, None]
    raw = _sums(sets, w[:, None, None] * (X[:, :, None] * X[:, None, :])) / s0[:, None, None]
    return Moments(
        mean=mean,
        raw=raw,
        covariance=raw - mean[:, :, None] * mean[:, None, :],
        weights=w,
        total=s0,
        event_rows=sets.order[sets.who],
        event_times=sets.event_times[sets.group],
    )


def _firth_slope(sets: RiskSets, X: FloatArray, m: Moments, inverse: FloatArray) -> FloatArray:
    """Compute a stratum's tr(I^-1 dI/dbeta_r), (k,), from third central moments.

    With q = x' I^-1 x and risk-set means E, this is E[q x] - E[q] m - 2 E[x x'] I^-1 m +
    2 (m' I^-1 m) m, summed over events, which avoids an array of size k^3.
    """
    q = np.einsum("ij,jk,ik->i", X, inverse, X)
    total = m.total[:, None]
    third = _sums(sets, (m.weights * q)[:, None] * X) / total
    first = _sums(sets, m.weights * q)[:, None] / total
    turned = m.mean @ inverse
    cross = np.einsum("eij,ej->ei", m.raw, turned)
    own = (turned * m.mean).sum(axis=1, keepdims=True)
    slope: FloatArray = (third - first * m.mean - 2.0 * cross + 2.0 * own * m.mean).sum(axis=0)
    return slope


def likelihood(
    strata: list[RiskSets], X: FloatArray, beta: FloatArray, *, firth: bool = False
) -> Likelihood:
    """Compute the log partial likelihood, summed over strata.

    With `firth`, half the log determinant of the information (Jeffreys' prior) is added to the
    value, and its derivative to the score (Firth 1993, Biometrika; Heinze and Schemper 2001,
    Biometrics).

    Parameters
    ----------
    strata : the risk sets of each stratum
    X : (n, k) covariates of all patients, unsorted
    beta : (k,) log hazard ratios

    Returns
    -------
    The value, its (k,) score and its (k, k) information at `beta`.
    """
    k = X.shape[1]
    value, score, information = 0.0, np.zeros(k), np.zeros((k, k))
    for sets in strata:
        if len(sets.who) == 0:
            continue
        w, total, shift = _weights(sets, X, beta)
        mean = _sums(sets, w[:, None] * X) / total[:, None]
        share = sets.shares
        # A sum over events of a risk-weighted mean is a sum over patients with these weights.
        v = w[sets.order] * _cumulated(sets, (share / total)[:, None])[:, 0]
        who, at_risk = sets.order[sets.who], X[sets.order]
        case = share if sets.case is None else sets.case[who]
        value += float(case @ (X[who] @ beta) - share @ (np.log(total) + shift))
        score = score + case @ X[who] - share @ mean
        information = information + (at_risk.T * v) @ at_risk - (mean.T * share) @ mean
    if firth:
        sign, logdet = np.linalg.slogdet(information)
        if sign <= 0:
            return Likelihood(-np.inf, score, information)
        value += 0.5 * float(logdet)
        inverse = np.asarray(np.linalg.inv(information), dtype=np.float64)
        for sets in strata:
            if len(sets.who):
                score = score + 0.5 * _firth_slope(sets, X, moments(sets, X, beta), inverse)
    return Likelihood(value, score, information)
