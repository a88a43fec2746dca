"""Error control for claims tested in sequence, each without knowledge of later ones.

SAGE uses e-LOND (Xu and Ramdas 2024, AISTATS), which is valid under any dependence
between the e-values, since claims confirmed in the same patients depend on each other in
unknown ways.

A p-value enters e-LOND as an all-or-nothing e-value for its place in the sequence. The
level for the t-th claim is therefore alpha * gamma_t, regardless of earlier results
(alpha spending, as in Foster and Stine 2008, J R Stat Soc B), and the probability of any
false discovery, not just the false discovery rate, is at most alpha. Calibrators that
reserve some level for later discoveries (Vovk and Wang 2021) cost more than a campaign's
few discoveries return (`docs/campaigns.md`).
"""

from __future__ import annotations

from validation.statistics.errors import ShapeError

DECAY = 1.6
TOTAL = 2.2857656656801293
"""Riemann's zeta function at `DECAY`, which makes the spending over all claims sum to 1."""


def spending(place: int) -> float:
    """Return gamma_t, the share of alpha that the t-th claim (from 1) spends: t^-1.6 / zeta(1.6).

    The exponent is taken from Tian and Ramdas 2019 (NeurIPS).
    """
    if place < 1:
        raise ShapeError(f"places count from 1, got {place}")
    return float(place**-DECAY / TOTAL)


def level(place: int, alpha: float = 0.05) -> float:
    """Return the level alpha * gamma_t for the claim at `place`.

    The claim's p-value must be below this level.
    """
    return alpha * spending(place)
