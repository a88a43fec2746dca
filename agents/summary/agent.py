"""The summary: claim, rationale, novelty, feasibility and outcome in a page (Table 5)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agents.core.base import Agent, Resources, Role, View, Wording, prompt_file
from agents.core.types import ExpandedHypothesis
from agents.interpreter.agent import Interpretation, ResultsView, names_of, verdict_sentence
from agents.prose.check import Problem, check_result, own_sentence, replace_refused
from agents.prose.facts import ResultFacts
from agents.prose.reading import sentences
from agents.prose.wording import KEYED, free_numbers
from validation.core.hypothesis import Hypothesis


class NoveltyView(View):
    """The novelty verdict in a line; no score where no record is relevant to the claim."""

    score: float | None
    threshold: float
    specious: bool
    summary: str


class FeasibilityView(View):
    """The feasibility verdict in a line."""

    score: float
    verdict: Literal["feasible", "conditionally_feasible", "infeasible"]
    summary: str


class VerdictView(View):
    """The verdict with its reasons, limits and the typed facts behind it; no contract, no code."""

    verdict: Literal["supported", "not_supported", "inconclusive"]
    badge: str
    reasons: tuple[str, ...]
    limits: tuple[str, ...]
    facts: ResultFacts
    simulated: bool = False


def verdict_view(results: ResultsView) -> VerdictView:
    """The part of the results that the summary reads."""
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
    """Summary for a busy reader."""

    title: str
    paragraphs: tuple[str, ...] = Field(min_length=1, max_length=5)
    next_steps: tuple[str, ...] = Field(min_length=1, max_length=6)


CLAIM_TESTED = "Claim tested: "
"""What stands before the hypothesis, which is a claim under any verdict and no finding."""


def summarize(given: SummaryInput, resources: Resources) -> Summary:
    """Put the pieces in order; nothing is added."""
    return write_summary(given)


def title_of(hypothesis: Hypothesis) -> str:
    """Title of a report: the parts of the claim, and no statement about them.

    A title of a model's own could state a result in two nouns ("Death by collagen").
    """
    parts = " and ".join(exposure.label for exposure in hypothesis.exposures)
    return f"{parts[:1].upper()}{parts[1:]} and {hypothesis.endpoint}"


def write_summary(given: SummaryInput) -> Summary:
    """SAGE's own summary."""
    hypothesis = given.expanded.hypothesis
    next_steps = ["Repeat the registered analysis in an independent cohort (--replicate)."]
    next_steps += [f"Design a test of {name}." for name in hypothesis.untested[:3]]
    return Summary(
        title=title_of(hypothesis),
        paragraphs=(
            f"{CLAIM_TESTED}{hypothesis.statement}",
            f"{given.interpretation.headline} {given.novelty.summary} {given.feasibility.summary}",
            " ".join(given.interpretation.findings[:3]),
        ),
        next_steps=tuple(next_steps),
    )


def _interpreted(given: SummaryInput) -> tuple[str, ...]:
    said = given.interpretation
    return (said.headline, *said.findings, *said.assumptions, *said.limits)


def check_summary(given: SummaryInput, answer: Summary) -> list[str]:
    """Only keys that the interpretation used; no free numbers."""
    return [
        str(problem)
        for text in (answer.title, *answer.paragraphs, *answer.next_steps)
        for problem in _number_problems(given, text)
    ]


def _number_problems(given: SummaryInput, text: str) -> list[Problem]:
    source = " ".join(_interpreted(given))
    known = set(KEYED.findall(source)) | {"novelty.score", "feasibility.score"}
    allowed = f"{given.expanded.hypothesis.statement} {given.novelty.summary} " + (
        f"{given.feasibility.summary} {source} {' '.join(given.expanded.hypothesis.untested)}"
    )
    problems = [
        Problem(text, "it names a key that the interpretation does not hold", found)
        for found in KEYED.findall(text)
        if found not in known
    ]
    problems += [
        Problem(text, "it states a number without its key", number)
        for number in free_numbers(text)
        if number not in allowed
    ]
    return problems


def find_problems(given: SummaryInput, text: str, *, results_only: bool = False) -> list[Problem]:
    """Problems of a text of the summary; empty if the facts support it."""
    hypothesis, facts = given.expanded.hypothesis, given.verdict.facts
    endpoints = tuple(name for names in facts.endpoints.values() for name in names)
    return _number_problems(given, text) + check_result(
        text,
        facts,
        names=names_of(hypothesis, endpoints),
        quoted=(
            hypothesis.statement,
            f"{CLAIM_TESTED}{hypothesis.statement}",
            given.novelty.summary,
            given.feasibility.summary,
            *given.verdict.reasons,
            *given.verdict.limits,
            *facts.sentences(),
            *_interpreted(given),
            *write_summary(given).next_steps,
        ),
        results_only=results_only,
    )


def unborne(given: SummaryInput, answer: Summary) -> list[str]:
    """List sentences that the facts do not support."""
    problems = [
        problem
        for each in answer.paragraphs
        for problem in find_problems(given, each, results_only=True)
    ]
    for text in (answer.title, *answer.next_steps):
        problems += find_problems(given, text)
    return [str(problem) for problem in problems]


def in_own_words(given: SummaryInput, answer: Summary) -> Summary:
    """The summary without its refused sentences; SAGE's own say the verdict in their place."""
    plain = write_summary(given)

    def judge(text: str) -> list[Problem]:
        return find_problems(given, text)

    paragraphs, problems = [], judge(answer.title)
    for paragraph in answer.paragraphs:
        found = {
            sentence: find_problems(given, sentence, results_only=True)
            for sentence in sentences(paragraph)
        }
        problems += [problem for each in found.values() for problem in each]
        if rest := " ".join(sentence for sentence, each in found.items() if not each):
            paragraphs.append(rest)
    if problems:
        verdict = verdict_sentence(given.verdict.verdict, simulated=given.verdict.simulated)
        paragraphs = [own_sentence(verdict, problems), *paragraphs][:5]
    return Summary(
        title=plain.title if judge(answer.title) else answer.title,
        paragraphs=tuple(paragraphs),
        next_steps=replace_refused(answer.next_steps, plain.next_steps, judge),
    )


SUMMARY = Agent(
    name="summary",
    role=Role.MINI,
    reads=SummaryInput,
    returns=Summary,
    prompt=prompt_file(__file__, "summary.md"),
    rule=summarize,
    check=check_summary,
    wording=Wording(problems=unborne, replace=in_own_words),
)
