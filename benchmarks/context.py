"""Prompt tokens of a recorded run: per-agent context against a shared history.

    python benchmarks/context.py
    python -m benchmarks.context tools

Reads the calls of `data/recordings/tcga-blca-tls` in order. Per-agent: what was sent. Shared: each
call's own messages behind all earlier users' and assistants' messages of the run (SAGE, Table 1:
the paper's chat-based pipeline). A token is counted as four characters in both columns; output
schemas are left out of both. `tools` counts what `tools/list` of `sage tools serve all` sends in
full and with `--compact`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

RECORDING = Path(__file__).resolve().parents[1] / "data" / "recordings" / "tcga-blca-tls"


def tokens(text: str) -> int:
    """Four characters a token."""
    return len(text) // 4


def tools_listed(compact: bool) -> int:
    """Tokens of the answer to `tools/list`, all suites."""
    from mcp import Client

    from mcp_servers.knowledge.runs import run_tools
    from mcp_servers.registry import Registry, load
    from mcp_servers.roots import Roots
    from mcp_servers.servers.server import ToolServer
    from mcp_servers.workers.inline import InlineWorkers

    async def listed(folder: str) -> int:
        driven = Registry()
        for spec in run_tools(lambda words, stop: NotImplemented):
            driven.add(spec)
        inline = InlineWorkers(driven)
        roots = Roots.of([], folder)
        workers = InlineWorkers(load("all"))
        server = ToolServer("sage-all", roots, workers, inline, compact=compact)
        async with Client(server.build()) as client:
            answer = await client.list_tools()
            text = answer.model_dump_json(by_alias=True, exclude_none=True)
            return tokens(text)

    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(listed(folder))


def main() -> None:
    """Print one row per call, and the totals."""
    if sys.argv[1:] == ["tools"]:
        for compact in (False, True):
            print(f"{'compact' if compact else 'full':20s} {tools_listed(compact):10d}")
        return
    lines = (RECORDING / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    history = own_total = shared_total = 0
    print(f"{'output':20s} {'per agent':>10s} {'shared':>10s}")
    for line in lines:
        call = json.loads(line)
        own = sum(tokens(message["content"]) for message in call["messages"])
        shared = own + history
        reply = (RECORDING / f"{call['key']}.reply.txt").read_text(encoding="utf-8")
        history += tokens(call["messages"][-1]["content"]) + tokens(reply)
        own_total += own
        shared_total += shared
        print(f"{call['schema']:20s} {own:10d} {shared:10d}")
    saved = 100 * (own_total - shared_total) / shared_total
    print(f"{'all calls':20s} {own_total:10d} {shared_total:10d}   {saved:+.1f}%")


if __name__ == "__main__":
    main()
