"""Input and output types for the scientist."""

from __future__ import annotations

from pydantic import Field

from agents.core.base import View
from agents.core.types import DictionaryView, History, OntologyBrief, Relationship
from agents.core.words import PlainHypothesis, Words
from agents.question.types import Question
from validation.core.hypothesis import Exposure


class ScientistInput(View):
    """Input to the scientist: the question, the ontologist's brief and the data dictionary.

    `wanted` is the number of candidates to draft. `already` lists the statements proposed so
    far in the run, `wishes` contains a reviewer's requests, and `history` contains findings
    from earlier campaign rounds.
    """

    question: Question = Question(prompt="")
    brief: OntologyBrief
    dictionary: DictionaryView
    wanted: int = Field(default=1, ge=1, le=40)
    already: tuple[str, ...] = ()
    wishes: tuple[str, ...] = ()
    history: History = History()


class StepRef(View):
    """A relationship in the brief, identified by its chain and step numbers."""

    chain: int
    step: int


class Proposal(View):
    """A hypothesis in the five-field template, and its supporting evidence.

    The evidence consists of relationships in the brief or sources from `literature_search`;
    otherwise the proposal states that it has neither. `remark` is a model's reason for
    proposing it.
    """

    hypothesis: PlainHypothesis
    remark: Words = ""
    support: tuple[StepRef, ...] = Field(default=(), max_length=12)
    sources: tuple[str, ...] = Field(
        default=(), max_length=12, description="keys of sources that literature_search gave"
    )
    support_absent: bool = Field(
        default=False, description="true where nothing that was searched supports the claim"
    )
    conjecture: bool = Field(
        default=False, description="true where no source gives the direction that is claimed"
    )
    refinements: tuple[Exposure, ...] = Field(default=(), max_length=4)
    concepts: tuple[str, ...] = Field(
        default=(),
        max_length=8,
        description="names that papers use for what the hypothesis combines, the disease included",
    )

    def supported_by(self, brief: OntologyBrief) -> list[Relationship]:
        """Return the relationships in the brief that support the claim."""
        support = {(step.chain, step.step) for step in self.support}
        return [
            relationship
            for relationship in brief.relationships
            if (relationship.chain, relationship.step) in support
        ]


class Candidates(View):
    """Distinct hypotheses to choose from, the most promising first."""

    candidates: tuple[Proposal, ...] = Field(min_length=1, max_length=40)
