"""The data agent: finds existing variables, and tools to compute missing ones (SAGE, 3.3.1).

It sees names and tools; only `validation.run.prepare.prepare` and the tools see the rows.
"""

from __future__ import annotations

import re

from pydantic import Field

from agents.core.base import Agent, Resources, Role, View, prompt_file


class ToolOffer(View):
    """A registered tool as the data agent sees it. `returns` are the numbers in its result."""

    name: str
    suite: str
    version: str
    summary: str
    returns: tuple[str, ...] = ()


class DataInput(View):
    """Wanted variables, those of the cohort, the number of slides, the available tools."""

    cohort: str
    wanted: tuple[str, ...]
    present: tuple[str, ...]
    slides: int = 0
    tools: tuple[ToolOffer, ...] = ()


class Extraction(View):
    """Compute `variable` for each slide as field `field` of tool `tool`."""

    variable: str
    tool: str
    field: str
    arguments: dict[str, str | int | float | bool] = Field(default_factory=dict)


class DataPlan(View):
    """Each wanted variable: found in the cohort, to be extracted, or not available."""

    found: tuple[str, ...] = ()
    extract: tuple[Extraction, ...] = ()
    missing: tuple[str, ...] = ()


def resolve(given: DataInput, resources: Resources) -> DataPlan:
    """Use the cohort's variables; for missing imaging variables, find a tool that returns them."""
    present = set(given.present)
    found, extract, missing = [], [], []
    for key in given.wanted:
        if key in present:
            found.append(key)
        elif given.slides and key.startswith("imaging:") and (best := _tool_for(key, given.tools)):
            extract.append(Extraction(variable=key, tool=best[0], field=best[1]))
        else:
            missing.append(key)
    return DataPlan(found=tuple(found), extract=tuple(extract), missing=tuple(missing))


def _tool_for(key: str, tools: tuple[ToolOffer, ...]) -> tuple[str, str] | None:
    """Find the tool and result field that contain every word of the variable's name."""
    words = _words(key.split(":", 1)[1])
    fits = [
        (len(_words(field) - words), tool.name, field)
        for tool in tools
        for field in tool.returns
        if words <= _words(field) | _words(tool.name) and words & _words(field)
    ]
    return min(fits)[1:] if fits else None


def _words(name: str) -> set[str]:
    words = {word for word in re.split(r"[^a-z0-9]+", name.lower()) if word}
    # A count per area is a density, whatever the field is called.
    return (words - {"per", "mm2"}) | {"density"} if {"per", "mm2"} <= words else words


def check_data(given: DataInput, plan: DataPlan) -> list[str]:
    """Check that every wanted variable occurs once, with registered tools and no false "found"."""
    problems = []
    tools = {tool.name: tool for tool in given.tools}
    named = [*plan.found, *(extraction.variable for extraction in plan.extract), *plan.missing]
    problems += [f'"{name}" was not requested' for name in named if name not in given.wanted]
    problems += [f'"{name}" has no decision' for name in given.wanted if name not in named]
    problems += [f'the cohort has no "{name}"' for name in plan.found if name not in given.present]
    problems += [
        f'"{name}" is not missing: the cohort has it'
        for name in plan.missing
        if name in given.present
    ]
    if len(set(named)) != len(named):
        problems.append("a variable is listed twice")
    for exposure in plan.extract:
        if exposure.tool not in tools:
            problems.append(f'tool "{exposure.tool}" is not registered')
        elif exposure.field not in tools[exposure.tool].returns:
            returns = ", ".join(tools[exposure.tool].returns)
            problems.append(
                f'tool "{exposure.tool}" returns no "{exposure.field}"; it returns: {returns}'
            )
        if not given.slides:
            problems.append(f'"{exposure.variable}" cannot be extracted: the cohort has no slides')
    return problems


DATA_AGENT = Agent(
    name="data_agent",
    role=Role.MINI,
    reads=DataInput,
    returns=DataPlan,
    prompt=prompt_file(__file__, "data.md"),
    rule=resolve,
    check=check_data,
)
