"""Detection of variables that reveal the outcome or the length of follow-up.

Such a variable is not a baseline variable. A variable fixed before follow-up began can
reveal which patients have the event, and when. It cannot reveal which patients are
censored when: the hazard of censoring does not depend on it, unless censoring itself
depends on risk. Two hazard models are therefore fitted to each variable, one for the
event and one for censoring.

- Related to both in the same direction, and to the follow-up time among patients with and
  without the event: the variable grew with follow-up ("ever transplanted", number of
  visits, last known value).
- Related to the event more closely than any marker is, although its carriers are not
  censored: the variable was recorded after the event, or is the event under another name.
- Known for patients with the event and unknown for the rest, or the reverse.

A yes/no variable that is rare among patients who left early, for whatever reason, is the
classic sign of immortal time: treated patients had to live until treatment (Gail 1972,
Annals of Internal Medicine, on heart transplantation). In small cohorts with few censored
patients, only this sign can be detected.

The limits are set so that 400 genuine baseline variables from 40 public cohorts stay
below them; see `docs/cohorts.md` for the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri

from validation.statistics.base import BoolArray, FloatArray, ranks
from validation.statistics.batched import batched_cox
from validation.statistics.concordance import harrell

FEWEST = 30
"""Minimum number of patients with a known value for a leak to be reported."""
FEWEST_EVENTS = 8
ASSOCIATED = 3.0
"""Standard errors from no effect below which only values that had to be reached are considered."""
MISLEADS = 1.96
"""Standard errors from no effect above which a variable counts as associated and may mislead."""
BEYOND_MARKERS = 0.88
"""Concordance that no single genuine baseline variable reaches.

The best among 318 such variables reached 0.85 (16 events).
"""
REVEALS_THE_EVENT = 0.85
"""Area under the curve for the event flag, regardless of the event time."""
REVEALS_NOISILY = 0.78
"""The same area, if almost none of the variable's carriers are censored."""
REVEALS_A_BINARY_OUTCOME = 0.97
SLOPE = 0.3
"""Minimum absolute log hazard ratio per SD, for the event or for censoring, that counts."""
FOLLOWS_THE_TIME = 0.6
"""Rank correlation with time among patients with the event."""
EARLY = 0.1
"""Share of patients who left first, for whatever reason, that counts as early."""
WAITS = (0.02, 0.05, 0.1, 0.2)
"""Candidate mean waiting times for a treatment, as quantiles of follow-up."""
AWAITED = 6.0
"""Minimum log-likelihood gain, for who leaves, of a waiting model over a baseline variable."""
CENSORED_TOO = 0.5
"""Minimum part of the `AWAITED` gain that must come from censored patients."""
IMMORTAL = (0.1, 0.4)
"""Early hazard ratio for leaving (estimate and upper limit) lower than any treatment achieves."""
STEPS = 12
"""Maximum number of values of a count or grade, each tested as a value that had to be reached."""
STRONGEST = 0.25
"""Hazard ratio for leaving that only a few treatments and markers exceed in strength."""
ABSENT = 1e-3
"""Probability, over all values, that no patient in the safer group is among the first to leave."""
FOLLOWS_THE_EVENT = 0.5
"""Difference in the share of known values between patients with and without the event."""


@dataclass(frozen=True)
class Leak:
    """Information in a variable that was not available at baseline."""

    kind: Literal["outcome", "follow_up", "missingness"]
    text: str


def find_leak(values: FloatArray, event: FloatArray, time: FloatArray | None = None) -> Leak | None:
    """Find outcome information in `values` that no baseline variable can contain.

    Parameters
    ----------
    values : (n,) numbers or 0/1 codes; NaN if unknown
    event : (n,) 1 for the event, 0 if censored, 2 for a competing event
    time : (n,) follow-up, in any unit; None for an outcome that is not time to event
    """
    known = np.isfinite(values)
    missing = _missingness(known, event == 1)
    if missing is not None:
        return missing
    x, e = values[known], event[known]
    if len(x) < FEWEST or min((e == 1).sum(), len(x)) < FEWEST_EVENTS or np.ptp(x) == 0:
        return None
    auc = area_under_curve(x, e == 1)
    if time is None:
        if max(auc, 1 - auc) < REVEALS_A_BINARY_OUTCOME:
            return None
        return Leak("outcome", f"it reveals who has the outcome (AUC {max(auc, 1 - auc):.2f})")
    return _in_time(x, e, time[known], auc)


