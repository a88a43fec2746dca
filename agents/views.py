"""What the hypothesis agents read and return."""

from __future__ import annotations

from pydantic import Field

from agents.base import View
from agents.types import DictionaryView, History, OntologyBrief, ReviewedHypothesis
from validation.hypothesis import Exposure, Hypothesis


class ScientistInput(View):
    """What the scientist sees: the ontologist's brief and the data dictionary, never the paths.

    `already` lists the statements proposed so far in the run, `wishes` what a reviewer asked for,
    `history` what earlier rounds of a campaign found.
    """

    brief: OntologyBrief
    dictionary: DictionaryView
    already: tuple[str, ...] = ()
    wishes: tuple[str, ...] = ()
    history: History = History()


class StepRef(View):
    """One relationship of the brief, by the numbers of its chain and step."""

    chain: int
    step: int


class Proposal(View):
    """A hypothesis in the five-field template, and the relationships that it rests on."""

    hypothesis: Hypothesis
    support: tuple[StepRef, ...] = Field(min_length=1, max_length=12)
    refinements: tuple[Exposure, ...] = Field(default=(), max_length=4)
    concepts: tuple[str, ...] = Field(
        default=(),
        max_length=8,
        description="names that papers use for what the hypothesis combines, the disease included",
    )


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
