"""The summary: the statements and next steps for a busy reader (SAGE, Table 5)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agents.core.base import Agent, Resources, Role, View, prompt_file
from agents.core.types import ExpandedHypothesis
from agents.core.words import Words
from agents.findings.check import keep_held, refuse_findings
from agents.findings.types import RESULTS, Finding, Held, NextStep
from agents.interpreter.agent import Interpretation, ResultsView
from validation.results.results import Word


class NoveltyView(View):
    """One-line novelty verdict; no score if no record is relevant to the claim."""

    score: float | None
    threshold: float
    specious: bool
    summary: str


class FeasibilityView(View):
    """One-line feasibility verdict."""

    score: float
    verdict: Literal["feasible", "conditionally_feasible", "infeasible"]
    summary: str


class VerdictView(View):
    """The verdict with its reasons, limits and supporting statements, but no contract or code."""

    verdict: Word
    badge: str
    reasons: tuple[str, ...]
    limits: tuple[str, ...]
    held: tuple[Held, ...]
    simulated: bool = False


def verdict_view(results: ResultsView) -> VerdictView:
    """Return the part of the results shown to the summary agent."""
    return VerdictView(
        **{name: getattr(results, name) for name in VerdictView.model_fields},
    )


class SummaryInput(View):
    """The interpretation, the expanded hypothesis, the verdict, novelty and feasibility."""

    interpretation: Interpretation
    verdict: VerdictView
    expanded: ExpandedHypothesis
    novelty: NoveltyView
    feasibility: FeasibilityView


class Summary(View):
    """Summary for a busy reader: the findings and the next steps."""

    findings: tuple[Finding, ...] = Field(min_length=1, max_length=5)
    next_steps: tuple[NextStep, ...] = Field(default=(), max_length=6)
    remark: Words = ""


def summarize(given: SummaryInput, resources: Resources) -> Summary:
    """Select the interpretation's first results and the next steps that follow from them."""
    found = given.interpretation.findings
    results: list[Finding] = [
        item for item in found if item.kind in RESULTS and item.kind != "control"
    ]
    steps = [
        item.finding
        for item in given.verdict.held
        # Another endpoint is another question.
        if isinstance(item.finding, NextStep) and item.finding.design != "test_endpoint"
    ]
    return Summary(findings=tuple((results or list(found))[:3]), next_steps=tuple(steps[:6]))


def check_summary(given: SummaryInput, answer: Summary) -> list[str]:
    """Check that no statement contradicts the results."""
    return refuse_findings("findings", answer.findings, given.verdict.held) + refuse_findings(
        "next_steps", answer.next_steps, given.verdict.held
    )


def keep_true(given: SummaryInput, answer: Summary) -> Summary:
    """Drop statements that contradict the results, but keep at least one statement."""
    held = given.verdict.held
    kept = keep_held(answer.findings, held) or tuple(item.finding for item in held[:1])
    return answer.model_copy(
        update={"findings": kept, "next_steps": keep_held(answer.next_steps, held)}
    )


SUMMARY = Agent(
    name="summary",
    role=Role.MINI,
    reads=SummaryInput,
    returns=Summary,
    prompt=prompt_file(__file__, "summary.md"),
    rule=summarize,
    check=check_summary,
    mend=keep_true,
)
