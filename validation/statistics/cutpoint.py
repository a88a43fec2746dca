"""Cut-points selected using the outcome, with p-values corrected for the search.

Searching for the best cut inflates the false positive rate several times over (Altman and
others 1994, J Natl Cancer Inst). Two corrections are available: the asymptotic p of
Lausen and Schumacher 1992 (Biometrics) for maximally selected rank statistics, and the
permutation distribution of the maximum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sage.core.seeds import generator
from validation.statistics.base import BoolArray, FloatArray, as_float, survival_arrays, two_sided
from validation.statistics.errors import ConstantFeatureError, NoEventsError, ShapeError
from validation.statistics.survival import numbers_at_risk

LOWER, UPPER = 0.1, 0.9


@dataclass(frozen=True)
class Cutpoint:
    """The selected cut (values above it are high) and its p-values.

    `p_uncorrected` must never be reported by itself.
    """

    cut: float
    statistic: float
    p: float
    p_uncorrected: float
    candidates: int
    permutations: int


def logrank_scores(
    time: FloatArray, event: BoolArray, entry: FloatArray | None = None
) -> FloatArray:
    """Compute log-rank scores: event flag minus Nelson-Aalen hazard while the patient is at risk.

    Patients are at risk from the start, or from their `entry` time.
    """
    times, inverse = np.unique(time, return_inverse=True)
    at_risk = numbers_at_risk(time, times, entry)
    hazard = np.cumsum(np.bincount(inverse, weights=event, minlength=len(times)) / at_risk)
    before = np.zeros(1)
    if entry is not None:
        before = np.append(0.0, hazard)[np.searchsorted(times, entry, side="right")]
    return np.asarray(event - (hazard[inverse] - before), dtype=np.float64)


def _asymptotic(b: float, low: float, high: float) -> float:
    """Compute P(max |standardized bridge| > b) on [low, high].

    Miller and Siegmund 1982 (Biometrics).
    """
    if b <= 1.0:
        return 1.0
    density = math.exp(-b * b / 2.0) / math.sqrt(2.0 * math.pi)
    span = math.log(high * (1.0 - low) / ((1.0 - high) * low))
    return min(1.0, 4.0 * density / b + density * (b - 1.0 / b) * span)


def maximally_selected(
    time: npt.ArrayLike,
    event: npt.ArrayLike,
    x: npt.ArrayLike,
    *,
    permutations: int = 0,
    seed: int = 0,
) -> Cutpoint:
    """Find the cut of x that best separates survival, with a p-value corrected for the search.

    A value of x is a candidate if the share of patients at or below it is between `LOWER` and
    `UPPER`. The statistic is the standardized sum of log-rank scores above the cut.

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    x : (n,) values to cut, none missing
    permutations : number of permutations for the p-value; 0 gives the asymptotic p-value

    Returns
    -------
    The cut in the unit of `x`, its statistic, and a p-value corrected for all candidates.

    Raises
    ------
    ShapeError
        If values are missing.
    ConstantFeatureError
        If no value leaves enough patients on both sides.
    NoEventsError
        If all patients have the same log-rank score.
    """
    t, e = survival_arrays(time, event)
    values = as_float(x, "x")
    if values.shape != t.shape or not np.isfinite(values).all():
        raise ShapeError(f"x must contain {len(t)} finite values, one per patient")
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    n = len(t)
    last = np.flatnonzero(np.append(ordered[1:] > ordered[:-1], False))
    share = (last + 1) / n
    last = last[(share >= LOWER) & (share <= UPPER)]
    if len(last) == 0:
        raise ConstantFeatureError(
            f"x has no cut that leaves at least {LOWER:.0%} of patients on each side"
        )
    scores = logrank_scores(t, e)
    if np.ptp(scores) < 1e-12:
        raise NoEventsError(
            "all patients have the same log-rank score, so they cannot be separated"
        )
    below = last + 1.0
    sd = np.sqrt(below * (n - below) / n * scores.var(ddof=1))

    def standardized(sorted_scores: FloatArray) -> FloatArray:
        sums = np.cumsum(sorted_scores, axis=-1)[..., last]
        expected = below * sorted_scores.mean(axis=-1, keepdims=True)
        return np.asarray(np.abs(sums - expected) / sd, dtype=np.float64)

    found = standardized(scores[order])
    best = int(np.argmax(found))
    statistic = float(found[best])
    if permutations == 0:
        p = _asymptotic(statistic, float(below[0] / n), float(below[-1] / n))
        p = two_sided(statistic) if len(last) == 1 else p
    else:
        rng = generator(seed)
        exceed, done = 0, 0
        while done < permutations:
            block = min(2000, permutations - done)
            shuffled = rng.permuted(np.tile(scores, (block, 1)), axis=1)
            exceed += int((standardized(shuffled).max(axis=1) >= statistic - 1e-12).sum())
            done += block
        p = (1 + exceed) / (1 + permutations)
    i = int(last[best])
    return Cutpoint(
        cut=float((ordered[i] + ordered[i + 1]) / 2.0),
        statistic=statistic,
        p=p,
        p_uncorrected=two_sided(statistic),
        candidates=len(last),
        permutations=permutations,
    )
