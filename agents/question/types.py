"""The question as a contract: its parts, their matches, and remedies for unmatched parts.

A part is known if the graph, the ontology or the cohort has a name for it. A hypothesis
carries a part through the part's variables, its endpoint or its filters
(`agents.question.carried`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from agents.core.base import View
from agents.core.words import Words
from kg.types import EntityType
from sage.core.models import Name, Passage
from sage.core.printable import quote_text
from validation.core.dictionary import Endpoint, Variable
from validation.core.hypothesis import Direction, Filter, SmallestRelevant

Level = Literal["high", "low"]
Side = Literal[Direction.HIGHER_RISK, Direction.LOWER_RISK]
"""Direction that a question can specify."""


class Intent(StrEnum):
    """Aim of the question."""

    RELATE = "relate"
    """Test an association between two variables."""
    PREDICT_RESPONSE = "predict_response"
    """Predict which patients benefit from a treatment."""
    MODIFY = "modify"
    """Test whether an effect differs between patient groups."""
    EXPLAIN = "explain"
    """Find the mechanism through which an effect arises."""
    DISCOVER = "discover"
    """Search for associations without a named candidate."""


class PartRole(StrEnum):
    """Role of a part of the question in the claim."""

    POPULATION = "population"
    EXPOSURE = "exposure"
    COMPARATOR = "comparator"
    ENDPOINT = "endpoint"
    MODIFIER = "modifier"
    MEDIATOR = "mediator"
    TREATMENT = "treatment"
    COVARIATE = "covariate"
    """Variable to adjust for."""
    QUALIFIER = "qualifier"
    """Unexplained words that qualify another part."""


class Part(View):
    """A part of the question, with its original wording.

    `name` is the matched name ("" if nothing has a name for it). `variables` are the keys of
    the data dictionary that measure it, best first; with `every`, they are the members of a
    class ("stromal genes"), and an empty list for a class leaves the choice open among
    variables of the modality in `open_to`. `stands_in` states that the variables do not
    measure the part itself (for example, a marker gene for a cell type), and why they may
    serve as a proxy.
    """

    words: Name
    role: PartRole
    name: Name = ""
    kind: EntityType | None = None
    graph_node: str = ""
    ontology_id: str = ""
    variables: tuple[str, ...] = ()
    every: bool = False
    open_to: Literal["", "expression", "imaging", "any"] = ""
    stands_in: str = ""
    endpoint: str = ""
    filters: tuple[Filter, ...] = ()
    level: Level | None = None
    negated: bool = False
    corrected_from: Name = Field(default="", description="the spelling that was read as `words`")
    nearest: tuple[Name, ...] = ()
    supply: str = Field(default="", description="why the part is unknown, and the remedy")
    setting: bool = Field(
        default=False, description="a disease that the whole cohort has or does not have"
    )
    left_out: Passage = Field(default="", description="why the asker agreed to leave it out")

    @property
    def quoted(self) -> str:
        """The part's wording, enclosed in quotation marks."""
        return quote_text(self.words)

    @property
    def about(self) -> frozenset[str]:
        """The variables that the part or its levels belong to."""
        return frozenset(key.partition("=")[0] for key in self.variables)

    @property
    def testable(self) -> bool:
        """True if the cohort can represent this part in a claim."""
        return bool(
            self.variables or self.endpoint or self.filters or self.open_to or self.setting
        ) and not (self.left_out or self.supply)


class Setting(View):
    """Disease studied in the question, in the graph and in the cohort."""

    asked: Name = ""
    graph: Name = ""
    cohort: Name = ""
    mismatches: tuple[str, ...] = ()


def find_lost_sides(parts: Sequence[Part]) -> list[Part]:
    """Find groups that cannot be represented or are not opposed to a level of their variable."""
    sides = [part for part in parts if not (part.negated or part.left_out)]
    exposed = [part for part in sides if part.role is PartRole.EXPOSURE]
    compared = [part for part in sides if part.role is PartRole.COMPARATOR]
    if not compared:  # levels of one variable, whether compared or taken together
        levels = [part for part in exposed if part.filters]
        return [it for at, it in enumerate(levels) if it.about in [o.about for o in levels[:at]]]
    about = frozenset[str]().union(*(part.about for part in exposed))
    lost = [part for part in sides if part in (*exposed, *compared) and not part.testable]
    return lost or [part for part in compared if not part.about & about]


