"""Workers on a real local Ray cluster: the same promises as the local pool's."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_servers.roots import Roots
from mcp_servers.workers.base import Workers
from mcp_servers.workers.jobs import Recipe, State
from mcp_servers.workers.pool import open_workers
from sage.core.errors import Cancelled, FaultError, InputError
from sage_ray.workers import RayWorkers

TOOLS = str(Path(__file__).resolve().parents[3] / "tests" / "mcp_servers" / "tools")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="the extra sage-pathology[ray] is missing"
    ),
]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    cache = str(tmp_path_factory.mktemp("cache"))
    recipe = Recipe(tool_folders=(TOOLS,), cache_folder=cache)
    with open_workers("ray", recipe, grace=1.0) as made:
        yield made


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    (tmp_path / "in").mkdir()
    return Roots.resolve([tmp_path / "in"], tmp_path / "out")


def test_a_job_runs_on_ray_with_progress_and_provenance(workers: Workers, roots: Roots) -> None:
    seen: list[float] = []
    job = workers.submit(
        "wait", {"seconds": 2}, roots, on_change=lambda item: seen.append(item.fraction)
    )
    run = job.result(120)
    assert run.provenance.tool == "wait"
    assert any(0 < item < 1 for item in seen)
    again = workers.submit("wait", {"seconds": 0}, roots).result(60)
    assert again.result["pid"] > 0


def test_a_killed_ray_worker_costs_its_job_only_time(workers: Workers, roots: Roots) -> None:
    job = workers.submit("crash", {"marker": "m"}, roots)
    assert job.result(120).result["attempts"] == 2
    assert job.attempts == 2
    assert sorted(path.name for path in roots.output.iterdir()) == ["half.txt", "m"]
    hopeless = workers.submit("crash", {"marker": "n", "times": 99}, roots)
    with pytest.raises(FaultError, match="its worker died 3 times"):
        hopeless.result(120)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_job_on_ray_is_cancelled(workers: Workers, roots: Roots, stubborn: bool) -> None:
    job = workers.submit("wait", {"seconds": 60, "stubborn": stubborn}, roots)
    while job.state is State.QUEUED:
        job.wait(0.1)
    job.wait(1.0)
    workers.cancel(job)
    with pytest.raises(Cancelled):
        job.result(60)


def test_errors_and_cached_results_cross_the_cluster(workers: Workers, roots: Roots) -> None:
    from PIL import Image

    with pytest.raises(InputError, match="was not found"):
        workers.submit("preview", {"slide": "gone.png"}, roots).result(60)
    Image.new("RGB", (200, 100), "red").save(roots.inputs[0] / "a.png")
    first = workers.submit("preview", {"slide": "a.png"}, roots).result(60)
    second = workers.submit("preview", {"slide": "a.png"}, roots).result(60)
    assert (first.cached, second.cached) == (False, True)
    assert (roots.output / "a.png").is_file()


def test_priorities_hold_on_ray(workers: Workers, roots: Roots) -> None:
    import ray

    cpus = int(ray.cluster_resources()["CPU"])
    blockers = [workers.submit("wait", {"seconds": 3}, roots) for _ in range(cpus)]
    low = [workers.submit("wait", {"seconds": 0.2}, roots) for _ in range(3)]
    high = workers.submit("wait", {"seconds": 0.2}, roots, priority=9)
    started = high.result(60).result["started"]
    assert all(job.result(60).result["started"] > started - 0.3 for job in low)
    assert all(job.result(60) for job in blockers)


def die(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_no_node_holds_is_refused_at_once(workers: Workers, roots: Roots) -> None:
    with pytest.raises(InputError, match=r"needs \d+ MiB, but of the cluster's 1 node\(s\) the"):
        workers.submit("gorge", {}, roots)
    with pytest.raises(InputError, match="needs a GPU, and the cluster has none"):
        workers.submit("needs_gpu", {}, roots)


def test_a_board_that_dies_costs_no_job(workers: Workers, roots: Roots) -> None:
    """Its process is killed, as with a lost node; Ray starts another, and progress goes on."""
    assert isinstance(workers, RayWorkers)
    seen: list[float] = []
    job = workers.submit(
        "wait", {"seconds": 120}, roots, on_change=lambda item: seen.append(item.fraction)
    )
    while job.fraction == 0:
        job.wait(0.1)
    workers._board.__ray_call__.remote(die)
    before, until = len(seen), time.monotonic() + 100
    while len(set(seen[before:])) < 6 and time.monotonic() < until:
        job.wait(0.1)
    assert len(set(seen[before:])) >= 6
    assert (job.state, job.attempts) == (State.RUNNING, 1)
    workers.cancel(job)


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(InputError, match='"ray", "ray:auto", or "ray://host:port"'):
        open_workers("ray:2", Recipe())
    with pytest.raises(InputError, match="expected a number, or ray"):
        open_workers("ray2", Recipe())


def test_where_no_cluster_was_joined_it_is_said_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In our words: Ray's own name an option that no command of SAGE has."""
    import ray

    def init(**options: object) -> None:
        raise ConnectionError("Could not find any. Please set the `--address` flag.")

    monkeypatch.setattr(ray, "init", init)
    said = r"^no Ray cluster .* Could not find any\. Start a cluster \(ray st"
    with pytest.raises(FaultError, match=said) as caught:
        open_workers("ray:auto", Recipe())
    assert "`--address`" not in str(caught.value)
