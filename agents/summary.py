"""The summary: claim, rationale, novelty, feasibility and outcome in a page (Table 5)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agents.base import Agent, Resources, Role, View, prompt_file
from agents.interpreter import Interpretation
from agents.types import ExpandedHypothesis
from agents.wording import KEYED, free_numbers


class NoveltyView(View):
    """The novelty verdict in a line."""

    score: float
    threshold: float
    specious: bool
    summary: str


class FeasibilityView(View):
    """The feasibility verdict in a line."""

    score: float
    verdict: Literal["feasible", "conditionally_feasible", "infeasible"]
    summary: str


class SummaryInput(View):
    """The interpretation, the expanded hypothesis and the two verdicts; no contract, no code."""

    interpretation: Interpretation
    expanded: ExpandedHypothesis
    novelty: NoveltyView
    feasibility: FeasibilityView


class Summary(View):
    """What a busy reader takes home."""

    title: str
    paragraphs: tuple[str, ...] = Field(min_length=1, max_length=5)
    next_steps: tuple[str, ...] = Field(min_length=1, max_length=6)


def summarize(given: SummaryInput, resources: Resources) -> Summary:
    """Put the pieces in order; nothing is added."""
    hypothesis = given.expanded.hypothesis
    parts = " and ".join(one.label for one in hypothesis.exposures)
    next_steps = ["Repeat the registered analysis in an independent cohort (`--replicate`)."]
    next_steps += [f"Design a test of {one}." for one in hypothesis.untested[:3]]
    return Summary(
        title=f"{parts[:1].upper()}{parts[1:]} and {hypothesis.endpoint}",
        paragraphs=(
            hypothesis.statement,
            f"{given.interpretation.headline} {given.novelty.summary} {given.feasibility.summary}",
            " ".join(given.interpretation.findings[:3]),
        ),
        next_steps=tuple(next_steps),
    )


def check_summary(given: SummaryInput, answer: Summary) -> list[str]:
    """Only keys that the interpretation used; no free numbers."""
    source = " ".join(
        [
            given.interpretation.headline,
            *given.interpretation.findings,
            *given.interpretation.assumptions,
            *given.interpretation.limits,
        ]
    )
    known = set(KEYED.findall(source)) | {"novelty.score", "feasibility.score"}
    allowed = f"{given.expanded.hypothesis.statement} {given.novelty.summary} " + (
        f"{given.feasibility.summary} {source} {' '.join(given.expanded.hypothesis.untested)}"
    )
    problems = []
    for text in (answer.title, *answer.paragraphs, *answer.next_steps):
        for found in KEYED.findall(text):
            if found not in known:
                problems.append(f"[[{found}]] is not in the interpretation")
        problems += [
            f'"{one}" is a bare number; write its key as [[key]]'
            for one in free_numbers(text)
            if one not in allowed
        ]
    return problems


SUMMARY = Agent(
    name="summary",
    role=Role.MINI,
    reads=SummaryInput,
    returns=Summary,
    prompt=prompt_file(__file__, "summary.md"),
    rule=summarize,
    check=check_summary,
)
