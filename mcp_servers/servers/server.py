"""An MCP server over the registry: every tool a job, long ones by handle."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from mcp_servers.roots import Roots, hide_folders
from mcp_servers.servers import asking, compact, content, prompting, tasks
from mcp_servers.servers.asking import InputNeeded
from mcp_servers.servers.callers import CALLER, Callers
from mcp_servers.servers.handed_back import HandedBack, Kept
from mcp_servers.servers.health import Family, by, one
from mcp_servers.servers.options import Limits
from mcp_servers.servers.prune import prune
from mcp_servers.servers.titles import title_of
from mcp_servers.slides.unknown import PixelSizeError
from mcp_servers.spec import ToolSpec
from mcp_servers.workers.base import KEEP_FINISHED, Workers
from mcp_servers.workers.jobs import Job, State
from sage.core.errors import InputError, SageError
from sage.core.log import logger

log = logger(__name__)

JOB_ARGUMENT = {
    "type": "object",
    "properties": {"job": {"type": "string", "description": "Handle that a call returned"}},
    "required": ["job"],
    "additionalProperties": False,
}
JOB_TOOLS = {
    "job_status": "Where a long job is: state, fraction, message. Returns at once.",
    "job_result": "The result of a job; waits a while for it, and says so when it is not there.",
    "job_cancel": "Cancel a job that is queued or running.",
}
PRIORITY = "sage/priority"
MOST_PRIORITY = 100
PRUNE_EVERY = 50
"""Calls between two looks at what calls wrote."""
RECENT = 200
"""Files that `resources/list` offers, the latest first."""


class ToolServer:
    """What answers MCP requests. `workers` run the tools, `inline` the ones that drive SAGE."""

    def __init__(
        self,
        name: str,
        roots: Roots,
        workers: Workers,
        inline: Workers | None = None,
        limits: Limits | None = None,
        *,
        compact: bool = False,
        ask_roots: bool = False,
        lasting: bool = False,
        callers: Callers | None = None,
    ) -> None:
        """Serve the tools of both registries under one set of roots.

        `compact` lists three tools that find and call the others. `ask_roots` takes the folders
        that the client names instead of `roots`' inputs: for a client that started the server.
        `lasting` keeps jobs that the server cannot end for the next one. `callers` says who may
        call what; over HTTP alone.
        """
        self.name = name
        self.callers = callers
        self.roots = roots
        self.workers = workers
        self.inline = inline
        self.limits = limits or Limits()
        self.compact = compact
        self.ask_roots = ask_roots
        self.prefixes: dict[str, str] = {}
        self.recent: list[dict[str, Any]] = []
        self.called: Counter[str] = Counter()
        self.removed = 0
        self.kept = HandedBack(roots.output) if lasting else None
        if self.kept is not None:
            for handle, job in self.kept.left():
                self._take_up(handle, job, self.kept)

    def specs(self) -> dict[str, ToolSpec]:
        """Every tool that is served, by name."""
        found = {spec.name: spec for spec in self.workers.registry.all()}
        if self.inline is not None:
            found.update({spec.name: spec for spec in self.inline.registry.all()})
        return found

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """A tool's input schema, or None."""
        if name in JOB_TOOLS:
            return JOB_ARGUMENT
        spec = self.specs().get(name)
        return spec.input_schema if spec is not None else None

    def _hide(self, value: Any) -> Any:
        """`value` without the places of the roots, the program and the user on this machine."""
        places = (sys.prefix, Path(__file__).parents[2], tempfile.gettempdir(), Path.home())
        return hide_folders(value, (*self.roots.readable, *(Path(place) for place in places)))

    # --- tools ---

    async def list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        """All tools with their schemas; in compact mode those that find and call the others."""
        if self.compact:
            return types.ListToolsResult(tools=[*compact.TOOLS.values(), *_job_tools(None)])
        tools = [content.describe(spec) for spec in self.specs().values()]
        return types.ListToolsResult(tools=tools + _job_tools(content.envelope_schema()))

    async def call_tool(
        self, ctx: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult | dict[str, Any]:
        """Run a tool, or answer about a job. Errors of the tool come back as its result.

        A client that takes tasks gets one where a call takes longer than `Limits.task_after`.
        """
        name, arguments = params.name, params.arguments or {}
        if len(json.dumps(arguments)) > self.limits.request:
            raise MCPError(types.INVALID_PARAMS, f"more than {self.limits.request} bytes")
        try:
            await self._adopt_client_roots(ctx, params)
            if self.compact and name in compact.TOOLS:
                if name != compact.CALL:
                    return self._discover(name, arguments)
                name, arguments = _inner_call(arguments)
            if name in JOB_TOOLS:
                await self._admit_reading(ctx)
                return await self._about_job(ctx, name, arguments)
            if name not in self.specs():
                raise MCPError(types.INVALID_PARAMS, f'no tool is called "{name}"')
            await self._admit(ctx, name, arguments)
            return await self._run(ctx, params, name, arguments)
        except InputNeeded as needed:
            return needed.result
        except SageError as error:
            return failed(self._hide(str(error)))

    async def _admit(self, ctx: Any, name: str, arguments: dict[str, Any]) -> None:
        """Ask whether the person whom the proxy names may call this; what is refused raises."""
        if self.callers is None:
            return
        spec, who = self.specs()[name], ctx.request.scope["state"]["person"]
        spec.parse(arguments)
        await anyio.to_thread.run_sync(self.callers.admit, who, spec, arguments)
        CALLER.set(who)

    async def _admit_reading(self, ctx: Any, exported: str = "") -> None:
        """Ask whether the named person may see what others made, or take this output away."""
        if self.callers is None:
            return
        who = ctx.request.scope["state"]["person"]
        try:
            await anyio.to_thread.run_sync(self.callers.admit_reading, who, exported)
        except InputError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error

    async def _run(
        self, ctx: Any, params: types.CallToolRequestParams, name: str, arguments: dict[str, Any]
    ) -> types.CallToolResult | dict[str, Any]:
        job = await self._run_job(ctx, name, arguments)
        if isinstance(job.error, PixelSizeError):
            fields = self.specs()[name].given.model_fields
            size = next((it for it in ("base_mpp", "mpp") if it in fields), None)
            if size is not None and arguments.get(size) is None:
                slide = str(arguments.get("slide") or arguments.get("wsi_path", "The slide"))
                mpp = await asking.pixel_size(ctx, params, slide)
                if mpp is not None:
                    job = await self._run_job(ctx, name, {**arguments, size: mpp})
        if tasks.declared(ctx) and not job.state.final:
            return tasks.created(job)
        return await self._answer(job)

    async def _run_job(self, ctx: Any, name: str, arguments: dict[str, Any]) -> Job:
        job = self._submit(name, arguments, _priority(ctx))
        try:
            bound = self.limits.task_after if tasks.declared(ctx) else None
            await self._wait(ctx, job, bound)
        except anyio.get_cancelled_exc_class():
            self._home(job).cancel(job)
            raise
        return job

    def _discover(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """Answer search_tools or describe_tool."""
        specs = self.specs()
        wanted = str(arguments.get("query" if name == "search_tools" else "name", ""))[:500]
        if name == "search_tools":
            found = compact.search(specs.values(), wanted)
        elif wanted in specs:
            found = compact.description(specs[wanted])
        else:
            return failed(f'no tool is called "{wanted}"; search_tools lists them')
        text = types.TextContent(text=json.dumps(found, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content=found)

    async def _adopt_client_roots(self, ctx: Any, params: types.CallToolRequestParams) -> None:
        """Once, where no root was given at the start: the folders that the client names."""
        if not self.ask_roots:
            return
        folders = await asking.client_folders(ctx, params)
        self.ask_roots = False
        if folders:
            self.roots = Roots.of(folders, self.roots.output)

    def _submit(self, name: str, arguments: dict[str, Any], priority: int) -> Job:
        active = sum(not job.state.final for job in self._jobs())
        if active >= self.limits.jobs:
            raise InputError(f"{active} jobs are waiting or running already; try again later")
        home = self.workers if name in self.workers.registry.tools else self.inline
        if home is None:
            raise InputError(f'no tool is called "{name}"')
        home.registry.get(name).parse(arguments)  # before a folder is made for it
        prefix = f"{name}/{secrets.token_hex(6)}"
        lasting = self.kept if home is self.workers else None
        handle = secrets.token_hex(8)
        if lasting is not None:
            kept = Kept(tool=name, arguments=arguments, prefix=prefix, priority=priority)
            lasting.keep(handle, kept)
        job = home.submit(
            name, arguments, self.roots.below(prefix), priority=priority, handle=handle,
            on_change=lasting.ended if lasting is not None else None,
        )  # fmt: skip
        self.called[name] += 1
        self.prefixes[job.id] = prefix
        while len(self.prefixes) > 2 * KEEP_FINISHED:
            del self.prefixes[next(iter(self.prefixes))]
        return job

    def _take_up(self, handle: str, job: Kept, kept: HandedBack) -> None:
        """Submit a job that an earlier server did not end, under the handle that its client has."""
        try:
            self.workers.submit(
                job.tool, job.arguments, self.roots.below(job.prefix), priority=job.priority,
                handle=handle, on_change=kept.ended,
            )  # fmt: skip
        except InputError as error:
            log.failed("job of an earlier server not taken up", error, tool=job.tool)
            (kept.folder / f"{handle}.json").unlink(missing_ok=True)
            return
        self.prefixes[handle] = job.prefix

    def close(self) -> None:
        """From here on what ends is handed back, not ended."""
        if self.kept is not None:
            self.kept.closing = True

    def _jobs(self) -> list[Job]:
        """Every job that is known, of the workers and inline."""
        homes = (self.workers, self.inline) if self.inline is not None else (self.workers,)
        return [job for home in homes for job in home.jobs.copy().values()]

    def metrics(self) -> list[Family]:
        """What this server does, for those who watch it."""
        states = Counter(job.state.value for job in self._jobs())
        waiting = {state.value: states[state.value] for state in State if not state.final}
        return [
            by("state", "sage_jobs", "gauge", "Jobs that wait or run.", waiting),
            by("tool", "sage_calls", "counter", "Calls of each tool.", self.called),
            one("sage_outputs_removed", "counter", "Call folders that were pruned.", self.removed),
        ]

    def _prune(self) -> None:
        """Now and then, remove old outputs; those of jobs that wait or run stay."""
        if not self.limits.outputs or sum(self.called.values()) % PRUNE_EVERY:
            return
        output = self.roots.output
        busy = [output / self.prefixes[job.id] for job in self._jobs()
                if not job.state.final and job.id in self.prefixes]  # fmt: skip
        found = prune(output, self.limits.outputs, busy)
        self.removed += len(found.removed)
        gone = {f"{folder.parent.name}/{folder.name}/" for folder in found.removed}
        self.recent = [row for row in self.recent
                       if not any(row["path"].startswith(name) for name in gone)]  # fmt: skip

    def _home(self, job: Job) -> Workers:
        if self.inline is not None and job.id in self.inline.jobs:
            return self.inline
        return self.workers

    def _find(self, job_id: str) -> Job:
        if self.inline is not None and job_id in self.inline.jobs:
            return self.inline.get(job_id)
        return self.workers.get(job_id)

    async def _wait(self, ctx: Any, job: Job, bound: float | None = None) -> None:
        """Until the job ends or the bound is reached, passing on its progress."""
        asked = bool(ctx.meta and ctx.meta.get("progress_token") is not None)
        if bound is None:
            bound = self.limits.wait_with_progress if asked else self.limits.wait
        pause, told = 0.001, -1.0
        with anyio.move_on_after(bound):
            while not job.state.final:
                await anyio.sleep(pause)
                pause = min(0.2, pause * 1.5)
                if asked and job.fraction > told:
                    told = job.fraction
                    await ctx.session.report_progress(told, 1.0, job.message or job.state.value)

    async def _answer(self, job: Job) -> types.CallToolResult:
        if job.state is State.FAILED:
            return failed(self._hide(str(job.error)))
        if job.state is State.CANCELLED:
            return failed("cancelled")
        status = job.status()
        if job.state is not State.DONE:
            status["message"] = (
                f"still {job.state.value} ({job.message or 'no message yet'}); "
                f'ask job_status or job_result for "{job.id}"'
            )
        structured = self._hide(content.envelope(status, job.run, self.prefixes.get(job.id, "")))
        blocks, structured = await anyio.to_thread.run_sync(
            content.content_of, structured, self.roots.output, self.limits
        )
        self._remember(structured["files"])
        await anyio.to_thread.run_sync(self._prune)
        return types.CallToolResult(content=blocks, structured_content=structured)

    def _remember(self, files: list[dict[str, Any]]) -> None:
        known = {file["uri"] for file in files}
        kept = [row for row in self.recent if row["uri"] not in known]
        fresh = [file for file in files if file["mime"] != "inode/directory"]
        self.recent = [*fresh, *kept][:RECENT]

    async def _about_job(
        self, ctx: Any, name: str, arguments: dict[str, Any]
    ) -> types.CallToolResult:
        job_id = arguments.get("job")
        if not isinstance(job_id, str) or len(arguments) != 1:
            return failed(f"{name} takes exactly one argument: job")
        try:
            job = self._find(job_id)
        except InputError as error:
            return failed(str(error))
        if name == "job_result":
            await self._wait(ctx, job)
            return await self._answer(job)
        if name == "job_cancel":
            self._home(job).cancel(job)
            with anyio.move_on_after(self.workers.grace + 5.0):
                while not job.state.final:
                    await anyio.sleep(0.05)
        structured = self._hide(content.envelope(job.status(), None, ""))
        return types.CallToolResult(
            content=[types.TextContent(text=json.dumps(structured))], structured_content=structured
        )

    # --- tasks ---

    async def get_task(self, ctx: Any, params: tasks.TaskParams) -> dict[str, Any]:
        """The state of a task, with its result where it has ended."""
        await self._admit_reading(ctx)
        job = self._task(ctx, params)
        ended = job.state in (State.DONE, State.FAILED)
        return self._hide(tasks.detailed(job, await self._answer(job) if ended else None))  # type: ignore[no-any-return]

    async def cancel_task(self, ctx: Any, params: tasks.TaskParams) -> dict[str, Any]:
        """Ask for a task's end; `get_task` tells when it has ended."""
        await self._admit_reading(ctx)
        job = self._task(ctx, params)
        self._home(job).cancel(job)
        return {}

    async def update_task(self, ctx: Any, params: tasks.UpdateParams) -> dict[str, Any]:
        """Acknowledge answers; no task asks anything, questions come before it is made."""
        self._task(ctx, params)
        return {}

    def _task(self, ctx: Any, params: tasks.TaskParams) -> Job:
        if not tasks.declared(ctx):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {tasks.EXTENSION: {}}}}
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"declare the extension {tasks.EXTENSION}",
                needed,
            )
        try:
            return self._find(params.task_id)
        except InputError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error

    # --- resources ---

    async def list_resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        """The files that calls of this server wrote, the latest first."""
        await self._admit_reading(ctx)
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=row["uri"], name=row["path"], mime_type=row["mime"], size=row["bytes"]
                )
                for row in self.recent
            ]
        )

    async def list_templates(self, ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        """The one kind of address that there is."""
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=content.SCHEME + "{+path}",
                    name="output file",
                    description="A file below the output folder, as a tool's result names it",
                )
            ]
        )

    async def read_resource(
        self, ctx: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """The content of an output file, text as text, up to the size bound."""
        uri = str(params.uri)
        await self._admit_reading(ctx, unquote(uri.removeprefix(content.SCHEME)))
        return await anyio.to_thread.run_sync(self._read, uri)

    def _read(self, uri: str) -> types.ReadResourceResult:
        import base64

        from mcp_servers.results_cache import mime_type

        if not uri.startswith(content.SCHEME):
            raise MCPError(types.INVALID_PARAMS, f"addresses start with {content.SCHEME}")
        name = unquote(uri.removeprefix(content.SCHEME))
        if any(part.startswith(".") for part in name.split("/")):
            raise MCPError(types.INVALID_PARAMS, f'"{name[:100]}" is not an output')
        try:
            path = Roots((), self.roots.output).input(name, "file")
        except InputError as error:
            raise MCPError(types.INVALID_PARAMS, self._hide(str(error))) from error
        size = path.stat().st_size
        if size > self.limits.resource:
            raise MCPError(
                types.INVALID_PARAMS, f"{name} has {size} bytes, more than {self.limits.resource}"
            )
        mime, data = mime_type(name), path.read_bytes()
        one: types.TextResourceContents | types.BlobResourceContents
        try:
            if not (mime.startswith("text/") or mime.endswith("json")):
                raise UnicodeDecodeError("utf-8", b"", 0, 1, "binary by its type")
            one = types.TextResourceContents(uri=uri, mime_type=mime, text=data.decode())
        except UnicodeDecodeError:
            one = types.BlobResourceContents(
                uri=uri, mime_type=mime, blob=base64.b64encode(data).decode()
            )
        return types.ReadResourceResult(contents=[one])

    # --- prompts ---

    async def list_prompts(self, ctx: Any, params: Any) -> types.ListPromptsResult:
        """What a client may offer its user to begin with."""
        return prompting.list_prompts()

    async def get_prompt(
        self, ctx: Any, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        """A prompt with its arguments."""
        return prompting.get_prompt(params.name, params.arguments or {})

    async def complete(self, ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Cohorts, endpoints and folders for a prompt's arguments; files for a resource."""
        await self._admit_reading(ctx)
        if isinstance(params.ref, types.PromptReference):
            given = (params.context.arguments if params.context else None) or {}
            values = await anyio.to_thread.run_sync(
                choices, self.roots, params.argument.name, given
            )
        else:
            values = [row["path"] for row in self.recent]
        typed = params.argument.value.casefold()
        fitting = [value for value in values if value.casefold().startswith(typed)]
        return types.CompleteResult(
            completion=types.Completion(
                values=fitting[:100], total=len(fitting), has_more=len(fitting) > 100
            )
        )

    def build(self) -> Server[Any]:
        """The SDK's server with these handlers."""
        server: Server[Any] = Server(
            self.name,
            version=installed_version(),
            instructions=f"{INSTRUCTIONS} {COMPACT}" if self.compact else INSTRUCTIONS,
            get_tool_input_schema=self.input_schema,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,  # type: ignore[arg-type]  # a task is the extension's
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
            on_completion=self.complete,
        )
        server.extensions[tasks.EXTENSION] = {}
        server.add_request_handler("tasks/get", tasks.TaskParams, self.get_task)
        server.add_request_handler("tasks/cancel", tasks.TaskParams, self.cancel_task)
        server.add_request_handler("tasks/update", tasks.UpdateParams, self.update_task)
        return server


INSTRUCTIONS = (
    "Tools of SAGE for computational pathology and clinical oncology. Paths are relative to the "
    "server's roots; files that a tool wrote can be given to other tools by their `path`. A call "
    'that takes long returns state "running" and a job: ask job_result with it. Results carry '
    "provenance, and learned tools say when they fell back to a classical method. Patient rows "
    "never leave the server, nor counts of groups under five."
)

COMPACT = (
    "Only a few tools are listed: search_tools finds the others by words, describe_tool gives the "
    "arguments of one, call_tool runs it."
)


def _job_tools(output_schema: dict[str, Any] | None) -> list[types.Tool]:
    return [
        types.Tool(
            name=name,
            title=title_of(name),
            description=summary,
            input_schema=JOB_ARGUMENT,
            output_schema=output_schema,
            annotations=types.ToolAnnotations(
                read_only_hint=name != "job_cancel", open_world_hint=False
            ),
        )
        for name, summary in JOB_TOOLS.items()
    ]


def _inner_call(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and arguments that `call_tool` was given."""
    name, inner = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(name, str) or not isinstance(inner, dict) or len(arguments) > 2:
        raise InputError("call_tool takes name (a text) and arguments (an object)")
    if name in compact.TOOLS:
        raise InputError(f"call_tool calls the tools that search_tools lists, not {name}")
    return name, inner


def _priority(ctx: Any) -> int:
    """The priority that the caller put into the request's `_meta`, else 0."""
    given = (ctx.meta or {}).get(PRIORITY, 0)
    if not isinstance(given, int) or isinstance(given, bool) or abs(given) > MOST_PRIORITY:
        raise InputError(f"{PRIORITY} is a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}")
    return given


def choices(roots: Roots, argument: str, given: Mapping[str, str]) -> list[str]:
    """What a prompt's argument may be, from what lies under the roots."""
    from mcp_servers.context import ToolContext
    from mcp_servers.oncology.cohorts import CohortsInput, list_cohorts
    from mcp_servers.pathology.listing import SlidesInput, list_slides

    context = ToolContext(roots)
    if argument == "slides":
        return list(list_slides(SlidesInput(), context).folders)
    if argument not in ("cohort", "endpoint"):
        return []
    cohorts = list_cohorts(CohortsInput(), context).cohorts
    if argument == "cohort":
        return [row.cohort for row in cohorts]
    chosen = [row for row in cohorts if row.cohort == given.get("cohort")] or cohorts
    return list(dict.fromkeys(name for row in chosen for name in row.endpoints))


def failed(message: str) -> types.CallToolResult:
    """A tool error that a model can read and correct."""
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


def installed_version() -> str:
    """Version of the installed project."""
    try:
        return version("sage-pathology")
    except PackageNotFoundError:
        return "0.0.0"
