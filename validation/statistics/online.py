"""Error control over claims that come in sequence, none of which knows the later ones.

SAGE uses e-LOND (Xu and Ramdas 2024, AISTATS): it holds under any dependence between the e-values,
and claims that are confirmed in the same patients depend on each other in ways that nobody knows.
LORD++ (Ramdas, Yang, Wainwright and Jordan 2017, NeurIPS; Javanmard and Montanari 2018, Annals of
Statistics) gains more from earlier discoveries, but needs p-values that are independent, or valid
given all earlier claims; it is included for comparison.

A p-value enters e-LOND as the all-or-nothing e-value of its own place. That makes the level of the
t-th claim alpha * gamma_t whatever came before (alpha spending, as in Foster and Stine 2008, J R
Stat Soc B), and bounds the chance of any false discovery by alpha, not only their rate. Calibrators
that keep something for later discoveries (`multiplicity.p_to_e`) pay more for it than the few
discoveries of a campaign give back (`docs/campaigns.md`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validation.statistics.base import BoolArray, FloatArray, as_float
from validation.statistics.errors import ShapeError

DECAY = 1.6
TOTAL = 2.2857656656801293
"""Riemann's zeta at `DECAY`: the spending of all places together is 1."""


def spending(place: int) -> float:
    """gamma_t, the share of alpha that the t-th claim (from 1) spends: t^-1.6 / zeta(1.6).

    The exponent is that of Tian and Ramdas 2019 (NeurIPS).
    """
    if place < 1:
        raise ShapeError(f"places count from 1, not {place}")
    return float(place**-DECAY / TOTAL)


def level(place: int, alpha: float = 0.05) -> float:
    """The p-value that the claim at `place` must stay below: alpha * gamma_t."""
    return alpha * spending(place)


def e_lond(e: npt.ArrayLike, alpha: float = 0.05) -> BoolArray:
    """Mask of claims rejected by e-LOND, in order: e_t >= 1 / (alpha gamma_t (D_{t-1} + 1)).

    D_{t-1} counts the rejections before t. The false discovery rate is at most `alpha` at every
    time, under any dependence.
    """
    values = as_float(e, "e").ravel()
    if (values < 0.0).any() or np.isnan(values).any():
        raise ShapeError("e-values must be non-negative; a crashed test counts as e = 0")
    rejected = np.zeros(len(values), dtype=bool)
    for at, value in enumerate(values):
        bound = level(at + 1, alpha) * (int(rejected[:at].sum()) + 1)
        rejected[at] = value * bound >= 1.0 - 1e-12
    return rejected


def lord(p: npt.ArrayLike, alpha: float = 0.05, wealth: float | None = None) -> BoolArray:
    """Mask of claims rejected by LORD++, in order: p_t <= alpha_t, with

    alpha_t = gamma_t w0 + (alpha - w0) gamma_{t-tau_1} + alpha sum_{j>=2} gamma_{t-tau_j},

    tau_j being the time of the j-th rejection.

    Parameters
    ----------
    wealth : w0, what may be spent before the first discovery (default: alpha / 2)
    """
    values = _p_values(p)
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


def _p_values(p: npt.ArrayLike) -> FloatArray:
    values = as_float(p, "p").ravel()
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ShapeError("p-values must lie between 0 and 1; a crashed test counts as p = 1")
    return values
