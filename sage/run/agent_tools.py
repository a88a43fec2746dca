"""Plugin agents (entry points `sage.agents`) as tools in the "agents" suite.

Each agent's `reads` and `returns` are the tool's input and output. The agent runs with
the configured reasoner: either its rule or the model that the settings name.
"""

from __future__ import annotations

from typing import Any

from agents.core.base import Agent
from mcp_servers.context import ToolContext
from mcp_servers.spec import Resources, ToolSpec
from sage.core.errors import InputError
from sage.core.plugins import find_plugins, load_plugin


def make_tool(agent: Agent[Any, Any], version: str) -> ToolSpec:
    """Build a tool that queries an agent."""

    def ask_agent(given: Any, context: ToolContext) -> Any:
        from sage.run.wiring import make_reasoner
        from sage.settings import load

        context.check_cancelled()
        return make_reasoner(load()).ask(agent, given).output

    summary = (agent.returns.__doc__ or agent.name).strip().partition("\n")[0]
    return ToolSpec(
        name=agent.name,
        suite="agents",
        version=version,
        summary=f"Ask the agent {agent.name}. Returns: {summary}",
        function=ask_agent,
        given=agent.reads,
        returns=agent.returns,
        resources=Resources(memory_mb=512),
        cacheable=False,
        source=agent.reads.__module__,
    )


def list_tools() -> list[ToolSpec]:
    """Build the tools of all installed agents."""
    tools = []
    for name, entry in find_plugins("sage.agents").items():
        agent = load_plugin("sage.agents", name)
        if not isinstance(agent, Agent):
            raise InputError(f"{entry.value}: expected an agents.core.base.Agent")
        version = entry.dist.version if entry.dist is not None else "0"
        tools.append(make_tool(agent, version))
    return tools
