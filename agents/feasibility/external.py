"""Facts from outside registries."""

from __future__ import annotations

from dataclasses import dataclass

from agents.feasibility.types import StepName


@dataclass(frozen=True)
class ExternalFact:
    """What an outside registry says. `found` is None when it did not answer."""

    step: StepName
    check: str
    statement: str
    source: str
    found: bool | None
    share: float
    value: float | None = None
    url: str | None = None
