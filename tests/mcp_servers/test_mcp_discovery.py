"""What a client learns beside calling: hints, titles, prompts, completions, being asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from mcp_servers.knowledge.runs import run_tools
from mcp_servers.registry import Registry, load
from mcp_servers.roots import Roots
from mcp_servers.servers.server import JOB_TOOLS, ToolServer
from mcp_servers.workers.inline import InlineWorkers
from tests.mcp_servers.slide_tools import TOOLS, blobs, png, pyramid
from tests.mcp_servers.test_mcp_oncology import small_cohort

pytestmark = pytest.mark.anyio
READ_ONLY = {
    *("graph_communities", "graph_concept", "graph_evidence", "graph_paths", "graph_search"),
    *("concordance", "cox", "describe_cohort", "ontology_terms"),
    *("list_cohorts", "list_slides", "logrank", "signature_scores", "slide_properties"),
    *("run_status", "job_status", "job_result"),
}


@contextlib.asynccontextmanager
async def connected(
    folder: Path, suite: str = "all", options: dict[str, Any] | None = None, **client: Any
) -> AsyncIterator[Client]:
    driven = Registry()
    for spec in run_tools(lambda words, stop: NotImplemented):
        driven.add(spec)
    workers = InlineWorkers(load(suite, tool_folders=[TOOLS]))
    roots = Roots.resolve([folder], folder / "out")
    server = ToolServer("test", roots, workers, InlineWorkers(driven), **(options or {}))
    async with Client(server.build(), **client) as connection:
        yield connection


def data(answer: Any) -> dict[str, Any]:
    assert not answer.is_error, answer.content
    found: dict[str, Any] = answer.structured_content
    return found


async def test_every_tool_has_a_title_and_says_whether_it_only_reads(tmp_path: Path) -> None:
    own = {spec.name for spec in load("all")}
    async with connected(tmp_path, options={"full": True}) as client:
        answer = (await client.list_tools()).tools
    tools = [
        tool for tool in answer if tool.name in own | set(JOB_TOOLS) | {"start_run", "run_status"}
    ]
    assert {tool.name for tool in tools} >= own | {"start_run", "job_status"}
    assert [tool.name for tool in tools if not tool.title or tool.title == tool.name] == []
    told = {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint}
    assert told == READ_ONLY
    (schema,) = [tool.output_schema for tool in tools if tool.name == "logrank"]
    assert schema is not None
    assert schema["properties"]["result"]["anyOf"][0]["properties"]["p"]


async def test_search_finds_the_tool_that_a_task_names(tmp_path: Path) -> None:
    tasks = {
        "tertiary lymphoid structures": "tls",
        "compare survival of two groups": "logrank",
        "which slides are there": "list_slides",
        "hazard ratios with covariates": "cox",
        "relation between genes in papers": "graph_evidence",
        "start a research run": "start_run",
    }

    async with connected(tmp_path) as client:
        assert len((await client.list_tools()).tools) == 6
        found = {}
        for task in tasks:
            answer = data(await client.call_tool("search_tools", {"query": task}))
            found[task] = [row["name"] for row in answer["tools"][:4]]
        whole = data(await client.call_tool("search_tools", {}))
        assert {row["name"] for row in whole["tools"]} >= {spec.name for spec in load("all")}
    assert [task for task, tool in tasks.items() if tool not in found[task]] == []


async def test_compact_mode_describes_calls_and_refuses(tmp_path: Path) -> None:
    async with connected(tmp_path, "oncology") as client:
        told = data(await client.call_tool("describe_tool", {"name": "logrank"}))
        assert set(told["arguments"]["required"]) == {"cohort", "endpoint", "group"}
        given = {"cohort": "gbsg2", "endpoint": "RFS", "group": "clinical:hormonal_therapy"}
        inner = {"name": "logrank", "arguments": given}
        assert data(await client.call_tool("call_tool", inner))["result"]["df"] == 1
        for wrong, said in (
            ({"name": "call_tool", "arguments": {}}, "call_tool"),
            ({"arguments": {}}, "name"),
            ({"name": "logrank", "arguments": []}, "arguments"),
            ({"name": "logrank", "arguments": {"cohort": "x"}}, "endpoint"),
        ):
            answer = await client.call_tool("call_tool", wrong)
            assert answer.is_error
            assert said in answer.content[0].text
        answer = await client.call_tool("describe_tool", {"name": "nothing"})
        assert answer.is_error
        with pytest.raises(MCPError):
            await client.call_tool("call_tool", {"name": "rm", "arguments": {}})


async def test_prompts_are_listed_filled_and_completed(tmp_path: Path) -> None:
    small_cohort(tmp_path / "small", [(f"p{i}", "ab"[i % 2], 100 + i, i % 2) for i in range(20)])
    (tmp_path / "slides").mkdir()
    png(tmp_path / "slides" / "a.png", blobs(64, 64))

    async with connected(tmp_path) as client:
        for prompt in (await client.list_prompts()).prompts:
            assert prompt.title
            given = {argument.name: f"<{argument.name}>" for argument in prompt.arguments or []}
            answer = await client.get_prompt(prompt.name, given)
            text = answer.messages[0].content.text
            assert all(value in text for value in given.values())
            assert "{" not in text
        with pytest.raises(MCPError):
            await client.get_prompt("know_a_cohort", {})
        tricky = await client.get_prompt(
            "test_a_question", {"cohort": "{question}", "question": "{cohort}?"}
        )
        assert "on the cohort {question}" in tricky.messages[0].content.text
        reference = types.PromptReference(name="slides_and_survival")

        async def offered(name: str, value: str, **given: str) -> list[str]:
            answer = await client.complete(
                reference, {"name": name, "value": value}, context_arguments=given or None
            )
            return answer.completion.values

        assert await offered("cohort", "") == ["small", "gbsg2"]
        assert await offered("cohort", "GB") == ["gbsg2"]
        assert await offered("endpoint", "") == ["OS", "RFS"]
        assert await offered("endpoint", "", cohort="gbsg2") == ["RFS"]
        assert await offered("slides", "s") == ["slides"]


@pytest.mark.parametrize(
    ("mode", "answer", "found"),
    [
        ("auto", types.ElicitResult(action="accept", content={"mpp": 0.5}), 0.5),
        ("auto", types.ElicitResult(action="accept", content={"mpp": -1}), "mpp"),
        ("legacy", types.ElicitResult(action="decline"), "s.tif"),
        ("auto", None, "s.tif"),
    ],
)
async def test_a_missing_pixel_size_is_asked_of_the_user(
    tmp_path: Path, mode: str, answer: types.ElicitResult | None, found: Any
) -> None:
    pyramid(tmp_path / "s.tif", blobs(512, 512), mpp=None)
    asked: list[str] = []

    async def reply(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        assert answer is not None
        return answer

    callback = {"elicitation_callback": reply} if answer is not None else {}
    async with connected(tmp_path, "pathology", mode=mode, **callback) as client:
        result = await client.call_tool("tissue_mask", {"slide": "s.tif"})
    assert len(asked) == (answer is not None)
    assert all("s.tif" in message for message in asked)
    if isinstance(found, float):
        told = data(result)["result"]
        assert (told["mpp"], told["mpp_source"]) == (found, "override")
    else:
        assert result.is_error
        assert found in result.content[0].text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_folders_of_the_client_are_the_roots_only_where_none_was_given(
    tmp_path: Path, mode: str
) -> None:
    inside, other = tmp_path / "in", tmp_path / "mine"
    for folder, name in ((inside, "theirs.png"), (other, "mine.png")):
        folder.mkdir()
        png(folder / name, blobs(64, 64))

    async def roots(context: Any) -> types.ListRootsResult:
        root = types.Root(uri=other.as_uri())  # type: ignore[arg-type]
        gone = types.Root(uri=(tmp_path / "gone").as_uri())  # type: ignore[arg-type]
        return types.ListRootsResult(roots=[root, gone])

    for ask, name in ((True, "mine.png"), (False, "theirs.png")):
        client_options: dict[str, Any] = {"mode": mode, "list_roots_callback": roots}
        async with connected(inside, "pathology", {"ask_roots": ask}, **client_options) as client:
            for _ in range(2):
                told = data(await client.call_tool("list_slides", {}))["result"]
                assert told["slides"][0]["slide"] == name


async def test_a_priority_in_meta_reaches_the_queue(tmp_path: Path) -> None:
    seen: list[int] = []

    class Noting(InlineWorkers):
        def submit(self, *args: Any, **options: Any) -> Any:
            seen.append(options["priority"])
            return super().submit(*args, **options)

    roots = Roots.resolve([tmp_path], tmp_path / "out")
    server = ToolServer("test", roots, Noting(load("oncology", tool_folders=[TOOLS])))
    async with Client(server.build()) as client:
        await client.call_tool("wait", {"seconds": 0}, meta={"sage/priority": 7})
        await client.call_tool("wait", {"seconds": 0})
        answer = await client.call_tool("wait", {"seconds": 0}, meta={"sage/priority": 1000})
        assert answer.is_error
        assert "priority" in answer.content[0].text
    assert seen == [7, 0]
