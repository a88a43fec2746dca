"""Coding instructions: the contract's specifications beyond the hypothesis (SAGE, 3.3 and E.5).

The contract itself is drafted from the hypothesis by `validation.contracts.contract`;
this agent settles what the hypothesis leaves open before any outcome is read.
"""

from __future__ import annotations

from pydantic import Field

from agents.core.base import Agent, Resources, Role, View, prompt_file
from agents.core.types import DictionaryView, ExpandedHypothesis
from validation.core.hypothesis import Hypothesis


class ToolCard(View):
    """One-line summary of a registered tool."""

    name: str
    summary: str
    suite: str


class CodingInstructionsInput(View):
    """The expanded hypothesis, the data dictionary and the tool registry; nothing earlier."""

    expanded: ExpandedHypothesis
    dictionary: DictionaryView
    tools: tuple[ToolCard, ...] = ()


class CodingInstructions(View):
    """Choices to register. Every name is a key in the data dictionary or the registry."""

    covariates: tuple[str, ...] = Field(max_length=6)
    secondary_endpoints: tuple[str, ...] = Field(default=(), max_length=3)
    negative_control_endpoint: str | None = None
    tools: tuple[str, ...] = Field(default=(), max_length=6)


def instruct(given: CodingInstructionsInput, resources: Resources) -> CodingInstructions:
    """Register the hypothesis's own covariates and endpoints."""
    hypothesis = given.expanded.hypothesis
    known = given.dictionary.keys()
    return CodingInstructions(
        covariates=tuple(key for key in hypothesis.covariates if key in known),
        secondary_endpoints=hypothesis.secondary_endpoints,
    )


def check_instructions(given: CodingInstructionsInput, answer: CodingInstructions) -> list[str]:
    """Check that the instructions use only known variables, endpoints and tools."""
    problems = []
    keys, endpoints = (
        given.dictionary.keys(),
        {endpoint.key for endpoint in given.dictionary.endpoints},
    )
    tools = {tool.name for tool in given.tools}
    exposed = {exposure.variable for exposure in given.expanded.hypothesis.exposures}
    for key in answer.covariates:
        if key not in keys:
            problems.append(f'covariate "{key}" is not in the data dictionary')
        elif key in exposed:
            problems.append(f'covariate "{key}" is an exposure of the hypothesis')
        elif key in given.expanded.hypothesis.strata:
            problems.append(f'covariate "{key}" is already a stratum of the hypothesis')
    negative = answer.negative_control_endpoint
    for key in (*answer.secondary_endpoints, *([negative] if negative else [])):
        if key not in endpoints:
            problems.append(f'endpoint "{key}" is not one of {sorted(endpoints)}')
    primary = given.expanded.hypothesis.endpoint
    if primary in answer.secondary_endpoints:
        problems.append("the primary endpoint cannot also be secondary")
    negative = negative or given.expanded.hypothesis.negative_endpoint
    if negative in (primary, *answer.secondary_endpoints):
        problems.append(
            f'negative_control_endpoint "{negative}" is an endpoint that the exposure should affect'
        )
    kinds = {endpoint.key: endpoint.kind for endpoint in given.dictionary.endpoints}
    if negative in kinds and kinds[negative] != kinds.get(primary):
        problems.append(
            f'negative_control_endpoint "{negative}" is not of the same kind as "{primary}"'
        )
    problems += [f'tool "{name}" is not registered' for name in answer.tools if name not in tools]
    return problems


def apply_instructions(hypothesis: Hypothesis, answer: CodingInstructions) -> Hypothesis:
    """Return the hypothesis to be registered, with the chosen covariates and endpoints."""
    settled = {
        "covariates": answer.covariates,
        "secondary_endpoints": answer.secondary_endpoints,
        "negative_endpoint": answer.negative_control_endpoint or hypothesis.negative_endpoint,
    }
    return type(hypothesis).model_validate(hypothesis.model_dump() | settled)


CODING_INSTRUCTIONS = Agent(
    name="coding_instructions",
    role=Role.HIGH,
    reads=CodingInstructionsInput,
    returns=CodingInstructions,
    prompt=prompt_file(__file__, "coding_instructions.md"),
    rule=instruct,
    check=check_instructions,
    spare=(
        "dictionary.notes",
        "dictionary.genes",
        "tools",
        "dictionary.variables",
    ),
)
