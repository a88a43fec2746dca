"""The local pool: warm, bounded, ordered, cancellable; a killed worker loses only its own time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcp_servers.roots import Roots
from mcp_servers.workers.jobs import Job, Recipe, State
from mcp_servers.workers.pool import LocalPool
from sage.core.errors import Cancelled, FaultError, InputError
from tests.mcp_servers.slide_tools import TOOLS


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    cache = tmp_path_factory.mktemp("cache")
    recipe = Recipe(tool_folders=(TOOLS,), cache_folder=str(cache))
    with LocalPool(recipe, workers=2, memory_mb=2048, gpus=1, grace=0.5) as made:
        yield made


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def warm(pool: LocalPool, roots: Roots) -> None:
    """Until every worker is up, however busy the machine is."""
    jobs = [pool.submit("wait", {"seconds": 60}, roots) for _ in range(pool.size)]
    until(lambda: all(job.state is State.RUNNING for job in jobs), 60)
    for job in jobs:
        pool.cancel(job)
        job.wait(20)


def test_workers_stay_warm_and_report_progress(pool: LocalPool, roots: Roots) -> None:
    seen: list[float] = []
    first = pool.submit(
        "wait", {"seconds": 0.5}, roots, on_change=lambda job: seen.append(job.fraction)
    ).result(30)
    second = pool.submit("wait", {"seconds": 0.0}, roots).result(30)
    assert first.result["pid"] == second.result["pid"]
    assert first.result["pid"] != os.getpid()
    assert sorted(seen) == seen
    assert any(0 < item < 1 for item in seen)


def test_higher_priority_goes_first(pool: LocalPool, roots: Roots) -> None:
    warm(pool, roots)
    blockers = [pool.submit("wait", {"seconds": 0.5}, roots) for _ in range(2)]
    until(lambda: all(job.state is State.RUNNING for job in blockers))
    low = [pool.submit("wait", {"seconds": 0.2}, roots) for _ in range(3)]
    high = pool.submit("wait", {"seconds": 0.2}, roots, priority=5)
    started = high.result(30).result["started"]
    # The two blockers end together, so one low job may start beside the high one, none before it.
    assert sum(job.result(30).result["started"] < started - 0.05 for job in low) == 0


def test_a_worker_killed_from_outside_mid_job_is_replaced(pool: LocalPool, roots: Roots) -> None:
    job = pool.submit("wait", {"seconds": 1.0}, roots)
    until(lambda: job.fraction > 0.1)
    before = pool.pids()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert job.result(30).result["pid"] not in before
    assert job.attempts >= 2  # the idle worker was killed as well, perhaps with the job


def test_a_job_that_always_kills_its_worker_fails_and_says_so(
    pool: LocalPool, roots: Roots
) -> None:
    job = pool.submit("crash", {"marker": "m", "times": 99}, roots)
    with pytest.raises(FaultError, match=r"crash: .*-9"):
        job.result(30)
    assert [path.name for path in roots.output.iterdir()] == ["m"]
    assert pool.submit("wait", {"seconds": 0}, roots).result(30)


def test_a_running_job_is_cancelled(pool: LocalPool, roots: Roots) -> None:
    job = pool.submit("wait", {"seconds": 60}, roots)
    until(lambda: job.fraction > 0)
    before = pool.pids()
    pool.cancel(job)
    with pytest.raises(Cancelled):
        job.result(10)
    assert job.state is State.CANCELLED
    assert pool.pids() == before


def test_a_job_that_ignores_cancelling_loses_its_worker(pool: LocalPool, roots: Roots) -> None:
    job = pool.submit("wait", {"seconds": 60, "stubborn": True}, roots)
    until(lambda: job.state is State.RUNNING)
    pool.cancel(job)
    with pytest.raises(Cancelled):
        job.result(10)
    assert pool.submit("wait", {"seconds": 0}, roots).result(30)


def test_a_job_beyond_its_memory_fails_and_says_how_much(pool: LocalPool, roots: Roots) -> None:
    with pytest.raises(FaultError, match="1024 MiB"):
        pool.submit("eat", {"megabytes": 1200}, roots).result(60)
    assert pool.submit("wait", {"seconds": 0}, roots).result(30)


def test_what_can_never_run_is_refused_at_once(pool: LocalPool, roots: Roots) -> None:
    for name, given in (("gorge", {}), ("wait", {"seconds": "long"}), ("dance", {})):
        with pytest.raises(InputError, match=name if name != "wait" else "seconds"):
            pool.submit(name, given, roots)
    with (
        LocalPool(Recipe(tool_folders=(TOOLS,)), workers=1, memory_mb=2048, gpus=0) as bare,
        pytest.raises(InputError, match="needs_gpu"),
    ):
        bare.submit("needs_gpu", {}, roots)


def test_a_tool_error_crosses_the_border_as_itself(pool: LocalPool, roots: Roots) -> None:
    with pytest.raises(InputError, match=r'"gone.png" was not found'):
        pool.submit("preview", {"slide": "gone.png"}, roots).result(30)


def test_closing_cancels_and_leaves_no_process(roots: Roots) -> None:
    pool = LocalPool(Recipe(tool_folders=(TOOLS,)), workers=1, gpus=0, grace=0.5)
    running: Job = pool.submit("wait", {"seconds": 60, "stubborn": True}, roots)
    queued = pool.submit("wait", {"seconds": 60}, roots)
    until(lambda: running.state is State.RUNNING)
    pids = pool.pids()
    pool.close()
    assert (running.state, queued.state) == (State.CANCELLED, State.CANCELLED)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(FaultError, match="closed"):
        pool.submit("wait", {"seconds": 0}, roots)
