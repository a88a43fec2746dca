"""Concordance of a risk score with survival: Harrell's C and Uno's IPCW version.

References: Harrell, Lee and Mark 1996 (Statistics in Medicine); Uno, Cai, Pencina, D'Agostino and
Wei 2011 (Statistics in Medicine).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validation.statistics.base import BoolArray, FloatArray, as_float, survival_arrays
from validation.statistics.errors import BadTimesError, NoEventsError, ShapeError

# Runs of fewer patients than this are compared pair by pair, longer runs by sorting.
_RUN = 16


def concordant_pairs(
    t: FloatArray, e: BoolArray, risk: FloatArray, first: FloatArray, second: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Sum the weights of concordant and comparable pairs, for m weightings simultaneously.

    A pair is comparable if the earlier time is an event, or if the times are equal and only
    one of the two is an event. Equal risks count half. With the patients in descending order
    of time, the partners of an event are the first p patients. Splitting p into runs of 1, 2,
    4, ... patients (its binary digits) turns every sum over partners into sums over sorted
    runs, which takes O(n log^2 n).

    Parameters
    ----------
    t, e, risk : (n,)
    first : (n, m) weight of each patient as the earlier event in a pair
    second : (n, m) weight of each patient as the later event
    """
    n = len(t)
    order = np.lexsort((e, -t))
    t, e, first, second = t[order], e[order], first[order], second[order]
    rank = np.unique(risk[order], return_inverse=True)[1].astype(np.int64)
    cases = np.flatnonzero(e)
    # Events come after the non-events at the same time, so the first event's partners precede it.
    _, leader = np.unique(-t[cases], return_index=True)
    partners = cases[leader][np.searchsorted(leader, np.arange(len(cases)), side="right") - 1]
    mine, weight = rank[cases], first[cases]

    def cumulate(values: FloatArray) -> FloatArray:
        return np.concatenate((np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)))

    comparable = (weight * cumulate(second)[partners]).sum(axis=0)
    start = partners & ~(_RUN - 1)
    near = start[:, None] + np.arange(min(_RUN, n))
    inside = near < partners[:, None]
    near = np.minimum(near, n - 1)
    won = inside * ((mine[:, None] > rank[near]) + 0.5 * (mine[:, None] == rank[near]))
    concordant = np.einsum("im,ij,ijm->m", weight, won, second[near], optimize=True)
    ranked = np.argsort(rank, kind="stable")
    for level in range(_RUN.bit_length() - 1, n.bit_length()):
        here = np.flatnonzero((partners >> level) & 1)
        run = (partners[here] >> (level + 1)) << 1
        # Up to 16 bits, numpy sorts in linear time.
        bits = np.uint16 if n >> level < 2**16 else np.int64
        sort = ranked[np.argsort((ranked >> level).astype(bits), kind="stable")]
        keys, sums = (sort >> level) * n + rank[sort], cumulate(second[sort])
        low = np.searchsorted(keys, run * n + mine[here], side="left")
        high = np.searchsorted(keys, run * n + mine[here], side="right")
        total = 0.5 * (sums[low] + sums[high]) - sums[run << level]
        concordant = concordant + (weight[here] * total).sum(axis=0)
    return concordant, comparable


def _pairs(
    t: FloatArray, e: BoolArray, risk: FloatArray, weight: FloatArray
) -> tuple[float, float]:
    """Sum the pairs for a single weighting, that of the earlier event."""
    right, pairs = concordant_pairs(t, e, risk, weight[:, None], np.ones((len(t), 1)))
    return float(right[0]), float(pairs[0])


def _risk(risk: npt.ArrayLike, n: int) -> FloatArray:
    r = as_float(risk, "risk")
    if r.shape != (n,) or not np.isfinite(r).all():
        raise ShapeError(f"risk must contain {n} finite values, one per patient")
    return r


def harrell(time: npt.ArrayLike, event: npt.ArrayLike, risk: npt.ArrayLike) -> float:
    """Compute Harrell's C.

    This is the share of comparable pairs in which the patient with the earlier event has the higher
    risk. `risk` is higher for patients expected to fail earlier. 0.5 means chance, 1 a perfect
    ranking.
    """
    t, e = survival_arrays(time, event)
    concordant, comparable = _pairs(t, e, _risk(risk, len(t)), np.ones(len(t)))
    if comparable == 0.0:
        raise NoEventsError(
            "no two patients can be compared, because no event precedes another time"
        )
    return concordant / comparable


def censoring_weight(
    time: FloatArray, event: BoolArray, at: FloatArray, entry: FloatArray | None = None
) -> FloatArray:
    """Compute G(at), the probability of not being censored by then (reverse Kaplan-Meier).

    At tied times events come first: patients with an event leave the risk set before any censoring.
    With delayed `entry` (n,), patients count from their entry on.
    """
    times, inverse = np.unique(time, return_inverse=True)
    leaving = np.bincount(inverse, minlength=len(times))
    censored = np.bincount(inverse, weights=~event, minlength=len(times))
    at_risk = len(time) - np.concatenate(([0], np.cumsum(leaving)[:-1]))
    if entry is not None:
        at_risk = at_risk - (len(time) - np.searchsorted(np.sort(entry), times, side="left"))
    after_events = at_risk - (leaving - censored)
    survival = np.cumprod(1.0 - censored / np.maximum(after_events, 1.0))
    where = np.searchsorted(times, at, side="right") - 1
    return np.where(where >= 0, survival[np.maximum(where, 0)], 1.0)


def uno(
    time: npt.ArrayLike, event: npt.ArrayLike, risk: npt.ArrayLike, *, tau: float | None = None
) -> float:
    """Compute Uno's C, in which each pair is weighted by 1 / G(t)^2.

    G is the censoring survival. Unlike Harrell's C, Uno's does not depend on the study's
    censoring. Pairs beyond `tau` are left out (default: all pairs count).

    Parameters
    ----------
    time : (n,) follow-up, in any unit
    event : (n,) 1 if follow-up ends in the event
    risk : (n,) score, higher for patients expected to fail earlier
    tau : largest time in a pair, in the unit of `time`

    Returns
    -------
    The concordance: 0.5 for chance, 1 for a perfect ranking.

    Raises
    ------
    BadTimesError
        If G is zero at an event, whose weight would then be infinite.
    NoEventsError
        If no two patients can be compared.
    """
    t, e = survival_arrays(time, event)
    g = censoring_weight(t, e, t)
    keep = np.ones(len(t), dtype=bool) if tau is None else t < tau
    if (g[e & keep] <= 0.0).any():
        raise BadTimesError(
            "no patient is censored after some of the events; set tau below their times"
        )
    weight = np.where(g > 0.0, 1.0 / np.maximum(g, 1e-12) ** 2, 0.0)
    concordant, comparable = _pairs(t, e, _risk(risk, len(t)), np.where(keep, weight, 0.0))
    if comparable == 0.0:
        raise NoEventsError("no two patients can be compared before tau")
    return concordant / comparable
