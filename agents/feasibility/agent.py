"""The feasibility agent: weights from Table 6 over checks that each cite gathered facts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.core.base import Agent, Resources, Role, prompt_file
from agents.feasibility.types import (
    STEPS,
    Check,
    EvidenceItem,
    FeasibilityInput,
    FeasibilityVerdict,
    Step,
    StepName,
    Verdict,
)
from sage.core.files import read_json

WEIGHTS: dict[StepName, float] = {"data": 35.0, "tools": 25.0, "logic": 25.0, "resources": 15.0}
"""Weights of the steps (SAGE, Table 6)."""
FEASIBLE_FROM = 70.0
"""Minimum score for a feasible verdict, provided no condition is open."""
CONDITIONAL_FROM = 50.0
"""Minimum score for a conditional verdict; lower scores are infeasible."""
_TITLES: dict[StepName, str] = {
    "data": "data reality",
    "tools": "technical readiness",
    "logic": "logic and falsifiability",
    "resources": "resources",
}
_UNSHOWN = 0.5
"""Neutral score for a step for which no source could be queried."""


def assess(given: FeasibilityInput, resources: Resources) -> FeasibilityVerdict:
    """Assess feasibility from the gathered facts (see `judge`)."""
    return judge(given.evidence)


def judge(evidence: Sequence[EvidenceItem]) -> FeasibilityVerdict:
    """Score the four steps and reach a verdict.

    A step's score is the mean share over its checks; facts that could not be obtained (for
    example, because a service did not answer) are omitted and listed, never counted as found.
    The total is the mean over the steps weighted 35, 25, 25, 15 (SAGE, Table 6). A failed
    blocking fact makes the hypothesis infeasible regardless of the total, and so does a total
    below `CONDITIONAL_FROM`. Otherwise, the hypothesis is feasible if the total is at least
    `FEASIBLE_FROM` and nothing failed; if not, it is conditionally feasible, with the
    remedies for the failed facts as conditions.
    """
    steps = tuple(_step(name, WEIGHTS[name], evidence) for name in STEPS)
    score = sum(step.weight * step.score for step in steps) / sum(WEIGHTS.values())
    failed = [item for item in evidence if item.found is False]
    blocked = [item for item in failed if item.blocking]
    remedies = {item.remedy: item.id for item in reversed(failed) if item.remedy}
    needed = [item for item in failed if item.blocking or remedies.get(item.remedy) == item.id]
    verdict: Verdict
    if blocked or score < CONDITIONAL_FROM:
        verdict = "infeasible"
    elif score >= FEASIBLE_FROM and not needed:
        verdict = "feasible"
    else:
        verdict = "conditionally_feasible"
    return FeasibilityVerdict(
        steps=steps,
        score=score,
        verdict=verdict,
        conditions=tuple(item.id for item in sorted(needed, key=lambda item: not item.blocking)),
        adjust_for=tuple(dict.fromkeys(key for item in failed for key in item.adjust_for))[:6],
    )


def read_evidence(path: Path) -> tuple[EvidenceItem, ...]:
    """Read the facts gathered for a hypothesis."""
    return tuple(map(EvidenceItem.model_validate, read_json(path)))


def list_conditions(found: FeasibilityVerdict, evidence: Sequence[EvidenceItem]) -> tuple[str, ...]:
    """List the conditions for feasibility as sentences; empty if the hypothesis is feasible."""
    if found.verdict == "feasible":
        return ()
    named = [item for item in evidence if item.id in found.conditions]
    named.sort(key=lambda item: found.conditions.index(item.id))
    weakest = min(found.steps, key=lambda step: step.score)
    said = [
        " ".join(filter(None, (item.statement if item.blocking else "", item.remedy)))
        for item in named
    ]
    return tuple(text or item.statement for text, item in zip(said, named, strict=True)) or (
        f"Strengthen {_TITLES[weakest.name]}, the weakest step.",
    )


def _step(name: StepName, weight: float, evidence: Sequence[EvidenceItem]) -> Step:
    mine = [item for item in evidence if item.step == name]
    checks = []
    for title in dict.fromkeys(item.check for item in mine):
        facts = [item for item in mine if item.check == title]
        known = [fact for fact in facts if fact.found is not None]
        passed = all(item.found for item in known) if known else None
        share = sum(item.share for item in known) / len(known) if known else _UNSHOWN
        checks.append(
            Check(
                name=title,
                share=share,
                passed=passed,
                evidence=tuple(fact.id for fact in facts),
            )
        )
    made = [check for check in checks if check.passed is not None]
    score = 100.0 * (sum(check.share for check in made) / len(made) if made else _UNSHOWN)
    return Step(name=name, weight=weight, score=score, checks=tuple(checks))


def describe_verdict(found: FeasibilityVerdict) -> str:
    """Describe the verdict with its total and step scores in a sentence."""
    parts = ", ".join(f"{_TITLES[step.name]} {step.score:.0f}" for step in found.steps)
    return f"{found.verdict.replace('_', ' ').capitalize()}: {found.score:.0f} of 100 ({parts})."


_ROUNDING = 1.0


def check_feasibility(given: FeasibilityInput, answer: FeasibilityVerdict) -> list[str]:
    """List reasons to reject a verdict: steps, weights, arithmetic, evidence or blocking facts."""
    problems = []
    if tuple(step.name for step in answer.steps) != STEPS:
        return [f"give the four steps once each, in this order: {', '.join(STEPS)}"]
    known = {item.id: item for item in given.evidence}
    for step in answer.steps:
        if step.weight != WEIGHTS[step.name]:
            problems.append(f"step {step.name} must have weight {WEIGHTS[step.name]:g}")
        for check in step.checks:
            if not check.evidence:
                problems.append(f'check "{check.name}" of {step.name} cites no evidence')
            problems += [
                f'check "{check.name}" cites {name}, which was not gathered'
                for name in check.evidence
                if name not in known
            ]
            found = {known[name].found for name in check.evidence if name in known}
            if check.passed and found and True not in found:
                problems.append(f'check "{check.name}" passed, but none of its facts was found')
    total = sum(step.weight * step.score for step in answer.steps) / sum(WEIGHTS.values())
    if abs(total - answer.score) > _ROUNDING:
        problems.append(f"score is {answer.score:g}, but the weighted steps give {total:.1f}")
    blocked = [item for item in given.evidence if item.blocking and item.found is False]
    if blocked and answer.verdict != "infeasible":
        problems.append(f"{blocked[0].id} is blocking: the verdict must be infeasible")
    failed = [item.id for item in given.evidence if item.found is False]
    if answer.verdict != "feasible" and failed and not answer.conditions:
        problems.append(f"list in `conditions` which of {', '.join(failed)} must be remedied")
    problems += [
        f"condition {name} is not a fact that failed or is unknown"
        for name in answer.conditions
        if name not in known or known[name].found
    ]
    return problems + _demand_problems(given, answer)


def _demand_problems(given: FeasibilityInput, answer: FeasibilityVerdict) -> list[str]:
    """Check that required covariates are named by key, so that the contract can adopt them."""
    keys = given.dictionary.keys()
    exposed = {exposure.variable for exposure in given.expanded.hypothesis.exposures}
    return [
        f'adjust_for contains "{key}", which is '
        + ("an exposure" if key in exposed else "not in the data dictionary")
        for key in answer.adjust_for
        if key in exposed or key not in keys
    ]


FEASIBILITY = Agent(
    name="feasibility",
    role=Role.MINI,
    reads=FeasibilityInput,
    returns=FeasibilityVerdict,
    prompt=prompt_file(__file__, "feasibility.md"),
    rule=assess,
    check=check_feasibility,
    spare=(
        "dictionary.notes",
        "dictionary.genes",
        "dictionary.variables",
    ),
)
