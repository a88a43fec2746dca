"""Technical readiness and resources: required tools and packages, their time and memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from agents.feasibility.data_facts import find_held
from agents.feasibility.types import FactList, Machine
from kg.literature.text import words
from validation.core.dictionary import DataDictionary
from validation.core.hypothesis import Hypothesis

if TYPE_CHECKING:
    from mcp_servers.spec import ToolSpec

STATISTICS = ("lifelines", "statsmodels", "scikit-learn", "pandas")
_IMAGE_MODALITY = "imaging:"


_ANALYSIS_SECONDS = 60.0
_PER_THOUSAND_PATIENTS = 60.0
"""Seconds for statistics with controls: 60, plus 60 per thousand patients (our upper bounds)."""
_UNKNOWN_TOOL_SECONDS = 120.0
HOURS_COMFORTABLE = 2.0
HOURS_ALLOWED = 72.0
"""Runtime limits in hours: full score up to the first, infeasible beyond the second."""
_STATUS = {
    "1 - Planning": 0.1,
    "2 - Pre-Alpha": 0.2,
    "3 - Alpha": 0.5,
    "4 - Beta": 0.8,
    "5 - Production/Stable": 1.0,
    "6 - Mature": 1.0,
    "7 - Inactive": 0.2,
}


@dataclass(frozen=True)
class Package:
    """A package's version and declared maturity, in [0, 1]."""

    name: str
    version: str
    status: str | None
    maturity: float
    repository: str | None = None

    def sentence(self) -> str:
        """Describe the package in a sentence."""
        status = f", declared {self.status.split(' - ')[-1].lower()}" if self.status else ""
        return f"{self.name} {self.version} is installed{status}."


def find_package(name: str) -> Package | None:
    """Find the installed package `name`, or return None.

    Maturity follows the declared development status, or else the version: 1 from version 1.0
    on, 0.8 below.
    """
    try:
        facts = metadata.metadata(name)
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
    prefix = "Development Status :: "
    status = next(
        (
            line.removeprefix(prefix)
            for line in facts.get_all("Classifier") or ()
            if line.startswith(prefix)
        ),
        None,
    )
    major = re.match(r"\d+", version)
    by_version = 1.0 if major and int(major[0]) >= 1 else 0.8
    return Package(
        name=name,
        version=version,
        status=status,
        maturity=_STATUS.get(status, by_version) if status else by_version,
        repository=_repository(
            [*(facts.get_all("Project-URL") or ()), *(facts.get_all("Home-page") or ())]
        ),
    )


def _repository(urls: list[str]) -> str | None:
    """Return the first project URL on a code host."""
    return next((url.rpartition(",")[2].strip() for url in urls if "github.com/" in url), None)


def tool_facts(
    facts: FactList,
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    tools: Callable[[], Sequence[ToolSpec]],
) -> list[ToolSpec]:
    """Add the facts for step two: packages and tools that the analysis needs, and missing tools.

    Parameters
    ----------
    tools : loads the tools in the registry; each exposure is matched to the tool that shares the
        most words with it

    Returns
    -------
    The tools that would have to run on slides, for the exposures with a matching tool.
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
            remedy=f"Install {name}.",
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
            )
            continue
        tool = _tool_for(exposure.label + " " + exposure.variable, tools())
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
            remedy=f"Register a tool that measures {exposure.label}, or use a measured feature.",
        )
    return needed


def _tool_for(wanted: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """Find the tool whose name and summary share the most words with `wanted`, at least two."""
    asked = set(words(wanted.replace("_", " ").replace(":", " "))) - {"imag", "density", "score"}
    best, most = None, 0
    for tool in tools:
        shared = len(asked & set(words(f"{tool.name} {tool.summary}".replace("_", " "))))
        if shared > most:
            best, most = tool, shared
    return best if most >= min(2, len(asked)) else None


def resource_facts(
    facts: FactList,
    hypothesis: Hypothesis,
    dictionary: DataDictionary,
    tools: Sequence[ToolSpec],
    machine: Machine,
) -> None:
    """Add the facts for step four; slide work uses all cores, and tools state their own costs.

    Parameters
    ----------
    tools : tools that would have to run on slides, with seconds per slide and MiB; 120 s per
        slide is assumed if a tool states no time
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
    allowed = hours <= HOURS_ALLOWED
    span = HOURS_ALLOWED - HOURS_COMFORTABLE
    facts.add(
        "resources",
        "runtime",
        f"About {hours:.1f} h on {machine.cores} cores"
        + (f" ({'; '.join(costs)})." if costs else " (statistics alone)."),
        "tool registry" if costs else "estimate",
        found=allowed,
        share=1.0 - max(0.0, hours - HOURS_COMFORTABLE) / span,
        value=hours,
        unit="hours",
        blocking=True,
        remedy="Use fewer slides, more cores, or a feature that is already measured.",
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
            blocking=True,
            remedy=f"Run {tool.name} on a machine with a GPU.",
        )
        fits = tool.resources.memory_mb <= machine.memory_mb
        facts.add(
            "resources",
            "memory",
            f"{tool.name} needs {tool.resources.memory_mb} MiB of {machine.memory_mb} MiB.",
            "tool registry",
            found=fits,
            blocking=True,
            remedy=f"Run {tool.name} where {tool.resources.memory_mb} MiB are free.",
        )
    need = 256 + int(0.02 * dictionary.n_patients * max(1, len(dictionary.expression)) / 1000)
    facts.add(
        "resources",
        "memory",
        f"Tables need about {need} MiB of {machine.memory_mb} MiB.",
        "estimate",
        found=need <= machine.memory_mb,
        value=need,
        unit="MiB",
        blocking=True,
        remedy="Use a machine with more memory.",
    )
