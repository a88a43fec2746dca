"""Code that runs on the Ray cluster: a job's task, and the board that tasks report to."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

BEAT = 0.2
"""Seconds between a job's heartbeats; longer on a board that serves very many jobs."""
BEATS_PER_SECOND = 2000
"""Heartbeats per second that a board can handle."""
ANSWER = 10.0
"""Seconds that a heartbeat waits for the board before retrying."""
_warm: dict[str, Any] = {}
"""Registry and open handles of this Ray worker process, by recipe."""


class Board:
    """Ray actor that records running jobs' heartbeats and progress, and which jobs must stop.

    Its contents can be resent, since Ray restarts the actor if the actor or its node dies.
    """

    def __init__(self) -> None:
        """Create an empty board."""
        self.news: dict[str, tuple[str, float, str]] = {}
        self.stopping: set[str] = set()
        self.jobs = 1

    def beat(self, job: str, node: str, fraction: float, message: str) -> tuple[bool, float]:
        """Record a job's heartbeat; return whether it must stop, and the seconds until the next."""
        self.news[job] = (node, fraction, message)
        return job in self.stopping, max(BEAT, self.jobs / BEATS_PER_SECOND)

    def take(self, stopping: list[str], jobs: int) -> dict[str, tuple[str, float, str]]:
        """Return each job's node, progress, and message from heartbeats since the last call.

        `stopping` lists the jobs that must stop; `jobs` is the number of running jobs.
        """
        self.stopping, self.jobs = set(stopping), jobs
        taken, self.news = self.news, {}
        return taken


class Pulse:
    """Thread that reports a running job to the board; the tool never waits for it."""

    def __init__(self, board: Any, job: str, node: str) -> None:
        """Report `job` on `node` to `board`, from `__enter__` to `__exit__`."""
        self.board, self.job, self.node = board, job, node
        self.stopped = False
        self._progress = (0.0, "")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)

    def report(self, fraction: float, message: str) -> None:
        """Store the tool's progress for the next heartbeat."""
        self._progress = (fraction, message)

    def cancelled(self) -> bool:
        """Return True if the job must stop."""
        return self.stopped

    def _beat(self) -> None:
        import ray

        wait = 0.0
        while not self._over.wait(wait):
            wait = BEAT
            # Ray restarts a board that died; until then, the job continues without it.
            with suppress(ray.exceptions.RayError):
                answer = self.board.beat.remote(self.job, self.node, *self._progress)
                self.stopped, wait = ray.get(answer, timeout=ANSWER)

    def __enter__(self) -> Pulse:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread; a heartbeat that hangs is left to end on its own."""
        self._over.set()
        self._thread.join(1.0)


def run_on_ray(recipe_json: str, request_json: str, board: Any) -> str:
    """Run a request in a Ray worker process; return the answer and the node's name as JSON."""
    import ray

    from mcp_servers.context import Handles
    from mcp_servers.workers.child import run_request
    from mcp_servers.workers.jobs import Recipe

    node = ray.get_runtime_context().get_node_id()
    request = json.loads(request_json)
    if gone := [folder for folder in request["inputs"] if not Path(folder).is_dir()]:
        words = f"the folder {gone[0]} was not found"
        return json.dumps({"op": "failed", "kind": "missing", "message": words, "node": node})
    with Pulse(board, request["ticket"], node) as pulse:
        if recipe_json not in _warm:
            registry = Recipe.from_dict(json.loads(recipe_json)).build()
            _warm[recipe_json] = (registry, Handles())
        registry, handles = _warm[recipe_json]
        if request["device"] == "gpu":
            request["device"] = "cuda:0" if ray.get_gpu_ids() else "cpu"
        answer = run_request(registry, handles, request, pulse.report, pulse.cancelled)
    return json.dumps(answer | {"node": node})