def _in_time(x: FloatArray, e: FloatArray, t: FloatArray, auc: float) -> Leak | None:
    z = ndtri((ranks(x) - 0.5) / len(x))
    z = (z - z.mean()) / z.std()
    had, censored = e == 1, e == 0
    slope, far = _slope(t, had, z)
    if abs(far) < MISLEADS:
        return None
    side = float(np.sign(far))
    slope, z, auc = abs(slope), side * z, max(auc, 1 - auc)
    # From here on, a higher value means more events.
    absent = _detect_absent(z, t)
    if abs(far) < ASSOCIATED:
        return None if absent is None else Leak("follow_up", absent)
    order = harrell(t, had, z)
    if order >= BEYOND_MARKERS:
        return Leak(
            "outcome", f"it orders the patients beyond any marker (concordance {order:.2f})"
        )
    leaving, lead = _slope(t, censored, z)
    with_event, without = _rank_correlation(z, t, had), _rank_correlation(z, t, censored)
    numbers = (
        f"hazard ratio per SD {np.exp(slope):.2f} for the event and {np.exp(leaving):.2f} for "
        f"being censored; rank correlation with the time {with_event:.2f} among patients with the "
        f"event and {without:.2f} among censored patients"
    )
    apart = without < SLOPE  # among the censored, an early date of entry goes with long follow-up
    clear = auc >= REVEALS_THE_EVENT and lead < -2.0
    noisily = auc >= REVEALS_NOISILY and leaving < -0.25 and lead < -4.0
    spared = slope > 0.5 and leaving < -0.5 and lead < -4.0
    if slope > 0.25 and apart and (clear or noisily or spared):
        return Leak("outcome", f"it reveals who has the event rather than when: {numbers}")
    grown = slope > SLOPE and leaving > SLOPE and lead > ASSOCIATED
    together = with_event < -0.15 and with_event < 0.4 * without
    timed = with_event < -FOLLOWS_THE_TIME and without < -(FOLLOWS_THE_TIME / 2)
    few = int(censored.sum()) < 10 and with_event < -(FOLLOWS_THE_TIME + 0.1)
    if (grown and together) or timed or few:
        return Leak("follow_up", f"it moves with the length of follow-up: {numbers}")
    if absent is not None:
        return Leak("follow_up", absent)
    if len(np.unique(x)) != 2:
        return None
    immortal = None if leaving < 0 else _immortal(z, t)
    if immortal is None and with_event < -0.7 * slope:
        immortal = _detect_awaited(z, e, t)
    return None if immortal is None else Leak("follow_up", immortal)


def _immortal(z: FloatArray, t: FloatArray) -> str | None:
    """Detect a safer group that patients could only reach by staying alive.

    The sign is that almost no patients in that group left early.
    """
    from scipy.stats import beta

    safe = z < z.mean()
    early = t <= np.quantile(t, EARLY)
    count, all_early = int((early & safe).sum()), int(early.sum())
    share = safe.mean() / (1 - safe.mean())
    odds = count / max(all_early - count, 1) / share
    most = float(beta.ppf(0.975, count + 1, max(all_early - count, 1)))
    if odds > IMMORTAL[0] or most / (1 - most) / share > IMMORTAL[1]:
        return None
    return (
        f"of the {all_early} patients who left first, only {count} are on its safer side, which "
        f"contains {safe.mean():.0%} of all patients: they had to be followed for some time to "
        "get there"
    )


def _detect_absent(z: FloatArray, t: FloatArray) -> str | None:
    """Detect a value that had to be reached, such as six months of treatment or a last cycle.

    No patient who has reached it is among the first to leave, although some of these patients
    leave later. The probability of this is computed with the hazard ratio found later, or
    `STRONGEST` if smaller.
    """
    values = np.unique(z)
    if len(values) > STEPS:
        return None
    for value in values[:-1]:
        leavers = _leavers(z <= value, np.ones(len(t), dtype=bool), t)
        first = int(leavers.safe.argmax())
        if not leavers.safe.any() or leavers.safe.mean() < EARLY:
            continue
        odds, later = np.exp(leavers.log_odds), leavers.safe[first + 1 :]
        after = odds[first + 1 :]
        others = float((~later * after / (1 + after)).sum())
        ratio = min(float((later / (1 + after)).sum()) / max(others, 1e-9), STRONGEST)
        chance = float(np.exp(-np.log1p(odds[:first] * ratio).sum()))
        if chance < ABSENT / (len(values) - 1):
            return (
                f"none of the first {first} patients who left is on its safer side (p = "
                f"{chance:.1g}), where others left later: to get there they had to be followed "
                "for some time"
            )
    return None


