"""Numbers of the feasibility assessment."""

from __future__ import annotations

from pydantic import Field

from agents.core.base import View


class FeasibilitySettings(View):
    """Weights are those of SAGE, Table 6; thresholds are ours."""

    data_weight: float = 35.0
    tools_weight: float = 25.0
    logic_weight: float = 25.0
    resources_weight: float = 15.0

    feasible_from: float = Field(default=70.0, ge=0.0, le=100.0)
    """Scores from here on are feasible, if no condition is open."""

    conditional_from: float = Field(default=50.0, ge=0.0, le=100.0)
    """Scores below are infeasible."""

    comfortable_ratio: float = 1.6
    """A smallest detectable hazard or odds ratio up to here counts in full. Prognostic markers of
    this field commonly report ratios of 1.5 to 2."""

    hopeless_ratio: float = 4.0
    """From here on only implausibly strong effects could be seen: infeasible."""

    least_events: int = 20
    """Fewer events than this cannot support any adjusted model: infeasible."""

    events_per_variable: float = 10.0
    """Events per model term below which a condition is set (Peduzzi et al., 1996, Journal of
    Clinical Epidemiology)."""

    most_missing: float = 0.5
    """A variable missing in more patients than this share is as good as absent."""

    hours_comfortable: float = 2.0
    hours_allowed: float = 72.0
    """Estimated runtime: in full up to the first, infeasible beyond the second."""
