"""Concordance of a risk score with survival: Harrell's C and Uno's IPCW version.

References, in words: Harrell, Lee and Mark 1996 (Statistics in Medicine); Uno, Cai, Pencina,
D'Agostino and Wei 2011 (Statistics in Medicine).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validation.statistics.base import FloatArray, as_float, survival_arrays
from validation.statistics.errors import BadTimesError, NoEventsError, ShapeError

_BLOCK = 2_000_000


def _pairs(
    t: FloatArray,
    e: npt.NDArray[np.bool_],
    risk: FloatArray,
    weight: FloatArray,
    keep: npt.NDArray[np.bool_],
) -> tuple[float, float]:
    """Weighted concordant and comparable pairs, in blocks of events to bound memory.

    A pair is comparable when the earlier time is an event, or when the times are equal and only one
    of the two is an event. Equal risks count one half.
    """
    concordant = comparable = 0.0
    cases = np.flatnonzero(e & keep)
    step = max(1, _BLOCK // max(len(t), 1))
    for start in range(0, len(cases), step):
        i = cases[start : start + step]
        later = (t[None, :] > t[i, None]) | ((t[None, :] == t[i, None]) & ~e[None, :])
        right = (risk[i, None] > risk[None, :]) + 0.5 * (risk[i, None] == risk[None, :])
        concordant += float((weight[i] * (later * right).sum(axis=1)).sum())
        comparable += float((weight[i] * later.sum(axis=1)).sum())
    return concordant, comparable


def _risk(risk: npt.ArrayLike, n: int) -> FloatArray:
    r = as_float(risk, "risk")
    if r.shape != (n,) or not np.isfinite(r).all():
        raise ShapeError(f"risk must hold {n} finite values, one per patient")
    return r


def harrell(time: npt.ArrayLike, event: npt.ArrayLike, risk: npt.ArrayLike) -> float:
    """Harrell's C: the share of comparable pairs whose earlier event has the higher risk.

    `risk` is higher for patients expected to fail earlier. 0.5 is chance, 1 a perfect order.
    """
    t, e = survival_arrays(time, event)
    concordant, comparable = _pairs(
        t, e, _risk(risk, len(t)), np.ones(len(t)), np.ones(len(t), dtype=bool)
    )
    if comparable == 0.0:
        raise NoEventsError("no two patients can be compared: no event precedes another time")
    return concordant / comparable


def censoring_weight(time: FloatArray, event: npt.NDArray[np.bool_], at: FloatArray) -> FloatArray:
    """G(at): the chance of not being censored by then (reverse Kaplan-Meier).

    At equal times events come first, so patients with an event leave before anybody is censored.
    """
    times, inverse = np.unique(time, return_inverse=True)
    leaving = np.bincount(inverse, minlength=len(times))
    censored = np.bincount(inverse, weights=~event, minlength=len(times))
    at_risk = len(time) - np.concatenate(([0], np.cumsum(leaving)[:-1]))
    after_events = at_risk - (leaving - censored)
    survival = np.cumprod(1.0 - censored / np.maximum(after_events, 1.0))
    where = np.searchsorted(times, at, side="right") - 1
    return np.where(where >= 0, survival[np.maximum(where, 0)], 1.0)


def uno(
    time: npt.ArrayLike, event: npt.ArrayLike, risk: npt.ArrayLike, *, tau: float | None = None
) -> float:
    """Uno's C: Harrell's, with each pair weighted by 1 / G(t)^2, G the censoring survival.

    Unlike Harrell's it does not depend on the censoring of the study. Pairs beyond `tau` are left
    out (default: all).
    """
    t, e = survival_arrays(time, event)
    g = censoring_weight(t, e, t)
    keep = np.ones(len(t), dtype=bool) if tau is None else t < tau
    if (g[e & keep] <= 0.0).any():
        raise BadTimesError("nobody is censored later than some event: give tau below that time")
    weight = np.where(g > 0.0, 1.0 / np.maximum(g, 1e-12) ** 2, 0.0)
    concordant, comparable = _pairs(t, e, _risk(risk, len(t)), weight, keep)
    if comparable == 0.0:
        raise NoEventsError("no two patients can be compared before tau")
    return concordant / comparable
