"""The results interpreter, which selects the most important supported statements (SAGE, 3.3).

It explains the verdict that `validation.verdict.verdict` reached but cannot change it. It
selects and orders typed statements; SAGE writes their sentences.
"""

from __future__ import annotations

from pydantic import Field

from agents.core.base import Agent, Resources, Role, View, prompt_file
from agents.core.types import ExpandedHypothesis
from agents.core.words import Words
from agents.findings.check import keep_held, refuse_findings
from agents.findings.types import Finding, Held
from validation.results.results import Word


class KeyedNumber(View):
    """A number from `results.json` in the form quoted in the report."""

    key: str
    text: str
    label: str = ""


class ContractView(View):
    """The registered contract as sentences."""

    sha256: str
    statements: tuple[str, ...]


class ResultsView(View):
    """Aggregated results: numbers by key, verdict and supported statements, never a patient."""

    verdict: Word
    badge: str
    held: tuple[Held, ...]
    reasons: tuple[str, ...]
    limits: tuple[str, ...]
    numbers: tuple[KeyedNumber, ...]
    figures: tuple[str, ...]
    simulated: bool = False


class InterpreterInput(View):
    """The expanded hypothesis, the contract, the results and figures, but no ontology or paths."""

    expanded: ExpandedHypothesis
    contract: ContractView
    results: ResultsView
    pictures: tuple[str, ...] = Field(default=(), description="the figures as PNG, base64")


class Interpretation(View):
    """The most important statements, in order, with a feasibility score from 1 to 10."""

    findings: tuple[Finding, ...] = Field(min_length=1, max_length=24)
    feasibility_score: int = Field(ge=1, le=10)
    remark: Words = ""


SCORE = {"supported": 8, "inconclusive": 5, "small_effect": 4, "not_supported": 3}
HIGHEST_SCORE = {"supported": 10, "inconclusive": 7, "small_effect": 5, "not_supported": 5}
"""Highest feasibility score for clinical translation, by verdict."""
MOST = 24


def interpret(given: InterpreterInput, resources: Resources) -> Interpretation:
    """Select all supported statements except next steps and adjusted secondary comparisons."""
    found = [
        item.finding
        for item in given.results.held
        if item.finding.kind != "next_step"
        and not (item.finding.kind == "adjusted_effect" and item.finding.subject != "adjusted")
    ]
    return Interpretation(
        findings=tuple(found[:MOST]), feasibility_score=SCORE[given.results.verdict]
    )


def check_interpretation(given: InterpreterInput, answer: Interpretation) -> list[str]:
    """Check that no statement contradicts the results and that the score fits the verdict."""
    problems = refuse_findings("findings", answer.findings, given.results.held)
    highest = HIGHEST_SCORE[given.results.verdict]
    if answer.feasibility_score > highest:
        problems.append(
            f"feasibility_score must be at most {highest} if the verdict is {given.results.verdict}"
        )
    return problems


def keep_true(given: InterpreterInput, answer: Interpretation) -> Interpretation:
    """Drop statements that contradict the results, but keep at least one statement."""
    held = given.results.held
    score = min(answer.feasibility_score, HIGHEST_SCORE[given.results.verdict])
    kept = keep_held(answer.findings, held) or tuple(item.finding for item in held[:1])
    return answer.model_copy(update={"findings": kept, "feasibility_score": score})


INTERPRETER = Agent(
    name="interpreter",
    role=Role.HIGH,
    reads=InterpreterInput,
    returns=Interpretation,
    prompt=prompt_file(__file__, "interpreter.md"),
    rule=interpret,
    check=check_interpretation,
    mend=keep_true,
    images=lambda given: given.pictures,
)
