"""The feasibility agent."""

from __future__ import annotations

from agents.core.base import Agent, Role, prompt_file
from agents.feasibility.rule import assess, weights_of
from agents.feasibility.settings import FeasibilitySettings
from agents.feasibility.types import STEPS, FeasibilityInput, FeasibilityVerdict

_ROUNDING = 1.0


def check_feasibility(given: FeasibilityInput, answer: FeasibilityVerdict) -> list[str]:
    """List reasons to reject a verdict: steps, weights, arithmetic, evidence or blocking facts."""
    weights = weights_of(FeasibilitySettings())
    problems = []
    if tuple(step.name for step in answer.steps) != STEPS:
        return [f"give the four steps once each, in this order: {', '.join(STEPS)}"]
    known = {item.id: item for item in given.evidence}
    for step in answer.steps:
        if step.weight != weights[step.name]:
            problems.append(f"step {step.name} must have weight {weights[step.name]:g}")
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
    total = sum(step.weight * step.score for step in answer.steps) / sum(weights.values())
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
    """Check that covariates are demanded by their keys, so that the contract can adopt them."""
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
)
