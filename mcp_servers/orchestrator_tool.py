"""The orchestrator as a tool of the servers."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.orchestrator import Complete, Orchestrated, Orchestrator
from mcp_servers.orchestrator_hosts import WorkersHost
from mcp_servers.registry import ATTRIBUTE, Resources, ToolSpec, tool
from mcp_servers.workers.base import Workers
from sage.core.models import Strict


class RequestInput(Strict):
    """What is wanted, and on what."""

    request: str = Field(
        min_length=3,
        max_length=2000,
        description='In words, e.g. "detect the tumor, then patches by region"',
    )
    inputs: dict[str, Any] = Field(
        default_factory=dict,
        description='Values that tools take by name, e.g. {"slide": "a.svs"}',
    )


def orchestrate_tool(workers: Workers, complete: Complete | None = None) -> ToolSpec:
    """`orchestrate` over these workers."""

    @tool(
        "orchestrate",
        "orchestrator",
        "1.0.0",
        "Carry out a request in words: select tools by their descriptions, run them one after the "
        "other, and return every step's result with its provenance.",
        Resources(cpu=1, memory_mb=64),
        cacheable=False,
    )
    def orchestrate(given: RequestInput, context: ToolContext) -> Orchestrated:
        host = WorkersHost(workers, context.roots, context.cancelled)
        done = Orchestrator([host], complete).run(given.request, given.inputs, context.progress)
        for step in done.steps:
            for name in step.files:
                context.output(name)
        return done

    found: ToolSpec = getattr(orchestrate, ATTRIBUTE)
    return found
