"""A run of SAGE started, followed and reviewed by an MCP client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcp_servers.knowledge.runs import Answer, run_tools
from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.workers.inline import InlineWorkers
from tests.mcp_servers.test_mcp_server import connected

pytestmark = pytest.mark.anyio


@pytest.mark.slow
async def test_an_agent_starts_a_run_and_answers_its_review(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_REASONER", "rules")
    monkeypatch.setenv("SAGE_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("FEW_DRAWS", "1")
    (tmp_path / "in").mkdir()

    async def ended_call(client: Any, tool: str, arguments: dict[str, Any]) -> Any:
        answer = await client.call_tool(tool, arguments)
        while not answer.is_error and answer.structured_content["state"] == "running":
            job = answer.structured_content["job"]
            answer = await client.call_tool("job_result", {"job": job})
        return answer

    async def call(client: Any, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = await ended_call(client, tool, arguments)
        assert not answer.is_error, answer.content
        result: dict[str, Any] = answer.structured_content["result"]
        return result

    async with connected(tmp_path, "knowledge", wait=1.0) as client:
        prompt = "Link tertiary lymphoid structures and genes in bladder cancer"
        started = await call(client, "start_run", {"prompt": prompt})
        assert started["status"] == "waiting for review"
        shown = await call(client, "run_status", {"run": started["run"]})
        assert shown["run"] == started["run"]
        rejected = {"run": started["run"], "decision": "reject", "reason": "not now"}
        ended = await call(client, "review_run", rejected)
        assert ended["run"] == started["run"]
        again = await ended_call(client, "review_run", rejected)
        assert again.is_error


def test_a_server_that_ends_waits_until_the_run_it_started_has_stopped(tmp_path: Path) -> None:
    under_way, stopped = threading.Event(), threading.Event()

    def drive(words: Sequence[str], stop: Callable[[], bool]) -> Answer:
        under_way.set()
        while not stop():
            time.sleep(0.01)
        time.sleep(0.3)  # a run puts itself back
        stopped.set()
        return Answer(1, "", "stopped")

    registry = Registry()
    for spec in run_tools(drive):
        registry.add(spec)
    with InlineWorkers(registry) as workers:
        roots = Roots.resolve([tmp_path], tmp_path / "out")
        for seed in range(3):
            workers.submit("start_run", {"prompt": "Does age matter?", "seed": seed}, roots)
        assert under_way.wait(5)
    assert stopped.is_set()
