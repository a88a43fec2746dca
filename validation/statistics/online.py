"""Error control over claims that come in sequence, none of which knows the later ones.

SAGE uses e-LOND (Xu and Ramdas 2024, AISTATS): it holds under any dependence between the e-values,
and claims that are confirmed in the same patients depend on each other in ways that nobody knows.

A p-value enters e-LOND as the all-or-nothing e-value of its own place. That makes the level of the
t-th claim alpha * gamma_t whatever came before (alpha spending, as in Foster and Stine 2008, J R
Stat Soc B), and bounds the chance of any false discovery by alpha, not only their rate. Calibrators
that keep something for later discoveries (`multiplicity.p_to_e`) pay more for it than the few
discoveries of a campaign give back (`docs/campaigns.md`).
"""

from __future__ import annotations

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
    """Return the p-value that the claim at `place` must stay below: alpha * gamma_t."""
    return alpha * spending(place)