def lacks_outcome(intent: Intent, parts: Sequence[Part]) -> bool:
    """Check whether parts are related to each other but to no outcome, and none is left open."""
    roles = [it.role for it in parts if not (it.negated or it.left_out or it.setting)]
    named = PartRole.ENDPOINT in [part.role for part in parts]
    return len(roles) > 1 and not named and intent in (Intent.RELATE, Intent.MODIFY, Intent.EXPLAIN)


class Question(View):
    """A parsed research question.

    `refusals` state why it cannot be answered as asked (off topic, contradictory, in an
    unreadable language, naming an endpoint that the cohort lacks); `notes` record the steps
    taken to read it (a spelling corrected, a word translated). `relevant` is the smallest
    relevant effect, if the user specifies it; every claim for the question uses it.
    """

    prompt: Passage
    language: str = "en"
    intent: Intent = Intent.DISCOVER
    direction: Side | None = None
    parts: tuple[Part, ...] = ()
    setting: Setting = Setting()
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    relevant: SmallestRelevant | None = Field(default=None, exclude_if=lambda given: given is None)

    @model_validator(mode="after")
    def _require_both_sides(self) -> Question:
        """Reject a question that is not refused but lacks a compared group or an outcome."""
        lost = find_lost_sides(self.parts)
        if lost and not self.refusals:
            raise ValueError(f"the comparison lacks {lost[0].quoted}; reject the question")
        if lacks_outcome(self.intent, self.parts) and not self.refusals:
            raise ValueError("the question lacks an outcome; reject it")
        return self

    def list_parts(self, role: PartRole | None = None) -> tuple[Part, ...]:
        """List the parts that the user named, optionally only those with one role."""
        return tuple(part for part in self.parts if role is None or part.role is role)

    def testable(self, role: PartRole) -> tuple[Part, ...]:
        """List a role's parts that the cohort can represent and the question does not exclude."""
        return tuple(part for part in self.list_parts(role) if part.testable and not part.negated)

    @property
    def unknown(self) -> tuple[Part, ...]:
        """Parts that the cohort cannot represent, or for which no name is known."""
        return tuple(part for part in self.parts if not part.testable)

    @property
    def endpoint(self) -> str:
        """The cohort endpoint named in the question, or empty text if none was named."""
        return next((part.endpoint for part in self.testable(PartRole.ENDPOINT)), "")

    @property
    def genes(self) -> tuple[str, ...]:
        """Symbols of measured genes linked to the question's parts, for the dictionary."""
        keys = (key for part in self.parts for key in part.variables)
        return tuple(
            dict.fromkeys(
                key.removeprefix("expression:") for key in keys if key.startswith("expression:")
            )
        )


class GraphName(View):
    """Name of a node in the knowledge graph."""

    name: Name
    kind: EntityType
    aliases: tuple[Name, ...] = ()
    degree: int = 0


class CohortWords(View):
    """The cohort's vocabulary: names and counts, never an outcome."""

    cohort: Name
    title: Name
    notes: tuple[Passage, ...] = ()
    variables: tuple[Variable, ...] = ()
    genes: tuple[str, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    slides: int = 0
    signature_genes: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class QuestionInput(View):
    """Input to the question agent: the prompt, and the names in the graph and cohort."""

    prompt: Passage
    cohort: CohortWords
    graph: tuple[GraphName, ...] = ()


class Asked(View):
    """A part as read from the question: its wording, role in the claim, and English name."""

    words: Name
    role: PartRole
    name: Name = Field(description="the concept in plain English, as a paper would write it")
    negated: bool = False
    level: Level | None = None
    corrected_from: Name = ""


class Reading(View):
    """The question as read; matches for each part are looked up, not taken from the reader."""

    language: str = "en"
    intent: Intent
    direction: Side | None = None
    parts: tuple[Asked, ...] = Field(default=(), max_length=16)
    notes: tuple[Words, ...] = ()
    refusals: tuple[Words, ...] = ()
