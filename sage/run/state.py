"""The state of a run, typed, and each node's own window on it.

A node's input schema lists the channels that it may read; LangGraph hands it nothing else. The
windows are the design's table of contexts, so widening one is a change of the design.
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
    """Result of a hypothesis's evaluation; the run folder holds the details."""

    hypothesis_id: str
    ended: Literal["tested", "infeasible", "abandoned"]
    revisions: int = 0
    novelty: float | None = None
    feasibility: float | None = None


class Tested(Strict):
    """A hypothesis whose analysis finished: what its interpretation needs."""

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
    """Path generation reads the prompt and its parts."""

    prompt: str
    question: Question


class OntologistIn(TypedDict):
    """The ontologist reads the question and the paths."""

    question: Question
    paths: list[ScoredPath]


class ScientistIn(TypedDict):
    """The scientist reads question and brief, and what it proposed and was asked for before."""

    question: Question
    brief: OntologyBrief
    drafts: list[Draft]
    wishes: list[str]


class ReviewIn(TypedDict):
    """The reviewer sees the drafts, and what was decided before."""

    drafts: list[Draft]
    decided: list[Decision]
    reviewed: list[ReviewedHypothesis]


class RedesignIn(TypedDict):
    """Redesign reads how evaluations ended, and which infeasible claims were redesigned before."""

    evaluations: list[Evaluation]
    redesigned: list[str]
    drafts: list[Draft]


class JudgeIn(TypedDict):
    """Judging reads which analyses finished."""

    tested: list[Tested]


class RankIn(TypedDict):
    """Ranking reads how the evaluations ended, and what was decided at review."""

    evaluations: list[Evaluation]
    decided: list[Decision]


class HypothesisState(TypedDict, total=False):
    """Channels of a hypothesis' evaluation."""

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
    """Channels of a tested hypothesis' interpretation."""

    expanded: ExpandedHypothesis
    contract_hash: str
    novelty: NoveltyView
    feasibility: FeasibilityView
    interpretation: Interpretation
    interpreted: Annotated[list[str], operator.add]


class ExpansionIn(TypedDict):
    """Expansion reads the reviewed hypothesis; in a revision, the critics' reasons."""

    reviewed_one: ReviewedHypothesis
    reasons: list[Words]
    round: int


class ExpandedIn(TypedDict):
    """Critics and feasibility read the expanded hypothesis."""

    expanded: ExpandedHypothesis
    round: int


class InstructionsIn(TypedDict):
    """Coding instructions read the expanded hypothesis and what feasibility demands of the plan."""

    expanded: ExpandedHypothesis
    feasibility: FeasibilityVerdict


class CodingIn(TypedDict):
    """The coding agent reads the hypothesis, its contract and tasks, and whether to retry."""

    expanded: ExpandedHypothesis
    contract_hash: str
    tasks: tuple[str, ...]
    coding_status: str


class InterpreterIn(TypedDict):
    """The interpreter reads the expanded hypothesis, the contract and, from files, the results."""

    expanded: ExpandedHypothesis
    contract_hash: str


class EscalationIn(TypedDict):
    """The escalation checkpoint knows which hypothesis it is about."""

    expanded: ExpandedHypothesis


class CloseIn(TypedDict):
    """Closing reads how far the evaluation came."""

    expanded: ExpandedHypothesis
    novelty: NoveltyView
    feasibility: FeasibilityVerdict
    contract_hash: str
    coding_status: str
    round: int


class SummaryIn(TypedDict):
    """The summary reads the interpretation, the expanded hypothesis, novelty and feasibility."""

    expanded: ExpandedHypothesis
    interpretation: Interpretation
    novelty: NoveltyView
    feasibility: FeasibilityView
