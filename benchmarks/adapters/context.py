"""Prompt tokens: per-agent context against a shared history, and the cost of listing the tools.

Reads the calls of a recorded run in order. Per agent: what was sent. Shared: each call's own
messages after all earlier user and assistant messages of the run (SAGE, Table 1: the paper's
chat-based pipeline). A token is counted as four characters; output schemas are left out.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.runner import Report, Row

RECORDING = Path(__file__).resolve().parents[2] / "data" / "recordings" / "tcga-blca-tls"


def count_tokens(text: str) -> int:
    """Count four characters as a token."""
    return len(text) // 4


def count_tool_list(compact: bool) -> int:
    """Count the tokens of the answer to `tools/list`, all suites."""
    from mcp import Client

    from mcp_servers.knowledge.runs import run_tools
    from mcp_servers.registry import Registry, load
    from mcp_servers.roots import Roots
    from mcp_servers.servers.server import ToolServer
    from mcp_servers.workers.inline import InlineWorkers

    async def count(folder: str) -> int:
        driven = Registry()
        for spec in run_tools(lambda words, stop: NotImplemented):
            driven.add(spec)
        server = ToolServer(
            "sage-all", Roots.of([], folder), InlineWorkers(load("all")), InlineWorkers(driven),
            compact=compact,
        )  # fmt: skip
        async with Client(server.build()) as client:
            answer = await client.list_tools()
            return count_tokens(answer.model_dump_json(by_alias=True, exclude_none=True))

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(count(folder))


def run(
    recording: Annotated[Path, typer.Argument(help="Folder of a recorded run.")] = RECORDING,
) -> Report:
    """Count prompt tokens of a recorded run and of the tool lists."""
    history = own = shared = 0
    calls = (recording / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    for call in map(json.loads, calls):
        sent = sum(count_tokens(message["content"]) for message in call["messages"])
        reply = (recording / f"{call['key']}.reply.txt").read_text(encoding="utf-8")
        own += sent
        shared += sent + history
        history += count_tokens(call["messages"][-1]["content"]) + count_tokens(reply)
    full, compact = count_tool_list(compact=False), count_tool_list(compact=True)
    rows = (
        Row(benchmark="Prompt tokens, one context per agent", measured=f"{len(calls)} calls",
            baseline=f"{shared:,} (shared history)", published="-57.5%",
            sage=f"{own:,} ({own / shared - 1:+.1%})"),
        Row(benchmark="Tokens of tools/list", measured="all suites", baseline=f"{full:,} (full)",
            sage=f"{compact:,} (compact)"),
    )  # fmt: skip
    return Report(rows=rows, data={"own": own, "shared": shared, "tools": [full, compact]})
