"""Tasks of the protocol: a handle at once, progress, result later, cancel, go on."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from mcp_servers.measures import over_mcp
from mcp_servers.servers.tasks import EXTENSION
from tests.mcp_servers.measures.test_over_cohort import simulated, write_all
from tests.mcp_servers.test_mcp_server import connected, data

pytestmark = pytest.mark.anyio
SLIDES = 40
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
            await anyio.sleep(0.05)


class Tasks(ClientExtension):
    """A client that polls a task to its end, as one that knows nothing of SAGE would."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def resolve(task: Created, ctx: ClaimContext) -> types.CallToolResult:
            ended = await until_ended(ctx.session, task.task_id, [])
            return types.CallToolResult.model_validate(ended["result"])

        return [ResultClaim(result_type="task", model=Created, resolve=resolve)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    slides = [simulated(f"p{n:02d}", f"p{n:02d}", n, 100 + 5 * n) for n in range(SLIDES)]
    write_all(folder / "in" / "maps", slides)
    return folder


@pytest.fixture(autouse=True)
def progress_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_mcp, "EVERY_SECONDS", 0.05)


def radii(*which: int) -> dict[str, Any]:
    """Arguments of a call that is long enough to be a task."""
    return {"maps": "maps", "formulas": [f"mean(ripley_l(cells.lymphoid, {r}))" for r in which]}


async def test_a_task_is_there_at_once_tells_progress_and_keeps_its_result(folder: Path) -> None:
    async with connected(folder, wait=0.2, extensions=[Tasks()]) as client:
        session = client.session
        made = await session.call_tool("measure_cohort", radii(10, 11), allow_claimed=True)
        seen: list[dict[str, Any]] = []
        await until_ended(session, made.task_id, seen)
        for wrong in ("nothing", "x" * 300, "../../etc"):
            with pytest.raises(MCPError):
                await about(session, "tasks/get", wrong)
        later = await about(session, "tasks/get", made.task_id)
    assert isinstance(made, Created)
    assert made.status == "working"
    assert {step["status"] for step in seen} == {"working", "completed"}
    assert all(step["taskId"] == made.task_id and step["resultType"] == "complete" for step in seen)
    assert all("result" not in step for step in seen[:-1])
    shares = [int(step["statusMessage"].split("%")[0]) for step in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert later["result"] == seen[-1]["result"]
    assert later["result"]["structuredContent"]["result"]["slides"] == SLIDES
    assert str(folder) not in str(seen)


async def test_a_cancelled_task_ends_and_the_next_goes_on_where_it_was(folder: Path) -> None:
    given = radii(*range(20, 80))
    out = folder / "out" / "measure_cohort"

    def done() -> set[str]:
        """Slides with all of the many values."""
        files = out.glob("*/.rows/measure_maps/*/run.json")
        return {file.parent.name for file in files if file.stat().st_mtime > began}

    began = time.time()
    async with connected(folder, wait=0.2, extensions=[Tasks()]) as client:
        assert EXTENSION in (client.server_capabilities.extensions or {})
        session = client.session
        made = await session.call_tool("measure_cohort", given, allow_claimed=True)
        with anyio.fail_after(60):
            while len(done()) < 3:
                await anyio.sleep(0.01)
        assert await about(session, "tasks/update", made.task_id, inputResponses={})
        await about(session, "tasks/cancel", made.task_id)
        ended = await until_ended(session, made.task_id, [])
        first = done()
        again = data(await client.call_tool("measure_cohort", given))
    assert ended["status"] == "cancelled"
    assert "result" not in ended
    assert 3 <= len(first) < SLIDES
    found = again["result"]
    assert (again["state"], found["slides"], found["measurements"]) == ("done", SLIDES, 60)
    assert found["failures"] == {}
    records = (folder / "out" / found["table"]).parent.glob("measure_maps/*/run.json")
    runs = {file.parent.name: json.loads(file.read_text())["run"] for file in records}
    assert first <= {name for name, run in runs.items() if run["provenance"]["cached"]}


async def test_without_the_extension_a_client_gets_a_job_and_no_task(folder: Path) -> None:
    async with connected(folder, wait=0.2) as client:
        answer = data(await client.call_tool("measure_cohort", radii(*range(80, 140))))
        assert answer["state"] in ("queued", "running")
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            with pytest.raises(MCPError, match="extension"):
                await about(client.session, method, answer["job"], inputResponses={})
        assert data(await client.call_tool("job_cancel", {"job": answer["job"]}))
