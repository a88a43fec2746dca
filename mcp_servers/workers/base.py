"""Base of all workers: a queue of jobs and their states."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Self

from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.spec import ToolRun
from mcp_servers.workers.jobs import Job, Recipe, State, make_job
from sage.core.errors import Cancelled, FaultError, InputError
from sage.core.log import logger

log = logger(__name__)

KEEP_FINISHED = 1000
"""Ended jobs that stay known, the oldest forgotten first."""


class Workers(ABC):
    """A queue of jobs with something behind it that runs them.

    A subclass starts a thread that takes jobs from `queued` and ends them, and is woken by `_wake`.
    """

    def __init__(
        self,
        recipe: Recipe,
        max_attempts: int = 3,
        grace: float = 5.0,
        registry: Registry | None = None,
    ) -> None:
        """Set up an empty queue for the tools of `registry`, by default built from `recipe`.

        A job whose worker dies is handed to another, for at most `max_attempts` attempts in all.
        If a cancelled job does not stop by itself within `grace` seconds, its worker is killed.
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
        """Queue a job. `on_change` is called from the workers' thread and must be quick.

        Raises
        ------
        InputError
            Unknown tool or bad arguments; nothing is queued then.
        FaultError
            If the workers are closed.
        """
        job = make_job(self.registry.get(tool), arguments, roots, priority, on_change)
        job.id = handle or job.id
        self.check(job)
        with self.lock:
            if self.closed:
                raise FaultError("the workers are closed")
            self.jobs[job.id] = job
            self._queue(job)
            self._forget()
        self._wake()
        return job

    def check(self, job: Job) -> None:
        """Refuse a job that can never run here; subclasses give the reason."""
        return

    def run(self, tool: str, arguments: Mapping[str, Any], roots: Roots) -> ToolRun:
        """Queue a job and wait for it."""
        return self.submit(tool, arguments, roots).result()

    def get(self, job_id: str) -> Job:
        """Return a job by its id; raises `InputError` when it is not known."""
        with self.lock:
            job = self.jobs.get(job_id)
        if job is None:
            raise InputError(f'no job is called "{job_id}"; it may have been forgotten')
        return job

    def cancel(self, job: Job) -> None:
        """Cancel: a queued job ends at once, a running job is asked to stop, then killed."""
        with self.lock:
            job.cancel_requested = True
            queued = job in self.queued
            if queued:
                self.queued.remove(job)
        if queued:
            job.finish(error=Cancelled("cancelled by the caller"))
        self._wake()

    def counts(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        with self.lock:
            states = [job.state for job in self.jobs.values()]
        return {state.value: states.count(state) for state in State}

    @abstractmethod
    def close(self) -> None:
        """Cancel what is left and stop the workers."""

    @abstractmethod
    def _wake(self) -> None:
        """Jobs were queued or cancelled: look again. Called from any thread; must return soon."""

    def _forget(self) -> None:
        ended = [job.id for job in self.jobs.values() if job.state.final]
        for name in ended[: max(0, len(ended) - KEEP_FINISHED)]:
            del self.jobs[name]

    def _retry_or_fail(self, job: Job, why: str) -> None:
        """Put a job that lost its worker back into the queue, or fail it after enough attempts."""
        if job.cancel_requested:
            job.finish(error=Cancelled("cancelled by the caller"))
        elif self.closed:
            job.finish(error=Cancelled("the workers were closed"))
        elif job.attempts >= self.max_attempts:
            job.finish(
                error=FaultError(
                    f"{job.tool}: its worker died {job.attempts} times ({why}); "
                    "it may need more memory than there is, or crash on this input"
                )
            )
        else:
            log.info("worker lost, job queued again", tool=job.tool, why=why)
            job.requeue()
            self._queue(job)

    def _queue(self, job: Job) -> None:
        with self.lock:
            self.queued.append(job)
            self.queued.sort(key=Job.sort_key)

    def __enter__(self) -> Self:
        """Return the workers themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the workers."""
        self.close()
