"""Base class for all workers: a queue of jobs and their states."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Self

from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.spec import ToolRun
from mcp_servers.workers.jobs import Job, Recipe, make_job
from sage.core.errors import Cancelled, FaultError, InputError
from sage.core.log import logger

log = logger(__name__)

KEEP_FINISHED = 1000
"""Number of finished jobs to remember; the oldest are forgotten first."""


class Workers(ABC):
    """A queue of jobs, with a backend that runs them.

    A subclass starts a thread that takes jobs from `queued` and finishes them; `_wake` wakes it.
    """

    def __init__(
        self,
        recipe: Recipe,
        max_attempts: int = 3,
        grace: float = 5.0,
        registry: Registry | None = None,
    ) -> None:
        """Set up an empty queue for the tools of `registry`, by default built from `recipe`.

        If a worker dies, its job is given to another worker, up to `max_attempts` attempts in
        total. If a canceled job does not stop within `grace` seconds, its worker is killed.
        """
        self.recipe = recipe
        self.registry: Registry = recipe.build() if registry is None else registry
        self.max_attempts = max_attempts
        self.grace = grace
        self.jobs: OrderedDict[str, Job] = OrderedDict()
        self.queued: list[Job] = []
        self.closed = False
        self.lock = threading.RLock()

    def submit(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        roots: Roots,
        *,
        priority: int = 0,
        on_change: Callable[[Job], None] | None = None,
        handle: str | None = None,
    ) -> Job:
        """Queue a job; `on_change` is called from the workers' thread and must return quickly.

        Raises `InputError` if the tool is unknown or the arguments are invalid, and `FaultError`
        if the workers are closed. In either case, nothing is queued.
        """
        job = make_job(self.registry.get(tool), arguments, roots, priority, on_change)
        job.id = handle or job.id
        self.check(job)
        with self.lock:
            if self.closed:
                raise FaultError("the worker pool is closed")
            self.jobs[job.id] = job
            self._queue(job)
            self._forget()
        self._wake()
        return job

    def check(self, job: Job) -> None:
        """Refuse a job that these workers can never run; overridden in subclasses."""
        return

    def run(self, tool: str, arguments: Mapping[str, Any], roots: Roots) -> ToolRun:
        """Queue a job and wait for its result."""
        return self.submit(tool, arguments, roots).result()

    def get(self, job_id: str) -> Job:
        """Return a job by its id; raises `InputError` if the id is unknown."""
        with self.lock:
            job = self.jobs.get(job_id)
        if job is None:
            raise InputError(f'unknown job "{job_id}"; it may have expired')
        return job

    def cancel(self, job: Job) -> None:
        """Cancel a job: end it immediately if queued; if running, ask it to stop, then kill it."""
        with self.lock:
            job.cancel_requested = True
            queued = job in self.queued
            if queued:
                self.queued.remove(job)
        if queued:
            job.finish(error=Cancelled("canceled by the caller"))
        self._wake()

    @abstractmethod
    def close(self) -> None:
        """Cancel the remaining jobs and stop the workers."""

    @abstractmethod
    def _wake(self) -> None:
        """Notify the backend that jobs were queued or canceled.

        It may be called from any thread and must return promptly.
        """

    def _forget(self) -> None:
        ended = [job.id for job in self.jobs.values() if job.state.final]
        for name in ended[: max(0, len(ended) - KEEP_FINISHED)]:
            del self.jobs[name]

    def _retry_or_fail(self, job: Job, why: str) -> None:
        """Requeue a job that lost its worker, or fail it after too many attempts."""
        if job.cancel_requested:
            job.finish(error=Cancelled("canceled by the caller"))
        elif self.closed:
            job.finish(error=Cancelled("the workers were closed"))
        elif job.attempts >= self.max_attempts:
            job.finish(
                error=FaultError(
                    f"{job.tool}: its worker died {job.attempts} times ({why}); it may need more "
                    "memory than is available, or crash on this input"
                )
            )
        else:
            log.info("worker lost, job requeued", tool=job.tool, why=why)
            job.requeue()
            self._queue(job)

    def _queue(self, job: Job) -> None:
        with self.lock:
            self.queued.append(job)
            self.queued.sort(key=Job.sort_key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
