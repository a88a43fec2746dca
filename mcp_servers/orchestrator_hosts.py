"""Where the orchestrator's tools run: workers of this process, or MCP servers anywhere."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from mcp_servers.describe import describe_tool
from mcp_servers.orchestrator import ToolCard
from mcp_servers.registry import ToolSpec
from mcp_servers.roots import Roots
from mcp_servers.workers.base import Workers
from sage.core.errors import Cancelled, FaultError, InputError

if TYPE_CHECKING:
    from mcp.client.stdio import StdioServerParameters

Report = Callable[[float, str], None]


def relocate(value: Any, names: dict[str, str]) -> Any:
    """A result with each output name replaced by its path below the output folder."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [relocate(one, names) for one in value]
    if isinstance(value, dict):
        return {key: relocate(one, names) for key, one in value.items()}
    return value


def card_of(spec: ToolSpec) -> ToolCard:
    """A registry entry as the orchestrator sees it."""
    return ToolCard(
        name=spec.name,
        suite=spec.suite,
        summary=spec.summary,
        description=describe_tool(spec),
        input_schema=spec.input_schema,
        output_fields=tuple(spec.returns.model_fields),
    )


class WorkersHost:
    """Tools on workers. Each call writes into a folder of its own below the output root."""

    name = "workers"

    def __init__(
        self, workers: Workers, roots: Roots, cancelled: Callable[[], bool] | None = None
    ) -> None:
        """Run on `workers` under `roots`; `cancelled` is asked while waiting."""
        self.workers = workers
        self.roots = roots
        self.cancelled = cancelled or (lambda: False)

    def cards(self) -> list[ToolCard]:
        """The registry's tools."""
        return [card_of(spec) for spec in self.workers.registry.all()]

    def call(
        self, tool: str, arguments: dict[str, Any], report: Report
    ) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
        """Run one tool and wait for it."""
        self.workers.registry.get(tool).parse(arguments)
        prefix = f"{tool}/{secrets.token_hex(6)}"
        job = self.workers.submit(
            tool,
            arguments,
            self.roots.below(prefix),
            on_change=lambda one: None if one.state.final else report(one.fraction, one.message),
        )
        while not job.wait(0.1):
            if self.cancelled():
                self.workers.cancel(job)
                raise Cancelled("cancelled by the caller")
        run = job.result(0)
        names = {one.name: f"{prefix}/{one.name}" for one in run.outputs}
        provenance = run.provenance.model_dump(mode="json")
        return relocate(run.result, names), list(names.values()), provenance


class McpHost:
    """Tools of an MCP server, by URL or by the command that starts it; a context manager.

    Only servers that speak this project's envelope (state, job, result, files, provenance) give
    provenance; for others it names the server alone.
    """

    def __init__(
        self, server: str | StdioServerParameters, name: str, token: str | None = None
    ) -> None:
        """Connect on entering; `token` is sent to an HTTP server as a bearer token."""
        self.server = server
        self.name = name
        self._token = token

    def __enter__(self) -> Self:
        """Connect; raises `FaultError` when the server does not answer."""
        from contextlib import ExitStack

        from anyio.from_thread import start_blocking_portal

        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        try:
            self._client = self._stack.enter_context(
                self._portal.wrap_async_context_manager(self._connection())
            )
        except Exception as error:
            self._stack.close()
            raise FaultError(f"MCP server {self.name} does not answer: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self._stack.close()

    def _connection(self) -> Any:
        from contextlib import asynccontextmanager

        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        @asynccontextmanager
        async def connected() -> Any:
            if not isinstance(self.server, str):
                async with Client(self.server) as client:
                    yield client
                return
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=900) as http,
                Client(streamable_http_client(self.server, http_client=http)) as client,
            ):
                yield client

        return connected()

    def cards(self) -> list[ToolCard]:
        """The server's tools, without the ones that handle jobs."""
        listed = self._portal.call(self._client.list_tools)
        found = []
        for one in listed.tools:
            if one.name.startswith("job_") or one.name == "orchestrate":
                continue
            text = one.description or ""
            meta = one.meta or {}
            result = (one.output_schema or {}).get("properties", {}).get("result", {})
            inner = (result.get("anyOf") or [result])[0]
            found.append(
                ToolCard(
                    name=one.name,
                    suite=str(meta.get("sage/suite", self.name)),
                    summary=text.splitlines()[0] if text else one.name,
                    description=f"{one.name}: {text}\n  takes: {one.input_schema}",
                    input_schema=one.input_schema,
                    output_fields=tuple(inner.get("properties", ())),
                )
            )
        return found

    def call(
        self, tool: str, arguments: dict[str, Any], report: Report
    ) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
        """Call one tool, following its job to the end."""
        answer = self._ask(tool, arguments, report)
        while answer.get("state") in ("queued", "running"):
            answer = self._ask("job_result", {"job": answer["job"]}, report)
        provenance = answer.get("provenance") or {"tool": tool}
        files = [str(one["path"]) for one in answer.get("files", [])]
        result = answer.get("result") if "state" in answer else answer
        if result is None:
            raise FaultError(f"{self.name}: {tool}: {answer.get('message') or 'no result'}")
        return result, files, {**provenance, "server": self.name}

    def _ask(self, tool: str, arguments: dict[str, Any], report: Report) -> dict[str, Any]:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            report(progress / (total or 1.0), message or "")

        async def ask() -> Any:
            return await self._client.call_tool(tool, arguments, progress_callback=heard)

        answer = self._portal.call(ask)
        if answer.is_error:
            words = [one.text for one in answer.content if one.type == "text"]
            raise InputError(" ".join(words)[:1000] or f"{tool} failed on {self.name}")
        structured = answer.structured_content
        if isinstance(structured, dict):
            return structured
        return {"text": " ".join(one.text for one in answer.content if one.type == "text")}
