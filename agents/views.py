"""What expansion reads and returns."""

from __future__ import annotations

from pydantic import Field

from agents.base import View
from agents.types import ReviewedHypothesis
from validation.core.hypothesis import Hypothesis


class ExpansionInput(View):
    """What expansion sees: the reviewed hypothesis; in a revision, the critics' reasons."""

    reviewed: ReviewedHypothesis
    reasons: tuple[str, ...] = ()
    round: int = 0


class Expansion(View):
    """Rationale and clinical meaning; in a revision, also the sharpened hypothesis."""

    hypothesis: Hypothesis | None = Field(
        default=None, description="the sharpened hypothesis in a revision, else null"
    )
    background: str
    mechanism: str
    clinical_interpretation: str
    improvements: tuple[str, ...] = ()
    parts: tuple[str, ...] = Field(min_length=2, max_length=8)