def _detect_awaited(z: FloatArray, e: FloatArray, t: FloatArray) -> str | None:
    """Detect an exposure whose safer group requires follow-up, such as a treatment with a wait.

    If waits are exponential with mean w, the hazard that a carrier leaves, for whatever
    reason, is reduced by the factor 1 - exp(-t / w). This model is compared with that of a
    baseline variable, which has a constant hazard ratio for the event and no effect on
    censoring. Fading effects also favor the waiting model among the events, so the censored
    patients must favor it as well. By chance, they do so by `CENSORED_TOO` log-likelihood
    units in at most exp(-`CENSORED_TOO`) of baseline variables.
    """
    safe = z < z.mean()
    event, left = (_leavers(safe, e == state, t) for state in (1, 0))
    constant, none = _constant_ratio(event, 0.0), _log_likelihood(left, 0.0)
    gains = []
    for wait in np.quantile(t, WAITS):
        reached = [np.log(-np.expm1(-leavers.time / wait)) for leavers in (event, left)]
        by_event = _constant_ratio(event, reached[0]) - constant
        gains.append((by_event, _log_likelihood(left, reached[1]) - none))
    by_event, by_left = max(gains, key=sum)
    if by_event + by_left < AWAITED or by_left < CENSORED_TOO:
        return None
    return (
        f"those on its safer side hardly leave at first, with the event (log-likelihood "
        f"{by_event:.1f} better than by a constant hazard ratio) or without it ({by_left:.1f}): to "
        "get there they had to be followed for some time"
    )


@dataclass(frozen=True)
class _Leavers:
    """Patients who left: their times, groups, and the log odds of the safer group by chance."""

    time: FloatArray
    safe: BoolArray
    log_odds: FloatArray


def _leavers(safe: BoolArray, leaves: BoolArray, t: FloatArray) -> _Leavers:
    """Select patients who left while both groups were at risk."""
    order = np.argsort(t, kind="stable")
    safe, leaves, t = safe[order], leaves[order], t[order]
    first = np.searchsorted(t, t)
    on_safe, others = (np.cumsum(side[::-1])[::-1][first] for side in (safe, ~safe))
    both = leaves & (on_safe > 0) & (others > 0) & (t > 0)
    return _Leavers(t[both], safe[both], np.log(on_safe[both] / others[both]))


def _log_likelihood(leavers: _Leavers, log_ratio: FloatArray | float) -> float:
    """Compute the partial log-likelihood of leaving, given the safer group's log hazard ratio."""
    odds = leavers.log_odds + log_ratio
    return float((leavers.safe * odds - np.logaddexp(0, odds)).sum())


def _constant_ratio(leavers: _Leavers, log_ratio: FloatArray | float) -> float:
    """Find the maximum log-likelihood with a constant hazard ratio in addition to `log_ratio`."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda constant: -_log_likelihood(leavers, log_ratio + constant),
        bounds=(-8, 8),
        method="bounded",
    )
    return -float(found.fun)


def _missingness(known: BoolArray, had: BoolArray) -> Leak | None:
    """Detect values known almost only for patients with the event, or only for those without it."""
    if min(had.sum(), (~had).sum()) < FEWEST_EVENTS or known.sum() < FEWEST_EVENTS:
        return None
    with_event, without = known[had].mean(), known[~had].mean()
    if abs(with_event - without) < FOLLOWS_THE_EVENT:
        return None
    text = (
        f"known in {with_event:.0%} of the patients with the event and in {without:.0%} of those "
        "without: it was recorded by what happened"
    )
    return Leak("missingness", text)


def _slope(t: FloatArray, flags: BoolArray, z: FloatArray) -> tuple[float, float]:
    """Return the log hazard ratio per SD and its distance from no effect in standard errors.

    Both are 0 if there is no estimate. If the fit diverges to infinity, the distance comes from the
    score test.
    """
    if flags.sum() < 3:
        return 0.0, 0.0
    found = batched_cox(t, flags, z[:, None], workers=1)
    score = float(np.sqrt(found.score[0]) * found.score_sign[0])
    if found.converged[0]:
        return float(found.coef[0]), float(found.coef[0] / found.se[0])
    return (0.0, 0.0) if not np.isfinite(score) else (float(np.sign(score)) * 5.0, score)


def area_under_curve(x: FloatArray, flag: BoolArray) -> float:
    """Compute the area under the ROC curve for a flag.

    This is the probability that a case has a higher value than a control.
    """
    cases, others = int(flag.sum()), int((~flag).sum())
    if min(cases, others) == 0:
        return 0.5
    return float((ranks(x)[flag].sum() - cases * (cases + 1) / 2) / (cases * others))


def _rank_correlation(x: FloatArray, t: FloatArray, among: BoolArray) -> float:
    a, b = ranks(x[among]), ranks(t[among])
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
