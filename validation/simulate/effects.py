"""True effects planted in a simulated world."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Effects:
    """Planted effects. Hazard ratios or odds ratios of 1 mean that no effect was planted.

    The biomarker effects act equally on death and on progression, unless stated otherwise.
    `confounding` is the correlation of the basal factor (FABP5 and the keratins) with stage:
    a crude association then appears without a true effect.
    """

    fabp5_high_tls_low_hr: float = 2.0
    fabp5_high_tls_low_nodes_or: float = 2.2
    cxcl13_per_sd_hr: float = 0.75
    adrm1_per_sd_hr_in_men: float = 1.35
    til_per_sd_hr: float = 1.0
    stage_iii_hr: float = 1.6
    stage_iv_hr: float = 2.6
    age_per_decade_hr: float = 1.25
    confounding: float = 0.0

    def without_biomarkers(self) -> Effects:
        """Return the same clinical course without biomarker effects (a null world)."""
        return replace(
            self,
            fabp5_high_tls_low_hr=1.0,
            fabp5_high_tls_low_nodes_or=1.0,
            cxcl13_per_sd_hr=1.0,
            adrm1_per_sd_hr_in_men=1.0,
            til_per_sd_hr=1.0,
            confounding=0.0,
        )

    @classmethod
    def nothing(cls) -> Effects:
        """Return effects with no relation to any outcome, not even for stage and age."""
        return replace(
            cls().without_biomarkers(), stage_iii_hr=1.0, stage_iv_hr=1.0, age_per_decade_hr=1.0
        )
