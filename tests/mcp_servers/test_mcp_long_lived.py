"""A server that lives for long: old outputs go, what is needed stays, runs take turns."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.servers.options import Limits
from mcp_servers.servers.prune import Bounds, prune
from mcp_servers.servers.server import ToolServer
from mcp_servers.servers.unfinished import TRIES, UnfinishedJob, UnfinishedJobs
from mcp_servers.spec import ATTRIBUTE, Resources, tool
from mcp_servers.workers.inline import InlineWorkers
from sage.core.errors import Cancelled, InputError
from sage.core.models import Strict
from tests.mcp_servers.test_mcp_server import data, http, http_server

DAY = 86_400.0


def call(output: Path, name: str, age_s: float, size: int = 1000) -> Path:
    """A call's folder of this age."""
    folder = output / "nuclei" / name.ljust(12, "0")
    folder.mkdir(parents=True)
    (folder / "cells.geojson").write_bytes(b"x" * size)
    then = time.time() - age_s
    for path in (folder / "cells.geojson", folder):
        os.utime(path, (then, then))
    return folder


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        (Bounds(), "abcd"),
        (Bounds(days=30), "bcd"),
        (Bounds(days=1), "bd"),  # b is needed, d is young
        (Bounds(megabytes=0.0025), "bd"),
        (Bounds(days=0, young_s=0), "b"),
    ],
)
def test_old_outputs_go_and_what_is_needed_or_young_stays(
    bounds: Bounds, kept: str, tmp_path: Path
) -> None:
    ages = {"a": 40 * DAY, "b": 20 * DAY, "c": 2 * DAY, "d": 60.0}
    folders = {name: call(tmp_path, name, age) for name, age in ages.items()}
    other = tmp_path / "mine" / "notes"
    other.mkdir(parents=True)
    would = prune(tmp_path, bounds, [folders["b"] / "cells.geojson"], dry=True)
    assert all(folder.is_dir() for folder in folders.values())
    found = prune(tmp_path, bounds, [folders["b"] / "cells.geojson"])
    assert found == would
    assert "".join(name for name, folder in folders.items() if folder.is_dir()) == kept
    assert found.kept_bytes == 1000 * len(kept)
    assert other.is_dir()


def test_a_link_among_the_outputs_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("x")
    out = tmp_path / "out" / "nuclei"
    out.mkdir(parents=True)
    (out / "0123456789ab").symlink_to(outside)
    prune(tmp_path / "out", Bounds(days=0, young_s=0))
    assert (outside / "keep").is_file()


class Nothing(Strict):
    """No argument."""


class Said(BaseModel):
    """An answer."""

    text: str


class Turns:
    """A tool that acts, and notes how many of its calls are at work at once."""

    def __init__(self) -> None:
        self.now, self.most = 0, 0
        self.open = threading.Event()
        lock = threading.Lock()

        @tool(
            "start_it", "knowledge", "1.0.0", "Start it.", Resources(), cacheable=False, acts=True
        )
        def start_it(given: Nothing, context: Any) -> Said:
            with lock:
                self.now += 1
                self.most = max(self.most, self.now)
            self.open.wait(10)
            with lock:
                self.now -= 1
            return Said(text="done")

        self.registry = Registry()
        self.registry.add(getattr(start_it, ATTRIBUTE))


def test_runs_take_turns_and_no_more_wait_than_jobs_may(tmp_path: Path) -> None:
    turns = Turns()
    roots = Roots.resolve([tmp_path], tmp_path / "out")
    with InlineWorkers(turns.registry, at_once=2) as inline, InlineWorkers(Registry()) as none:
        server = ToolServer("sage", roots, none, inline, Limits(jobs=5))
        jobs = [server._submit("start_it", {}, 0) for _ in range(5)]
        with pytest.raises(InputError):
            server._submit("start_it", {}, 0)
        until = time.monotonic() + 10
        while turns.now < 2 and time.monotonic() < until:
            time.sleep(0.01)
        jobs_now = {
            sample.labels["state"]: sample.value
            for family in server.metrics()
            for sample in family.samples
            if sample.name == "sage_jobs"
        }
        assert jobs_now == {"queued": 3, "running": 2}
        inline.cancel(jobs[4])
        with pytest.raises(Cancelled):
            jobs[4].result(10)
        turns.open.set()
        assert [job.result(10).result for job in jobs[:4]] == [{"text": "done"}] * 4
        assert turns.most == 2


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_job_longer_than_the_stop_is_taken_up_by_the_next_server(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with http_server(tmp_path, "--wait", "0.2") as url:
        async with http(url) as client:
            slow = data(await client.call_tool("wait", {"seconds": 2.0}))["job"]
            dropped = data(await client.call_tool("wait", {"seconds": 60.0}))["job"]
            await client.call_tool("job_cancel", {"job": dropped})
    assert [path.stem for path in (tmp_path / "out/.jobs").glob("*.json")] == [slow]
    with http_server(tmp_path, "--wait", "0.2") as url:
        async with http(url) as client:
            until = time.monotonic() + 60
            found = data(await client.call_tool("job_result", {"job": slow}))
            while found["state"] != "done" and time.monotonic() < until:
                found = data(await client.call_tool("job_result", {"job": slow}))
            assert found["state"] == "done"
            assert (await client.call_tool("job_status", {"job": dropped})).is_error
    assert not list((tmp_path / "out/.jobs").glob("*.json"))


def test_a_job_that_kills_every_server_is_given_up(tmp_path: Path) -> None:
    handle = "0123456789abcdef"
    job = UnfinishedJob(tool="slow", arguments={}, prefix="slow/0123456789ab")
    UnfinishedJobs(tmp_path).save(handle, job)
    (tmp_path / ".jobs/fedcba9876543210.json").write_text('{"tool": "slow", "prefix": "../../x"}')
    tries = [[name for name, _ in UnfinishedJobs(tmp_path).load()] for _ in range(TRIES + 1)]
    assert tries == [[handle]] * TRIES + [[]]
    assert not list((tmp_path / ".jobs").glob("*.json"))
