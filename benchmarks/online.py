"""Rules of online error control to compare with SAGE: e-LOND on any e-values, and LORD++.

LORD++ (Ramdas, Yang, Wainwright and Jordan 2017, NeurIPS; Javanmard and Montanari 2018, Annals of
Statistics) gains more from earlier discoveries than e-LOND, but needs p-values that are
independent, or valid given all earlier claims.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validation.statistics.base import BoolArray, FloatArray, as_float
from validation.statistics.errors import ShapeError
from validation.statistics.multiplicity import p_values
from validation.statistics.online import level, spending


def p_to_e(p: npt.ArrayLike) -> FloatArray:
    """Calibrate p-values into e-values, whose expectation is at most 1 under the null hypothesis.

    The calibrator averages kappa p^(kappa - 1) over kappa in (0, 1), which gives
    e = (1 - p + p log p) / (p log(p)^2). It integrates to 1 over uniform p. p = 0 is rejected,
    since no valid test returns it.
    """
    values = p_values(p)
    if (values <= 0.0).any():
        raise ShapeError("p = 0 cannot be calibrated: report permutation p as (1 + k) / (1 + B)")
    log = np.log(values)
    near_one = values > 1.0 - 1e-4
    safe = np.where(near_one, 0.5, values)
    safe_log = np.log(safe)
    exact = (1.0 - safe + safe * safe_log) / (safe * safe_log**2)
    # Use a series at p = 1 - d, where the exact form loses all digits.
    series = 0.5 - log / 6.0
    return np.where(near_one, series, exact)


def e_lond(e: npt.ArrayLike) -> BoolArray:
    """Find the claims rejected by e-LOND, in order: e_t >= 1 / (alpha gamma_t (D_{t-1} + 1)).

    D_{t-1} counts the rejections before t. The false discovery rate is at most 5% at every
    time, under any dependence.
    """
    values = as_float(e, "e").ravel()
    if (values < 0.0).any() or np.isnan(values).any():
        raise ShapeError("e-values must be non-negative; a crashed test counts as e = 0")
    rejected = np.zeros(len(values), dtype=bool)
    for at, value in enumerate(values):
        bound = level(at + 1) * (int(rejected[:at].sum()) + 1)
        rejected[at] = value * bound >= 1.0 - 1e-12
    return rejected


def lord(p: npt.ArrayLike, alpha: float = 0.05, wealth: float | None = None) -> BoolArray:
    """Find the claims rejected by LORD++, in order.

    A claim is rejected if p_t <= alpha_t, with

    alpha_t = gamma_t w0 + (alpha - w0) gamma_{t-tau_1} + alpha sum_{j>=2} gamma_{t-tau_j},

    where tau_j is the time of the j-th rejection.

    Parameters
    ----------
    wealth : w0, the level that may be spent before the first discovery (default: alpha / 2)
    """
    values = p_values(p)
    first = alpha / 2.0 if wealth is None else wealth
    if not 0.0 < first <= alpha:
        raise ShapeError(f"wealth must lie between 0 and alpha, not at {first:g}")
    times: list[int] = []
    rejected = np.zeros(len(values), dtype=bool)
    for at, value in enumerate(values):
        place = at + 1
        bound = spending(place) * first
        for rank, time in enumerate(times):
            bound += (alpha - first if rank == 0 else alpha) * spending(place - time)
        if value <= bound:
            rejected[at] = True
            times.append(place)
    return rejected
