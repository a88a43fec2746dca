"""Resources: how long the analysis would take on this machine, and whether it fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agents.feasibility.facts import FactList
from agents.feasibility.settings import FeasibilitySettings
from validation.core.dictionary import DataDictionary
from validation.core.hypothesis import Hypothesis

if TYPE_CHECKING:
    from agents.feasibility.types import Machine
    from mcp_servers.spec import ToolSpec

_ANALYSIS_SECONDS = 60.0
_PER_THOUSAND_PATIENTS = 60.0
"""Seconds for statistics with controls: 60, plus 60 per thousand patients (our upper bounds)."""

_UNKNOWN_TOOL_SECONDS = 120.0


def resource_facts(
    facts: FactList,
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    tools: Sequence[ToolSpec],
    machine: Machine,
    settings: FeasibilitySettings,
) -> None:
    """Add the facts of step four; slide work uses all cores, and tools state their own costs.

    Parameters
    ----------
    tools : tools that would have to run on slides, with seconds per slide and MiB; 120 s per slide
        are assumed if a tool states none
    machine : cores, memory in MiB, and whether there is a GPU
    """
    seconds = _ANALYSIS_SECONDS + _PER_THOUSAND_PATIENTS * dictionary.n_patients / 1000.0
    costs = []
    for tool in tools:
        stated = tool.resources.seconds_per_item
        each = _UNKNOWN_TOOL_SECONDS if stated is None else stated
        total = each * max(1, dictionary.slides) / max(1, machine.cores)
        seconds += total
        costs.append(
            f"{tool.name} {each:g} s{' (assumed)' if stated is None else ''} per slide, "
            f"{dictionary.slides} slides"
        )
    hours = seconds / 3600.0
    allowed = hours <= settings.hours_allowed
    span = settings.hours_allowed - settings.hours_comfortable
    facts.add(
        "resources",
        "runtime",
        f"About {hours:.1f} h on {machine.cores} cores"
        + (f" ({'; '.join(costs)})." if costs else " (statistics alone)."),
        "tool registry" if costs else "estimate",
        found=allowed,
        share=1.0 - max(0.0, hours - settings.hours_comfortable) / span,
        value=hours,
        unit="hours",
        blocking=True,
        remedy=""
        if allowed
        else "Use fewer slides, more cores, or a feature that is already measured.",
    )
    for tool in tools:
        lacks_gpu = tool.resources.gpu == "required" and not machine.gpu
        facts.add(
            "resources",
            "accelerator",
            f"{tool.name}: GPU {tool.resources.gpu}; this machine has "
            f"{'one' if machine.gpu else 'none'}.",
            "tool registry",
            found=not lacks_gpu,
            share=0.0 if lacks_gpu else 1.0,
            blocking=True,
            remedy=f"Run {tool.name} on a machine with a GPU." if lacks_gpu else "",
        )
        fits = tool.resources.memory_mb <= machine.memory_mb
        facts.add(
            "resources",
            "memory",
            f"{tool.name} needs {tool.resources.memory_mb} MiB of {machine.memory_mb} MiB.",
            "tool registry",
            found=fits,
            share=1.0 if fits else 0.0,
            blocking=True,
            remedy=""
            if fits
            else f"Run {tool.name} where {tool.resources.memory_mb} MiB are free.",
        )
    need = 256 + int(0.02 * dictionary.n_patients * max(1, len(dictionary.expression)) / 1000)
    facts.add(
        "resources",
        "memory",
        f"Tables need about {need} MiB of {machine.memory_mb} MiB.",
        "estimate",
        found=need <= machine.memory_mb,
        share=1.0 if need <= machine.memory_mb else 0.0,
        value=need,
        unit="MiB",
        blocking=True,
        remedy="" if need <= machine.memory_mb else "Use a machine with more memory.",
    )
