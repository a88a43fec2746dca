"""Technical readiness: the tools and packages that the analysis needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agents.feasibility.data_facts import find_held
from agents.feasibility.facts import FactList
from agents.feasibility.packages import find_package
from kg.literature.text import words
from validation.core.dictionary import DataDictionary
from validation.core.hypothesis import Hypothesis

if TYPE_CHECKING:
    from mcp_servers.spec import ToolSpec

STATISTICS = ("lifelines", "statsmodels", "scikit-learn", "pandas")
_IMAGE_MODALITY = "imaging:"


def tool_facts(
    facts: FactList,
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    tools: Sequence[ToolSpec],
) -> list[ToolSpec]:
    """Add the facts of step two: packages and tools that the analysis needs, and what is missing.

    Parameters
    ----------
    tools : tools of the registry; each exposure is matched to the tool that shares most words with
        it

    Returns
    -------
    ------- The tools that would have to run on slides, for the exposures with a matching tool.
    """
    for name in STATISTICS:
        package = find_package(name)
        facts.add(
            "tools",
            "analysis packages",
            package.sentence() if package else f"{name} is not installed.",
            "installed packages",
            found=package is not None,
            share=package.maturity if package else 0.0,
            blocking=False,
            remedy="" if package else f"Install {name}.",
        )
    needed: list[ToolSpec] = []
    for exposure in hypothesis.exposures:
        if not exposure.variable.startswith(_IMAGE_MODALITY):
            continue
        if find_held(dictionary, exposure.variable) is not None:
            facts.add(
                "tools",
                "image features",
                f"{exposure.label} is already measured; no slide has to be processed.",
                f"data dictionary of {dictionary.cohort}",
                found=True,
                share=1.0,
            )
            continue
        tool = _tool_for(exposure.label + " " + exposure.variable, tools)
        if tool is not None:
            needed.append(tool)
        facts.add(
            "tools",
            "image features",
            f"{exposure.label} would be computed by {tool.name} {tool.version}: {tool.summary}"
            if tool
            else f"No registered tool measures {exposure.label}.",
            "tool registry",
            found=tool is not None,
            share=1.0 if tool else 0.0,
            remedy=""
            if tool
            else f"Register a tool that measures {exposure.label}, or use a measured feature.",
        )
    return needed


def _tool_for(wanted: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """Find the tool whose name and summary share most words with `wanted`, at least two."""
    asked = set(words(wanted.replace("_", " ").replace(":", " "))) - {"imag", "density", "score"}
    best, most = None, 0
    for tool in tools:
        shared = len(asked & set(words(f"{tool.name} {tool.summary}".replace("_", " "))))
        if shared > most:
            best, most = tool, shared
    return best if most >= min(2, len(asked)) else None
