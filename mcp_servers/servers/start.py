"""Opening and closing a server together with its workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from mcp_servers import catalog
from mcp_servers.knowledge.runs import Drive, run_tools
from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.servers.callers import Callers
from mcp_servers.servers.options import Limits
from mcp_servers.workers.inline import InlineWorkers
from mcp_servers.workers.jobs import Recipe
from mcp_servers.workers.pool import open_workers

if TYPE_CHECKING:
    from mcp_servers.servers.server import ToolServer


@contextmanager
def open_server(
    suite: str,
    roots: Roots,
    *,
    workers: str | None = None,
    memory_mb: int | None = None,
    tool_folders: tuple[str, ...] = (),
    cache_folder: str | None = None,
    limits: Limits | None = None,
    drive: Drive | None = None,
    full: bool = False,
    ask_roots: bool = False,
    lasting: bool = False,
    callers: Callers | None = None,
) -> Iterator[ToolServer]:
    """Open a server for one suite or for all; its workers stop when the block ends.

    `drive` runs the `sage` command; with it, the knowledge suite can start and review runs.
    `full`, `ask_roots` and `lasting` are passed to the server. Raises `InputError` if the
    suite does not exist.
    """
    from mcp_servers.servers.server import ToolServer

    catalog.check_suite(suite)
    with ExitStack() as stack:
        recipe = Recipe(suite, tool_folders, cache_folder)
        pool = stack.enter_context(open_workers(workers, recipe, memory_mb=memory_mb))
        local = Registry()
        if drive is not None and suite in ("all", "knowledge"):
            for spec in run_tools(drive):
                local.add(spec)
        if drive is not None and suite in ("all", "pathology"):
            from mcp_servers.measures.over_mcp import measure_tool

            local.add(measure_tool(drive, cache_folder))
        inline = stack.enter_context(InlineWorkers(local))
        server = ToolServer(
            f"sage-{suite}", roots, pool, inline, limits,
            full=full, ask_roots=ask_roots, lasting=lasting, callers=callers,
        )  # fmt: skip
        try:
            yield server
        finally:
            server.close()
