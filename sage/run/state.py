"""The typed state of a run; `sage.run.graph` lists the parts that each node sees."""

from __future__ import annotations

import operator
from typing import Annotated, Literal, TypedDict

from pydantic import Field

from agents.core.types import Draft, ExpandedHypothesis, OntologyBrief, ReviewedHypothesis
from agents.core.words import Words
from agents.feasibility.types import FeasibilityVerdict
from agents.interpreter.agent import Interpretation
from agents.question.types import Question
from agents.summary.agent import FeasibilityView, NoveltyView
from kg.types import ScoredPath
from sage.core.models import Strict
from validation.core.hypothesis import Hypothesis

Action = Literal["approve", "edit", "reject", "another"]


class Decision(Strict):
    """A reviewer's decision about a hypothesis."""

    hypothesis_id: str
    action: Action
    edited: Hypothesis | None = None
    comment: str = ""
    automatic: bool = False
    reviewers: tuple[str, ...] = ()


class ReviewAnswer(Strict):
    """All decisions made during a visit to the review checkpoint."""

    decisions: tuple[Decision, ...] = Field(min_length=1)


class Evaluation(Strict):
    """Result of evaluating a hypothesis; the run folder contains the details."""

    hypothesis_id: str
    ended: Literal["tested", "infeasible", "abandoned"]
    revisions: int = 0
    novelty: float | None = None
    feasibility: float | None = None


class Tested(Strict):
    """A hypothesis whose analysis finished, with the input for its interpretation."""

    expanded: ExpandedHypothesis
    contract_hash: str
    round: int
    novelty: NoveltyView
    feasibility: FeasibilityView


class RunState(TypedDict, total=False):
    """Channels of the whole run."""

    prompt: str
    question: Question
    paths: list[ScoredPath]
    brief: OntologyBrief
    drafts: list[Draft]
    wishes: list[str]
    redesigned: list[str]
    decided: list[Decision]
    reviewed: list[ReviewedHypothesis]
    evaluations: Annotated[list[Evaluation], operator.add]
    tested: Annotated[list[Tested], operator.add]
    interpreted: Annotated[list[str], operator.add]
    ranking: list[str]


class HypothesisState(TypedDict, total=False):
    """Channels for evaluating a hypothesis."""

    reviewed_one: ReviewedHypothesis
    reasons: list[Words]
    round: int
    expanded: ExpandedHypothesis
    novelty: NoveltyView
    feasibility: FeasibilityVerdict
    contract_hash: str
    coding_status: str
    evaluations: Annotated[list[Evaluation], operator.add]
    tested: Annotated[list[Tested], operator.add]


class InterpretationState(TypedDict, total=False):
    """Channels for interpreting a tested hypothesis."""

    expanded: ExpandedHypothesis
    contract_hash: str
    novelty: NoveltyView
    feasibility: FeasibilityView
    interpretation: Interpretation
    interpreted: Annotated[list[str], operator.add]
