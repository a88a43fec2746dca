"""Tasks of the protocol over stdio: a handle at once, progress, result later, cancel, go on."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from mcp_servers.roots import Roots
from mcp_servers.servers.tasks import EXTENSION, make_detail, make_task_result
from mcp_servers.spec import Resources
from mcp_servers.workers.jobs import Job
from tests.mcp_servers.measures.test_over_cohort import simulated, write_all
from tests.mcp_servers.test_mcp_server import data, environment, words

FORMULAS = [f"mean(ripley_l(cells.lymphoid, {radius}))" for radius in range(10, 30)]
ENDED = ("completed", "failed", "cancelled")


class Created(types.Result):
    """A call's answer where the server made a task."""

    result_type: Literal["task"]
    task_id: str
    status: str
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int


class Asked(types.RequestParams):
    """Which task; all else as given."""

    model_config = ConfigDict(extra="allow")
    task_id: str


class Anything(types.Result):
    """Whatever a task's request answers."""

    model_config = ConfigDict(extra="allow")


async def about(session: Any, method: str, task: str, **more: Any) -> dict[str, Any]:
    params = Asked.model_validate({"taskId": task, **more})
    request = types.Request[Asked, str](method=method, params=params)
    answer = await session.send_request(request, Anything)
    return dict(answer.model_dump(by_alias=True, mode="json"))


async def until_ended(session: Any, task: str, seen: list[dict[str, Any]]) -> dict[str, Any]:
    with anyio.fail_after(120):
        while True:
            seen.append(await about(session, "tasks/get", task))
            if seen[-1]["status"] in ENDED:
                return seen[-1]
            await anyio.sleep(0.1)


class Tasks(ClientExtension):
    """A client that polls a task to its end, as one that knows nothing of SAGE would."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def resolve(task: Created, ctx: ClaimContext) -> types.CallToolResult:
            ended = await until_ended(ctx.session, task.task_id, [])
            return types.CallToolResult.model_validate(ended["result"])

        return [ResultClaim(result_type="task", model=Created, resolve=resolve)]


@contextlib.asynccontextmanager
async def server(folder: Path, extensions: Sequence[Any] = (Tasks(),)) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(
        command=sys.executable, args=words(folder, "--wait", "0.2", suite="all"),
        env=environment(), cwd=str(folder),
    )  # fmt: skip
    async with Client(parameters, read_timeout_seconds=60, extensions=list(extensions)) as client:
        yield client


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_all(
        tmp_path / "in" / "maps",
        [simulated(f"p{n:02d}", f"p{n:02d}", n, 100 + 5 * n) for n in range(16)],
    )
    return tmp_path


GIVEN = {"maps": "maps", "formulas": FORMULAS}


def test_a_client_with_tasks_gets_the_result_of_a_long_call_in_the_end(folder: Path) -> None:
    async def main() -> dict[str, Any]:
        async with server(folder) as client:
            assert EXTENSION in (client.server_capabilities.extensions or {})
            return data(await client.call_tool("measure_cohort", GIVEN))

    answer = asyncio.run(main())
    assert answer["state"] == "done"
    assert (answer["result"]["patients"], answer["result"]["measurements"]) == (16, len(FORMULAS))
    assert answer["result"]["failures"] == {}


def test_a_task_says_how_far_its_job_is(tmp_path: Path) -> None:
    job = Job("measure_cohort", {}, Roots.resolve([tmp_path], tmp_path), Resources())
    assert make_task_result(job)["statusMessage"] == "0%: queued"
    job.report(0.375, "6 of 16 slides")
    assert (told := make_detail(job, None))["statusMessage"] == "38%: 6 of 16 slides"
    assert (told["taskId"], told["status"], "result" in told) == (job.id, "working", False)


def test_a_task_is_there_at_once_tells_progress_and_keeps_its_result(folder: Path) -> None:
    async def main() -> tuple[Any, list[dict[str, Any]], dict[str, Any]]:
        async with server(folder) as client:
            session = client.session
            made = await session.call_tool("measure_cohort", GIVEN, allow_claimed=True)
            seen: list[dict[str, Any]] = []
            await until_ended(session, made.task_id, seen)
            return made, seen, await about(session, "tasks/get", made.task_id)

    made, seen, later = asyncio.run(main())
    assert isinstance(made, Created)
    assert made.status == "working"
    assert {step["status"] for step in seen} == {"working", "completed"}
    assert all(step["taskId"] == made.task_id and step["resultType"] == "complete" for step in seen)
    assert all("result" not in step for step in seen[:-1])
    shares = [int(step["statusMessage"].split("%")[0]) for step in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert later["result"] == seen[-1]["result"]
    assert later["result"]["structuredContent"]["result"]["slides"] == 16
    assert str(folder) not in str(seen)


def test_a_cancelled_task_ends_and_the_next_goes_on_where_it_was(folder: Path) -> None:
    async def main() -> tuple[dict[str, Any], int, dict[str, Any]]:
        async with server(folder) as client:
            session = client.session
            made = await session.call_tool("measure_cohort", GIVEN, allow_claimed=True)
            out = folder / "out" / "measure_cohort"
            with anyio.fail_after(60):
                while len(list(out.glob("*/.rows/measure_maps/*/run.json"))) < 3:
                    await anyio.sleep(0.02)
            assert await about(session, "tasks/update", made.task_id, inputResponses={})
            await about(session, "tasks/cancel", made.task_id)
            ended = await until_ended(session, made.task_id, [])
            first = len(list(out.glob("*/.rows/measure_maps/*/run.json")))
            again = await client.call_tool("measure_cohort", GIVEN)
            return ended, first, data(again)

    ended, first, again = asyncio.run(main())
    assert ended["status"] == "cancelled"
    assert "result" not in ended
    assert first < 16
    assert again["result"]["slides"] == 16


def test_an_error_of_the_tool_is_the_result_of_its_call(folder: Path) -> None:
    async def main() -> types.CallToolResult:
        async with server(folder) as client:
            return await client.call_tool("measure_cohort", {"maps": "maps", "formulas": ["no(1)"]})

    answer = asyncio.run(main())
    assert answer.is_error
    assert "line 1" in str(answer.content)


def test_without_the_extension_a_client_gets_a_job_and_no_task(folder: Path) -> None:
    async def main() -> None:
        async with server(folder, ()) as client:
            answer = data(await client.call_tool("measure_cohort", GIVEN))
            assert answer["state"] in ("queued", "running")
            for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                with pytest.raises(MCPError, match="declare the extension"):
                    await about(client.session, method, answer["job"], inputResponses={})
            assert data(await client.call_tool("job_cancel", {"job": answer["job"]}))

    asyncio.run(main())


def test_an_unknown_task_is_refused(folder: Path) -> None:
    async def main() -> None:
        async with server(folder) as client:
            for wrong in ("nothing", "x" * 300, "../../etc"):
                with pytest.raises(MCPError):
                    await about(client.session, "tasks/get", wrong)

    asyncio.run(main())
