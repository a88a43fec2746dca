"""MCP server for the registry, in which every call is a job and long jobs return handles."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from prometheus_client.core import CounterMetricFamily, Metric

from mcp_servers.context import CALLER, ToolContext
from mcp_servers.oncology.cohorts import CohortsInput, list_cohorts
from mcp_servers.pathology.slides import SlidesInput, list_slides
from mcp_servers.roots import Roots, hide_folders
from mcp_servers.servers import asking, compact, content, prompting, tasks
from mcp_servers.servers.asking import InputNeeded
from mcp_servers.servers.callers import Callers
from mcp_servers.servers.health import make_counters, make_gauges
from mcp_servers.servers.options import Limits
from mcp_servers.servers.outputs import Outputs, list_templates
from mcp_servers.servers.unfinished import UnfinishedJob, UnfinishedJobs
from mcp_servers.slides.metadata import PixelSizeError
from mcp_servers.spec import ToolSpec
from mcp_servers.workers.base import KEEP_FINISHED, Workers
from mcp_servers.workers.jobs import Job, State
from sage.core.errors import InputError, SageError
from sage.core.log import logger
from sage.core.versions import own_version

log = logger(__name__)

JOB_ARGUMENT = compact.describe_arguments(
    "job", job={"type": "string", "description": "Handle that a call returned"}
)
JOB_TOOLS = {
    "job_status": ("State of a job", "State, fraction and message of a long job. Returns at once."),
    "job_result": (
        "Result of a job",
        "The result of a job; waits for it briefly, or else returns its state.",
    ),
    "job_cancel": ("Cancel a job", "Cancel a job that is queued or running."),
}
"""Title and description for each job tool."""
PRIORITY = "sage/priority"
MOST_PRIORITY = 100


class ToolServer:
    """Handlers of MCP requests; `workers` run the tools, and `inline` those that control SAGE."""

    def __init__(
        self,
        name: str,
        roots: Roots,
        workers: Workers,
        inline: Workers | None = None,
        limits: Limits | None = None,
        *,
        full: bool = False,
        ask_roots: bool = False,
        lasting: bool = False,
        callers: Callers | None = None,
    ) -> None:
        """Serve the tools of both registries under the same roots.

        `full` lists every tool with its schema, not only the three that find and call the others.
        `ask_roots` uses the folders that the client names instead of the inputs in `roots`, for a
        client that started the server. `lasting` keeps unfinished jobs for the next server.
        `callers` decides who may call a tool over HTTP.
        """
        self.name = name
        self.callers = callers
        self.roots = roots
        self.workers = workers
        self.homes = (workers,) if inline is None else (workers, inline)
        self.limits = limits or Limits()
        self.full = full
        self.ask_roots = ask_roots
        self.prefixes: dict[str, str] = {}
        self.owners: dict[str, str] = {}
        self.called: Counter[str] = Counter()
        self.outputs = Outputs(roots.output, self.limits)
        self.unfinished = UnfinishedJobs(roots.output) if lasting else None
        if self.unfinished is not None:
            for handle, job in self.unfinished.load():
                self._resubmit(handle, job, self.unfinished)

    def specs(self) -> dict[str, ToolSpec]:
        """Specifications of all served tools, by name."""
        return {spec.name: spec for home in self.homes for spec in home.registry.all()}

    def input_schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool, or None if it is unknown."""
        if name in JOB_TOOLS:
            return JOB_ARGUMENT
        spec = self.specs().get(name)
        return spec.input_schema if spec is not None else None

    def _hide(self, value: Any) -> Any:
        """Shorten paths of the roots, the program and the user's folder in `value`."""
        places = (sys.prefix, Path(__file__).parents[2], tempfile.gettempdir(), Path.home())
        return hide_folders(value, (*self.roots.readable, *(Path(place) for place in places)))

    # --- tools ---

    async def list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        """List the tools that find and call the others, or in full mode all tools with schemas."""
        if not self.full:
            return types.ListToolsResult(tools=[*compact.TOOLS.values(), *_job_tools(None)])
        tools = [content.describe(spec) for spec in self.specs().values()]
        return types.ListToolsResult(tools=tools + _job_tools(content.envelope_schema()))

    async def call_tool(
        self, ctx: Any, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult | dict[str, Any]:
        """Run a tool, or answer a job request; tool errors become its result.

        A client that supports tasks gets a task if the call takes longer than
        `Limits.task_after`.
        """
        name, arguments = params.name, params.arguments or {}
        if len(json.dumps(arguments)) > self.limits.request:
            raise MCPError(
                types.INVALID_PARAMS,
                f"the arguments exceed the maximum of {self.limits.request} bytes",
            )
        try:
            await self._adopt_client_roots(ctx, params)
            if not self.full and name in compact.TOOLS:
                if name != compact.CALL:
                    return self._discover(name, arguments)
                name, arguments = _inner_call(arguments)
            if name in JOB_TOOLS:
                await self._admit_reading(ctx)
                return await self._about_job(ctx, name, arguments)
            if name not in self.specs():
                raise MCPError(types.INVALID_PARAMS, f'unknown tool "{name}"')
            admitted = await self._admit(ctx, name, arguments)
            try:
                return await self._run(ctx, params, name, arguments, admitted)
            except SageError:
                await self._refund(admitted)
                raise
        except InputNeeded as needed:
            return needed.result
        except SageError as error:
            return make_error(self._hide(str(error)))

    async def _admit(self, ctx: Any, name: str, arguments: dict[str, Any]) -> Any:
        """Raise `InputError` if the person identified by the proxy may not make this call."""
        if self.callers is None:
            return None
        spec, who = self.specs()[name], ctx.request.scope["state"]["person"]
        spec.parse(arguments)
        slides = await anyio.to_thread.run_sync(spec.count_slides, arguments, self.roots)
        admitted = await anyio.to_thread.run_sync(self.callers.admit, who, spec, arguments, slides)
        CALLER.set(who)
        return admitted

    async def _refund(self, admitted: Any) -> None:
        if self.callers is not None and admitted is not None:
            await anyio.to_thread.run_sync(self.callers.refund, admitted)

    async def _admit_reading(self, ctx: Any, exported: str = "") -> None:
        """Raise `MCPError` if the person may not read results or export this output."""
        if self.callers is None:
            return
        who = ctx.request.scope["state"]["person"]
        try:
            await anyio.to_thread.run_sync(self.callers.admit_reading, who, exported)
        except InputError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error

    async def _run(
        self,
        ctx: Any,
        params: types.CallToolRequestParams,
        name: str,
        arguments: dict[str, Any],
        admitted: Any,
    ) -> types.CallToolResult | dict[str, Any]:
        job = await self._run_job(ctx, name, arguments)
        if isinstance(job.error, PixelSizeError):
            fields = self.specs()[name].given.model_fields
            size = next((field for field in ("base_mpp", "mpp") if field in fields), None)
            if size is not None and arguments.get(size) is None:
                slide = str(arguments.get("slide") or arguments.get("wsi_path", "The slide"))
                mpp = await asking.ask_pixel_size(ctx, params, slide)
                if mpp is not None:
                    job = await self._run_job(ctx, name, {**arguments, size: mpp})
        if isinstance(job.error, InputError):
            await self._refund(admitted)
        if tasks.supports_tasks(ctx) and not job.state.final:
            return tasks.make_task_result(job)
        return await self._answer(job)

    async def _run_job(self, ctx: Any, name: str, arguments: dict[str, Any]) -> Job:
        job = self._submit(name, arguments, _priority(ctx), _owner(ctx))
        try:
            bound = self.limits.task_after if tasks.supports_tasks(ctx) else None
            await self._wait(ctx, job, bound)
        except anyio.get_cancelled_exc_class():
            self._home(job.id).cancel(job)
            raise
        return job

    def _discover(self, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        """Answer a call to search_tools or describe_tool."""
        specs = self.specs()
        wanted = str(arguments.get("query" if name == "search_tools" else "name", ""))[:500]
        if name == "search_tools":
            found = compact.search_tools(specs.values(), wanted)
        elif wanted in specs:
            found = compact.describe_in_full(specs[wanted])
        else:
            return make_error(f'no tool is called "{wanted}"; search_tools lists them')
        text = types.TextContent(text=json.dumps(found, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content=found)

    async def _adopt_client_roots(self, ctx: Any, params: types.CallToolRequestParams) -> None:
        """Adopt the client's folders on the first call if no root was given."""
        if not self.ask_roots:
            return
        folders = await asking.ask_folders(ctx, params)
        self.ask_roots = False
        if folders:
            self.roots = Roots.resolve(folders, self.roots.output)

    def _submit(self, name: str, arguments: dict[str, Any], priority: int, owner: str = "") -> Job:
        active = sum(not job.state.final for job in self._jobs())
        if active >= self.limits.jobs:
            raise InputError(f"{active} jobs are already queued or running; try again later")
        home = next(home for home in self.homes if name in home.registry.tools)
        home.registry.get(name).parse(arguments)  # before a folder is made for it
        prefix = f"{name}/{secrets.token_hex(6)}"
        unfinished = self.unfinished if home is self.workers else None
        handle = secrets.token_hex(8)
        if unfinished is not None:
            record = UnfinishedJob(
                tool=name, arguments=arguments, prefix=prefix, priority=priority, owner=CALLER.get()
            )
            unfinished.save(handle, record)
        job = home.submit(
            name, arguments, self.roots.below(prefix), priority=priority, handle=handle,
            on_change=unfinished.forget_ended if unfinished is not None else None,
        )  # fmt: skip
        self.called[name] += 1
        self.prefixes[job.id], self.owners[job.id] = prefix, owner
        while len(self.prefixes) > 2 * KEEP_FINISHED:
            oldest = next(iter(self.prefixes))
            del self.prefixes[oldest]
            self.owners.pop(oldest, None)
        return job

    def _resubmit(self, handle: str, job: UnfinishedJob, unfinished: UnfinishedJobs) -> None:
        """Resubmit a job left by an earlier server under the same handle."""
        try:
            self.workers.submit(
                job.tool, job.arguments, self.roots.below(job.prefix), priority=job.priority,
                handle=handle, on_change=unfinished.forget_ended,
            )  # fmt: skip
        except InputError as error:
            log.failed("job of an earlier server not resubmitted", error, tool=job.tool)
            (unfinished.folder / f"{handle}.json").unlink(missing_ok=True)
            return
        self.prefixes[handle], self.owners[handle] = job.prefix, job.owner

    def close(self) -> None:
        """Close the server, saving jobs that end from now on for the next server."""
        if self.unfinished is not None:
            self.unfinished.closing = True

    def _jobs(self) -> list[Job]:
        """Return all known jobs, both worker and inline jobs."""
        return [job for home in self.homes for job in home.jobs.copy().values()]

    def metrics(self) -> list[Metric]:
        """Collect metrics on jobs, calls and removed outputs."""
        states = Counter(job.state.value for job in self._jobs())
        waiting = {state.value: states[state.value] for state in State if not state.final}
        removed = self.outputs.removed
        return [
            make_gauges("sage_jobs", "Jobs that wait or run.", "state", waiting),
            make_counters("sage_calls", "Calls of each tool.", "tool", self.called),
            CounterMetricFamily("sage_outputs_removed", "Pruned call folders.", removed),
        ]

    def _prune(self) -> None:
        output = self.roots.output
        busy = [output / self.prefixes[job.id] for job in self._jobs()
                if not job.state.final and job.id in self.prefixes]  # fmt: skip
        self.outputs.prune(sum(self.called.values()), busy)

    def _home(self, job_id: str) -> Workers:
        return next((home for home in self.homes if job_id in home.jobs), self.workers)

    def _find(self, ctx: Any, job_id: str, *, cancel: bool) -> Job:
        """Find a job by its identifier.

        Raises `InputError` if the job is unknown, or if `cancel` is true and another caller owns
        it.
        """
        job = self._home(job_id).get(job_id)
        if cancel and self.owners.get(job_id) not in ("", None, _owner(ctx)):
            raise InputError(
                f'job "{job_id}" belongs to another caller; only that caller can cancel it'
            )
        return job

    async def _wait(self, ctx: Any, job: Job, bound: float | None = None) -> None:
        """Wait until the job ends or `bound` seconds pass, reporting its progress."""
        asked = bool(ctx.meta and ctx.meta.get("progress_token") is not None)
        if bound is None:
            bound = self.limits.wait_with_progress if asked else self.limits.wait
        pause, reported = 0.001, -1.0
        with anyio.move_on_after(bound):
            while not job.state.final:
                await anyio.sleep(pause)
                pause = min(0.2, pause * 1.5)
                if asked and job.fraction > reported:
                    reported = job.fraction
                    message = job.message or job.state.value
                    await ctx.session.report_progress(reported, 1.0, message)

    async def _answer(self, job: Job) -> types.CallToolResult:
        if job.state is State.FAILED:
            return make_error(self._hide(str(job.error)))
        if job.state is State.CANCELLED:
            return make_error("cancelled")
        status = job.status()
        if job.state is not State.DONE:
            status["message"] = (
                f"still {job.state.value} ({job.message or 'no message yet'}); call job_status "
                f'or job_result for "{job.id}"'
            )
        structured = self._hide(
            content.make_envelope(status, job.run, self.prefixes.get(job.id, ""))
        )
        blocks, structured = await anyio.to_thread.run_sync(
            content.make_blocks, structured, self.roots.output, self.limits
        )
        self.outputs.remember(structured["files"])
        await anyio.to_thread.run_sync(self._prune)
        return types.CallToolResult(content=blocks, structured_content=structured)

    async def _about_job(
        self, ctx: Any, name: str, arguments: dict[str, Any]
    ) -> types.CallToolResult:
        job_id = arguments.get("job")
        if not isinstance(job_id, str) or len(arguments) != 1:
            return make_error(f"{name} takes exactly one argument: job")
        try:
            job = self._find(ctx, job_id, cancel=name == "job_cancel")
        except InputError as error:
            return make_error(str(error))
        if name == "job_result":
            await self._wait(ctx, job)
            return await self._answer(job)
        if name == "job_cancel":
            self._home(job_id).cancel(job)
            with anyio.move_on_after(self.workers.grace + 5.0):
                while not job.state.final:
                    await anyio.sleep(0.05)
        structured = self._hide(content.make_envelope(job.status(), None, ""))
        return types.CallToolResult(
            content=[types.TextContent(text=json.dumps(structured))], structured_content=structured
        )

    # --- tasks ---

    async def get_task(self, ctx: Any, params: tasks.TaskParams) -> dict[str, Any]:
        """Return the state of a task, with its result once it has ended."""
        await self._admit_reading(ctx)
        job = self._task(ctx, params)
        ended = job.state in (State.DONE, State.FAILED)
        return self._hide(tasks.make_detail(job, await self._answer(job) if ended else None))  # type: ignore[no-any-return]

    async def cancel_task(self, ctx: Any, params: tasks.TaskParams) -> dict[str, Any]:
        """Cancel a task; `get_task` reports when it has ended."""
        await self._admit_reading(ctx)
        job = self._task(ctx, params, cancel=True)
        self._home(job.id).cancel(job)
        return {}

    async def update_task(self, ctx: Any, params: tasks.UpdateParams) -> dict[str, Any]:
        """Acknowledge answers from the client, although tasks never ask questions."""
        self._task(ctx, params)
        return {}

    def _task(self, ctx: Any, params: tasks.TaskParams, *, cancel: bool = False) -> Job:
        if not tasks.supports_tasks(ctx):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {tasks.EXTENSION: {}}}}
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"the client must declare the {tasks.EXTENSION} extension",
                needed,
            )
        try:
            return self._find(ctx, params.task_id, cancel=cancel)
        except InputError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error

    # --- resources ---

    async def list_resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        """List files written by calls to this server, most recent first."""
        await self._admit_reading(ctx)
        return self.outputs.list()

    async def read_resource(
        self, ctx: Any, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read an output file, as text if possible, up to the size limit."""
        uri = str(params.uri)
        await self._admit_reading(ctx, unquote(uri.removeprefix(content.SCHEME)))
        try:
            return await anyio.to_thread.run_sync(self.outputs.read, uri)
        except InputError as error:
            raise MCPError(types.INVALID_PARAMS, self._hide(str(error))) from error

    # --- prompts ---

    async def complete(self, ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Complete a prompt argument (cohort, endpoint, folder) or a resource argument (file)."""
        await self._admit_reading(ctx)
        if isinstance(params.ref, types.PromptReference):
            given = (params.context.arguments if params.context else None) or {}
            values = await anyio.to_thread.run_sync(
                complete_argument, self.roots, params.argument.name, given
            )
        else:
            values = [row["path"] for row in self.outputs.recent]
        typed = params.argument.value.casefold()
        fitting = [value for value in values if value.casefold().startswith(typed)]
        return types.CompleteResult(
            completion=types.Completion(
                values=fitting[:100], total=len(fitting), has_more=len(fitting) > 100
            )
        )

    def build(self) -> Server[Any]:
        """Build an SDK server with these handlers."""
        server: Server[Any] = Server(
            self.name,
            version=own_version(),
            instructions=INSTRUCTIONS if self.full else f"{INSTRUCTIONS} {COMPACT}",
            get_tool_input_schema=self.input_schema,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,  # type: ignore[arg-type]  # a task is the extension's
            on_list_resources=self.list_resources,
            on_list_resource_templates=list_templates,
            on_read_resource=self.read_resource,
            on_list_prompts=prompting.list_prompts,
            on_get_prompt=prompting.get_prompt,
            on_completion=self.complete,
        )
        server.extensions[tasks.EXTENSION] = {}
        server.add_request_handler("tasks/get", tasks.TaskParams, self.get_task)
        server.add_request_handler("tasks/cancel", tasks.TaskParams, self.cancel_task)
        server.add_request_handler("tasks/update", tasks.UpdateParams, self.update_task)
        return server


INSTRUCTIONS = (
    "Tools of SAGE for computational pathology and clinical oncology. Paths are relative to the "
    "server's roots; files written by a tool can be passed to other tools by their `path`. A "
    'call that takes long returns state "running" and a job: call job_result with it. Results '
    "include provenance, and learned tools report when they fell back to a classical method. "
    "Patient rows and counts of groups under five never leave the server."
)

COMPACT = (
    "Only a few tools are listed: search_tools finds the others by words, describe_tool gives the "
    "arguments of a tool, call_tool runs it."
)


def _job_tools(output_schema: dict[str, Any] | None) -> list[types.Tool]:
    return [
        types.Tool(
            name=name,
            title=title,
            description=summary,
            input_schema=JOB_ARGUMENT,
            output_schema=output_schema,
            annotations=types.ToolAnnotations(
                read_only_hint=name != "job_cancel", open_world_hint=False
            ),
        )
        for name, (title, summary) in JOB_TOOLS.items()
    ]


def _inner_call(arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and arguments of the call inside `call_tool`."""
    name, inner = arguments.get("name"), arguments.get("arguments", {})
    if not isinstance(name, str) or not isinstance(inner, dict) or len(arguments) > 2:
        raise InputError("call_tool takes name (text) and arguments (an object)")
    if name in compact.TOOLS:
        raise InputError(f"call_tool can only call tools listed by search_tools, not {name}")
    return name, inner


def _owner(ctx: Any) -> str:
    """Identify the caller that owns a job: the person behind a proxy, else the HTTP session.

    Empty over stdio, which has one caller, and in the sessionless protocol, in which a job
    belongs to any caller that holds its random handle.
    """
    request = ctx.request
    if request is None:
        return ""
    person = (request.scope.get("state") or {}).get("person")
    return str(person or request.headers.get("mcp-session-id", ""))


def _priority(ctx: Any) -> int:
    """Return the priority from the request's `_meta`, 0 by default."""
    given = (ctx.meta or {}).get(PRIORITY, 0)
    if not isinstance(given, int) or isinstance(given, bool) or abs(given) > MOST_PRIORITY:
        raise InputError(
            f"{PRIORITY} must be an integer between -{MOST_PRIORITY} and {MOST_PRIORITY}"
        )
    return given


def complete_argument(roots: Roots, argument: str, given: Mapping[str, str]) -> list[str]:
    """Return completions for a prompt argument that exist under the roots."""
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


def make_error(message: str) -> types.CallToolResult:
    """Make a tool error that a model can read and correct."""
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)
