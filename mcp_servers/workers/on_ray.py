"""Workers on a Ray cluster, where one machine is not enough.

The cluster's machines must see the roots and the cache under the same paths (a shared file system)
and have the same version of SAGE installed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from mcp_servers.spec import ToolRun
from mcp_servers.workers.base import Workers
from mcp_servers.workers.jobs import Job, Recipe, failure, request_of, sweep
from sage.core.errors import Cancelled, FaultError, InputError
from sage.core.extras import need

TICK = 0.2
_warm: dict[str, Any] = {}
"""Registry and open handles of this Ray worker process, by recipe."""


def run_on_ray(recipe_json: str, request_json: str, board: Any) -> str:
    """Run one request in a Ray worker process; the answer as JSON.

    `board` collects progress and tells of cancellation.
    """
    import ray

    from mcp_servers.context import Handles
    from mcp_servers.workers.child import run_request

    if recipe_json not in _warm:
        registry = Recipe.from_dict(json.loads(recipe_json)).build()
        _warm[recipe_json] = (registry, Handles())
    registry, handles = _warm[recipe_json]
    request = json.loads(request_json)
    if request["device"] == "gpu":
        request["device"] = "cuda:0" if ray.get_gpu_ids() else "cpu"
    last, stopped = [0.0], [False]

    def report(fraction: float, message: str) -> None:
        now = time.monotonic()
        if now - last[0] >= TICK:
            last[0] = now
            stopped[0] = ray.get(board.report.remote(request["id"], fraction, message))

    def cancelled() -> bool:
        now = time.monotonic()
        if now - last[0] >= TICK:
            last[0] = now
            stopped[0] = ray.get(board.asked.remote(request["id"]))
        return stopped[0]

    return json.dumps(run_request(registry, handles, request, report, cancelled))


class Board:
    """An actor: progress of running jobs, and which of them are to stop."""

    def __init__(self) -> None:
        """Nothing known yet."""
        self.progress: dict[str, tuple[float, str]] = {}
        self.stopping: set[str] = set()

    def report(self, job: str, fraction: float, message: str) -> bool:
        """Take a job's progress; True when it is to stop."""
        self.progress[job] = (fraction, message)
        return job in self.stopping

    def asked(self, job: str) -> bool:
        """True when the job is to stop."""
        return job in self.stopping

    def stop(self, job: str) -> None:
        """Ask a job to stop."""
        self.stopping.add(job)

    def take(self) -> dict[str, tuple[float, str]]:
        """All progress since the last call."""
        taken, self.progress = self.progress, {}
        return taken

    def forget(self, job: str) -> None:
        """A job has ended."""
        self.progress.pop(job, None)
        self.stopping.discard(job)


class RayWorkers(Workers):
    """Jobs as Ray tasks. The order stays ours: no more is handed to Ray than it can run now."""

    def __init__(
        self,
        recipe: Recipe | None = None,
        address: str | None = None,
        *,
        max_attempts: int = 3,
        grace: float = 5.0,
        cpus: int | None = None,
    ) -> None:
        """Join the cluster at `address` ("ray://host:port"), or start one here when it is None.

        Raises `InputError` when Ray is not installed, `FaultError` when there is no cluster.
        """
        need("ray", "a cluster of workers")
        super().__init__(recipe or Recipe(), max_attempts, grace)
        import ray

        self._ray: Any = ray
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            path = ":".join(name for name in sys.path if name)
            options |= {
                "num_cpus": cpus,
                "include_dashboard": False,
                "runtime_env": {"env_vars": {"PYTHONPATH": path}},
            }
        else:
            options["address"] = address
        try:
            ray.init(**options)
        except Exception as error:
            raise FaultError(f"no Ray cluster at {address or 'this machine'}: {error}") from error
        self._board: Any = ray.remote(num_cpus=0)(Board).remote()
        self._remote = ray.remote(max_retries=0)(run_on_ray)
        self._recipe = json.dumps(self.recipe.to_dict())
        self._running: dict[Any, Job] = {}
        self._deadlines: dict[str, float] = {}
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self._dispatch, name="ray-workers", daemon=True)
        self._thread.start()

    def check(self, job: Job) -> None:
        """Refuse a GPU job where the cluster has no GPU."""
        if job.resources.gpu == "required" and not self._total("GPU"):
            raise InputError(f"{job.tool} needs a GPU, and the cluster has none")
        if job.device.startswith("cuda:") and job.resources.gpu != "none":
            raise InputError(
                f"{job.tool}: device {job.device}: the cluster chooses the card; say cuda"
            )

    def _total(self, kind: str) -> float:
        return float(self._ray.cluster_resources().get(kind, 0.0))

    def _wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """Cancel what is left and leave the cluster (a local one is stopped)."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
        self._wake()
        self._thread.join()
        self._ray.shutdown()

    # --- the dispatcher thread ---

    def _dispatch(self) -> None:
        while not self.closed:
            with self.lock:
                self._schedule()
            if not self._running:
                self._woken.wait()
                self._woken.clear()
                continue
            ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=TICK)
            taken = self._ray.get(self._board.take.remote())
            with self.lock:
                for reference, job in list(self._running.items()):
                    if job.id in taken:
                        job.report(*taken[job.id])
                    self._cancel_if_asked(reference, job)
            for reference in ready:
                self._collect(reference)
        self._stop_all()

    def _cancel_if_asked(self, reference: Any, job: Job) -> None:
        if not job.cancel_requested:
            return
        now = time.monotonic()
        if job.id not in self._deadlines:
            self._deadlines[job.id] = now + self.grace
            self._board.stop.remote(job.id)
        elif now > self._deadlines[job.id]:
            self._ray.cancel(reference, force=True)
            self._deadlines[job.id] = now + 60.0

    def _collect(self, reference: Any) -> None:
        job = self._running.pop(reference)
        self._deadlines.pop(job.id, None)
        self._board.forget.remote(job.id)
        try:
            answer = json.loads(self._ray.get(reference))
        except self._ray.exceptions.RayTaskError as error:
            job.finish(error=FaultError(f"{job.tool} failed on the cluster: {error.cause}"))
            return
        except self._ray.exceptions.RayError as error:
            sweep(job)
            self._lost(job, type(error).__name__)
            return
        if answer["op"] == "done":
            job.finish(run=ToolRun.model_validate(answer["run"]))
        else:
            job.finish(error=failure(answer["kind"], answer["message"]))

    def _schedule(self) -> None:
        cpus = self._total("CPU") - sum(job.resources.cpu for job in self._running.values())
        gpus = self._total("GPU")
        for job in list(self.queued):
            if cpus < job.resources.cpu and self._running:
                return
            on_gpu = job.resources.gpu != "none" and gpus > 0
            self.queued.remove(job)
            job.begin()
            options: dict[str, Any] = {
                "num_cpus": min(job.resources.cpu, max(1.0, self._total("CPU"))),
                "num_gpus": 1 if on_gpu else 0,
                "memory": job.resources.memory_mb * 2**20,
                "name": job.tool,
            }
            request = json.dumps(request_of(job, "gpu" if on_gpu else "cpu"))
            launch: Callable[..., Any] = self._remote.options(**options).remote
            self._running[launch(self._recipe, request, self._board)] = job
            cpus -= job.resources.cpu

    def _stop_all(self) -> None:
        with self.lock:
            left, self.queued = self.queued, []
        for job in left:
            job.finish(error=Cancelled("the workers were closed"))
        for reference, job in self._running.items():
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(reference, force=True)
            job.finish(error=Cancelled("the workers were closed"))
        self._running.clear()
