"""The MCP servers, through the SDK's own client, over stdio and over HTTP to a real process."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from PIL import Image

from mcp_servers.knowledge.runs import Answer
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from mcp_servers.servers.content import load_image
from mcp_servers.servers.options import Limits
from mcp_servers.servers.server import ToolServer
from mcp_servers.servers.start import open_server
from mcp_servers.workers.inline import InlineWorkers
from sage.core.errors import Cancelled
from tests.mcp_servers.slide_tools import ROOT, TOOLS, environment
from tests.warm import HERE, Warm, run_warm

pytestmark = pytest.mark.anyio
TOKEN = "a-token-of-the-tests-0123456789"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of all servers, and a file beside them that none may give away."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "in").mkdir()
    Image.new("RGB", (200, 100), "red").save(folder / "in" / "red.png")
    (folder / "secret.txt").write_text("secret")
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """Address of a server that waits for its jobs."""
    with http_server(folder) as url:
        yield url


@pytest.fixture(scope="module")
def hasty_url(folder: Path) -> Iterator[str]:
    """Address of a server that gives a handle where a job takes longer than a moment."""
    with http_server(folder, "--wait", "0.2") as url:
        yield url


def words(folder: Path, *more: str) -> list[str]:
    return [
        "-m", "sage", "tools", "serve", "oncology", "--root", str(folder / "in"),
        "--out", str(folder / "out"), "--tools", TOOLS, "--workers", "1", *more,
    ]  # fmt: skip


@contextlib.contextmanager
def http_server(folder: Path, *more: str) -> Iterator[str]:
    """A real server process; yields its address."""
    token = folder / "token.txt"
    token.write_text(TOKEN + "\n")
    command = words(folder, "--transport", "http", "--port", "0", *more)[2:]
    command += ["--token-file", str(token)]
    process = Warm(command, cwd=folder, env=environment(), piped=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            found = re.search(r"https?://\S+", line)
            if found:
                break
        else:
            raise AssertionError("the server did not start")
        yield found.group(0)
    finally:
        process.terminate()
        assert process.wait(20) == 0  # it ended itself: what it had under way was stopped first
        process.stderr.close()


def drive_warm(given: Sequence[str], stop: Callable[[], bool]) -> Answer:
    """`sage` as a server drives it, in a fork of the warm process."""
    running = Warm(given, cwd=Path.cwd(), env={**environment(), HERE: "1"})
    while running.poll() is None:
        if stop():
            running.terminate()
            running.wait(30)
            raise Cancelled("cancelled by the caller")
        time.sleep(0.02)
    return Answer(running.wait(), *running.communicate())


@contextlib.asynccontextmanager
async def connected(
    folder: Path, suite: str = "all", wait: float = 45.0, **client: Any
) -> AsyncIterator[Client]:
    """A client of a server in this process; what the server drives is warm."""
    roots = Roots.resolve([folder / "in"], folder / "out")
    limits = Limits(wait=wait, task_after=wait)
    cache = str(folder / "cache")
    with open_server(
        suite, roots, workers="1", cache_folder=cache, limits=limits, drive=drive_warm
    ) as server:
        async with Client(server.build(), read_timeout_seconds=60, **client) as connection:
            yield connection


@contextlib.asynccontextmanager
async def http(url: str, token: str | None = TOKEN, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as transport:
        connection = streamable_http_client(url, http_client=transport)
        async with Client(connection, mode=mode, read_timeout_seconds=60) as client:
            yield client


def data(result: Any) -> dict[str, Any]:
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def test_a_caller_over_http_that_gives_up_frees_the_worker(url: str) -> None:
    async with http(url) as client:
        with anyio.move_on_after(0.5) as scope:
            await client.call_tool("wait", {"seconds": 60})
        assert scope.cancelled_caught
        started = time.monotonic()
        assert data(await client.call_tool("wait", {"seconds": 0}))["state"] == "done"
        assert time.monotonic() - started < 15


async def test_http_gives_images_as_content_and_as_resources(folder: Path, url: str) -> None:
    async with http(url) as client:
        answer = await client.call_tool("preview", {"slide": "red.png"})
        found = data(answer)
        picture = next(item for item in answer.content if item.type == "image")
        assert base64.b64decode(picture.data).startswith(b"\x89PNG")
        (file,) = found["files"]
        assert file["path"] == found["result"]["image"]
        assert (folder / "out" / file["path"]).is_file()
        link = next(item for item in answer.content if item.type == "resource_link")
        read = await client.read_resource(link.uri)
        assert base64.b64decode(read.contents[0].blob) == base64.b64decode(picture.data)
        listed = (await client.list_resources()).resources
        assert [item.uri for item in listed] == [file["uri"]]
        # What one tool wrote, another can read.
        again = data(await client.call_tool("preview", {"slide": file["path"]}))
        assert again["result"]["width"] == 64


def test_http_without_the_token_is_refused(url: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    wrong = [f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN, "Bearer x"]
    for given in ({}, *({"Authorization": item} for item in wrong)):
        answer = httpx.post(url, json=body, headers=given)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert "logrank" not in answer.text


@pytest.mark.parametrize("more", [["--host", "0.0.0.0", "--no-token"], ["--token", "short"]])
def test_a_server_open_to_strangers_does_not_start(folder: Path, more: list[str]) -> None:
    command = words(folder, "--transport", "http", "--port", "0", *more)[2:]
    done = run_warm(command, cwd=folder, env=environment(), timeout=60)
    assert done.returncode == 2
    assert "token" in done.stderr


async def test_a_long_call_returns_a_handle_and_the_job_can_be_asked(hasty_url: str) -> None:
    async with http(hasty_url) as client:
        first = data(await client.call_tool("wait", {"seconds": 0.6}))
        assert first["state"] in ("queued", "running")
        assert first["result"] is None
        assert "job_result" in first["message"]
        while data(await client.call_tool("job_status", {"job": first["job"]}))["fraction"] < 1:
            await anyio.sleep(0.1)
        last = data(await client.call_tool("job_result", {"job": first["job"]}))
        assert last["state"] == "done"
        assert last["result"]["pid"] > 0


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_progress_is_notified(hasty_url: str, mode: str) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with http(hasty_url, mode=mode) as client:
        answer = await client.call_tool("wait", {"seconds": 0.8}, progress_callback=heard)
        assert data(answer)["state"] == "done"
    assert len(seen) > 3
    assert [item[0] for item in seen] == sorted(item[0] for item in seen)
    assert seen[-1][1:] == (1.0, "waiting")


async def test_a_job_is_not_canceled_by_another_caller_of_the_same_token(hasty_url: str) -> None:
    async with http(hasty_url, mode="legacy") as owner, http(hasty_url, mode="legacy") as other:
        job = {"job": data(await owner.call_tool("wait", {"seconds": 60}))["job"]}
        assert (await other.call_tool("job_cancel", job)).is_error
        assert data(await owner.call_tool("job_status", job))["state"] in ("queued", "running")
        assert data(await owner.call_tool("job_cancel", job))["state"] == "cancelled"


async def test_job_cancel_stops_a_running_job(hasty_url: str) -> None:
    async with http(hasty_url) as client:
        job = data(await client.call_tool("wait", {"seconds": 60}))["job"]
        ended = data(await client.call_tool("job_cancel", {"job": job}))
        assert ended["state"] == "cancelled"
        answer = await client.call_tool("job_result", {"job": job})
        assert answer.is_error
        # The one worker is free again.
        assert data(await client.call_tool("wait", {"seconds": 0}))["job"]


async def test_no_path_leaves_the_roots(folder: Path, url: str) -> None:
    (folder / "in" / "link.png").symlink_to(folder / "secret.txt")
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / "link.txt").symlink_to(folder / "secret.txt")

    async with http(url) as client:
        for path in ("../secret.txt", str(folder / "secret.txt"), "link.png", "/etc/passwd"):
            answer = await client.call_tool("preview", {"slide": path})
            assert answer.is_error
            assert "outside" in answer.content[0].text
        for uri in (
            "sage://output/../secret.txt",
            "sage://output/%2e%2e/secret.txt",
            "sage://output/link.txt",
            "sage://output//etc/passwd",
            "file:///etc/passwd",
        ):
            with pytest.raises(MCPError):
                await client.read_resource(uri)


async def test_wrong_arguments_come_back_as_words_a_model_can_use(url: str) -> None:
    async with http(url) as client:
        answer = await client.call_tool("cox", {"cohort": "gbsg2", "endpoint": "OS"})
        assert answer.is_error
        assert "covariates: Field required" in answer.content[0].text
        answer = await client.call_tool(
            "cox", {"cohort": "gbsg2", "endpoint": "OS", "covariates": ["clinical:age"]}
        )
        assert "RFS" in answer.content[0].text  # the one that it has
        with pytest.raises(MCPError):
            await client.call_tool("rm_rf", {})
        answer = await client.call_tool("job_status", {"job": "unknown"})
        assert answer.is_error


async def test_a_request_or_a_queue_beyond_its_bound_is_refused(folder: Path) -> None:
    roots = Roots.resolve([folder / "in"], folder / "out")
    workers = InlineWorkers(load("oncology", tool_folders=[TOOLS]))
    bounds = Limits(request=1000, jobs=1, wait=0.1)
    async with Client(ToolServer("test", roots, workers, limits=bounds).build()) as client:
        with pytest.raises(MCPError, match="1000"):
            await client.call_tool("preview", {"slide": "x" * 2000})
        first = data(await client.call_tool("wait", {"seconds": 5}))
        second = await client.call_tool("wait", {"seconds": 5})
        assert second.is_error
        await client.call_tool("job_cancel", {"job": first["job"]})


async def test_the_overlay_of_a_real_slide_can_be_read_as_a_resource(folder: Path) -> None:
    roots = Roots.resolve([folder / "in"], folder / "out")
    size = 10_658_406  # nuclei on a real scan of 3,000 px
    (folder / "out" / "overlay.png").write_bytes(bytes(size))
    (folder / "out" / "huge.png").write_bytes(bytes(40 << 20))
    server = ToolServer("test", roots, InlineWorkers(load("oncology")))
    async with Client(server.build()) as client:
        (one,) = (await client.read_resource("sage://output/overlay.png")).contents
        assert len(base64.b64decode(one.blob)) == size
        with pytest.raises(MCPError, match=r"huge\.png"):
            await client.read_resource("sage://output/huge.png")


def test_a_large_image_is_shown_smaller(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(1100 * 1100 * 3)
    Image.frombytes("RGB", (1100, 1100), noise).save(tmp_path / "big.png")
    shown = load_image(tmp_path / "big.png", "image/png", 1 << 20)
    assert shown is not None
    assert shown.mime_type == "image/jpeg"
    with Image.open(io.BytesIO(base64.b64decode(shown.data))) as small:
        assert small.size == (1024, 1024)
    (tmp_path / "fake.png").write_bytes(b"x" * (2 << 20))
    assert load_image(tmp_path / "fake.png", "image/png", 1 << 20) is None


async def test_a_large_result_goes_to_a_file(folder: Path) -> None:
    roots = Roots.resolve([folder / "in"], folder / "out")
    workers = InlineWorkers(load("oncology"))
    server = ToolServer("test", roots, workers, limits=Limits(result=2000))
    async with Client(server.build()) as client:
        answer = await client.call_tool("describe_cohort", {"cohort": "gbsg2"})
        found = data(answer)
        assert found["result"] is None
        text = (await client.read_resource(found["files"][0]["uri"])).contents[0].text
        assert json.loads(text)["result"]["n_patients"] == 686


@pytest.mark.skipif(shutil.which("mcp-inspector") is None, reason="the MCP Inspector is missing")
def test_the_inspector_calls_a_tool(folder: Path) -> None:
    config = {
        "mcpServers": {
            "sage": {
                "type": "stdio",
                "command": sys.executable,
                "args": words(folder, "--full"),
                "env": {"PYTHONPATH": f"{ROOT}:{ROOT / 'plugins'}"},
            }
        }
    }
    (folder / "mcp.json").write_text(json.dumps(config))
    done = subprocess.run(
        ["mcp-inspector", "--cli", "--config", "mcp.json", "--server", "sage",
         "--method", "tools/call", "--tool-name", "logrank", "--tool-arg", "cohort=gbsg2",
         "endpoint=RFS", "group=clinical:hormonal_therapy"],
        capture_output=True, text=True, cwd=folder, timeout=120,
        env={**os.environ, "MCP_INSPECTOR_SECRET_STORE": "memory"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["structuredContent"]["result"]["df"] == 1
