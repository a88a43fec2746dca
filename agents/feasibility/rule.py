"""The feasibility rule: weights of Table 6 over checks that each cite gathered facts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.core.base import Resources
from agents.feasibility.settings import FeasibilitySettings
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

_TITLES: dict[StepName, str] = {
    "data": "data reality",
    "tools": "technical readiness",
    "logic": "logic and falsifiability",
    "resources": "resources",
}
_UNSHOWN = 0.5
"""Score of a step for which no source could be queried: neither credit nor refusal."""


def assess(given: FeasibilityInput, resources: Resources) -> FeasibilityVerdict:
    """Weigh the gathered facts with the default settings (see `judge`)."""
    return judge(given.evidence, FeasibilitySettings())


def judge(evidence: Sequence[EvidenceItem], settings: FeasibilitySettings) -> FeasibilityVerdict:
    """Score the four steps and decide.

    A step's score is the mean share of its checks; facts that could not be obtained (a service that
    did not answer) are omitted and listed, never counted as found. The total is the mean of the
    steps weighted 35, 25, 25, 15 (SAGE, Table 6). A failed blocking fact makes the hypothesis
    infeasible whatever the total, and so does a total below `conditional_from`. Otherwise, the
    hypothesis is feasible if the total is at least `feasible_from` and nothing failed; if not, it
    is conditionally feasible, with the remedies of the failed facts as conditions.
    """
    weights = weights_of(settings)
    steps = tuple(_step(name, weights[name], evidence) for name in STEPS)
    score = sum(step.weight * step.score for step in steps) / sum(weights.values())
    failed = [item for item in evidence if item.found is False]
    blocked = [item for item in failed if item.blocking]
    remedies = {item.remedy: item.id for item in reversed(failed) if item.remedy}
    needed = [item for item in failed if item.blocking or remedies.get(item.remedy) == item.id]
    verdict: Verdict
    if blocked or score < settings.conditional_from:
        verdict = "infeasible"
    elif score >= settings.feasible_from and not needed:
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
    """Read the facts that were gathered for a hypothesis."""
    return tuple(map(EvidenceItem.model_validate, read_json(path)))


def list_conditions(found: FeasibilityVerdict, evidence: Sequence[EvidenceItem]) -> tuple[str, ...]:
    """List what would make the hypothesis feasible, as sentences; empty if it is feasible."""
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


def weights_of(settings: FeasibilitySettings) -> dict[StepName, float]:
    """Return the weights of the four steps."""
    return {
        "data": settings.data_weight,
        "tools": settings.tools_weight,
        "logic": settings.logic_weight,
        "resources": settings.resources_weight,
    }


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
    """Describe the verdict with its score and the step scores in a sentence."""
    parts = ", ".join(f"{_TITLES[step.name]} {step.score:.0f}" for step in found.steps)
    return f"{found.verdict.replace('_', ' ').capitalize()}: {found.score:.0f} of 100 ({parts})."
