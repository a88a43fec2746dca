"""The typed state of a run, and the part of it that each node sees.

A node's input schema lists the channels that it may read; LangGraph passes it nothing else. These
schemas implement the design's table of contexts, so widening one is a design change.
"""

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


class Decision(Strict):
    """A reviewer's decision about a hypothesis."""

    hypothesis_id: str
    action: Literal["approve", "edit", "reject", "another"]
    edited: Hypothesis | None = None
    comment: str = ""
    automatic: bool = False


class ReviewAnswer(Strict):
    """All decisions of a visit to the review checkpoint."""

    decisions: tuple[Decision, ...] = Field(min_length=1)


class Evaluation(Strict):
    """Result of a hypothesis's evaluation; the run folder contains the details."""

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


class PathGenerationIn(TypedDict):
    """Input of path generation: the prompt and its parts."""

    prompt: str
    question: Question


class OntologistIn(TypedDict):
    """Input of the ontologist: the question and the paths."""

    question: Question
    paths: list[ScoredPath]


class ScientistIn(TypedDict):
    """Input of the scientist: question, brief, earlier proposals, and reviewers' requests."""

    question: Question
    brief: OntologyBrief
    drafts: list[Draft]
    wishes: list[str]


class ReviewIn(TypedDict):
    """Input of the review: the drafts, and the earlier decisions."""

    drafts: list[Draft]
    decided: list[Decision]
    reviewed: list[ReviewedHypothesis]


class RedesignIn(TypedDict):
    """Input of redesign: the ends of evaluations, and the claims that were already redesigned."""

    evaluations: list[Evaluation]
    redesigned: list[str]
    drafts: list[Draft]


class JudgeIn(TypedDict):
    """Input of the judge: the finished analyses."""

    tested: list[Tested]


class RankIn(TypedDict):
    """Input of the ranking: the ends of evaluations, and the review decisions."""

    evaluations: list[Evaluation]
    decided: list[Decision]


class HypothesisState(TypedDict, total=False):
    """Channels of a hypothesis's evaluation."""

    reviewed_one: ReviewedHypothesis
    reasons: list[Words]
    round: int
    expanded: ExpandedHypothesis
    novelty: NoveltyView
    feasibility: FeasibilityVerdict
    tasks: tuple[str, ...]
    contract_hash: str
    coding_status: str
    evaluations: Annotated[list[Evaluation], operator.add]
    tested: Annotated[list[Tested], operator.add]


class InterpretationState(TypedDict, total=False):
    """Channels of a tested hypothesis's interpretation."""

    expanded: ExpandedHypothesis
    contract_hash: str
    novelty: NoveltyView
    feasibility: FeasibilityView
    interpretation: Interpretation
    interpreted: Annotated[list[str], operator.add]


class ExpansionIn(TypedDict):
    """Input of expansion: the reviewed hypothesis and, in a revision, the critics' reasons."""

    reviewed_one: ReviewedHypothesis
    reasons: list[Words]
    round: int


class ExpandedIn(TypedDict):
    """Input of critics and feasibility: the expanded hypothesis."""

    expanded: ExpandedHypothesis
    round: int


class InstructionsIn(TypedDict):
    """Input of coding instructions: the expanded hypothesis, and feasibility's requirements."""

    expanded: ExpandedHypothesis
    feasibility: FeasibilityVerdict


class CodingIn(TypedDict):
    """Input of the coding agent: hypothesis, contract and tasks, and whether to retry."""

    expanded: ExpandedHypothesis
    contract_hash: str
    tasks: tuple[str, ...]
    coding_status: str


class InterpreterIn(TypedDict):
    """Input of the interpreter: the expanded hypothesis and contract; results come from files."""

    expanded: ExpandedHypothesis
    contract_hash: str


class EscalationIn(TypedDict):
    """Input of the escalation checkpoint: the hypothesis that it concerns."""

    expanded: ExpandedHypothesis


class CloseIn(TypedDict):
    """Input of closing: the progress of the evaluation."""

    expanded: ExpandedHypothesis
    novelty: NoveltyView
    feasibility: FeasibilityVerdict
    contract_hash: str
    coding_status: str
    round: int


class SummaryIn(TypedDict):
    """Input of the summary: interpretation, expanded hypothesis, novelty and feasibility."""

    expanded: ExpandedHypothesis
    interpretation: Interpretation
    novelty: NoveltyView
    feasibility: FeasibilityView
