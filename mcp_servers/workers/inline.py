"""Workers that run jobs in threads of this process, for tools with unpicklable state."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context

from mcp_servers.context import ToolContext
from mcp_servers.registry import Registry
from mcp_servers.spec import Resources
from mcp_servers.workers.base import Workers
from mcp_servers.workers.jobs import Job, Recipe
from sage.core.errors import Cancelled, SageError

STOPPING_S = 15.0
"""Seconds until child processes must stop when the workers close; drivers kill them sooner."""


class InlineWorkers(Workers):
    """Workers that run each job in its own thread.

    They are for tools that control other processes, not for computation.

    At most `at_once` tools with effects, such as those that start a run, work at the same
    time; the rest wait.
    """

    def __init__(self, registry: Registry, at_once: int | None = None) -> None:
        """Run the tools of `registry`; `at_once` defaults to half the processors."""
        super().__init__(Recipe(suite="knowledge"), max_attempts=1, registry=registry)
        self._turn = threading.Semaphore(at_once or max(1, (os.cpu_count() or 2) // 2))
        self._threads: list[threading.Thread] = []

    def _queue(self, job: Job) -> None:
        """Start the job immediately, in a thread."""
        thread = threading.Thread(
            target=copy_context().run, args=(self._run, job), name=job.tool, daemon=True
        )
        self._threads = [item for item in self._threads if item.is_alive()] + [thread]
        thread.start()

    def _run(self, job: Job) -> None:
        context = ToolContext(
            roots=job.roots,
            on_progress=job.report,
            cancelled=lambda: job.cancel_requested,
            memory_mb=Resources().memory_mb,
        )
        with self._taking_turns(job) as mine:
            if not mine:
                job.finish(error=Cancelled("canceled by the caller"))
                return
            job.begin()
            try:
                job.finish(run=self.registry.run(job.tool, job.arguments, context))
            except (SageError, Cancelled) as error:
                job.finish(error=error)

    @contextmanager
    def _taking_turns(self, job: Job) -> Iterator[bool]:
        """Wait for the job's turn; yield False if it was canceled in the meantime."""
        if not self.registry.get(job.tool).acts:
            yield True
            return
        while not self._turn.acquire(timeout=0.1):
            if job.cancel_requested:
                yield False
                return
        try:
            yield not job.cancel_requested
        finally:
            self._turn.release()

    def close(self) -> None:
        """Stop every running job and wait, because its child process would outlive the server."""
        with self.lock:
            self.closed = True
            for job in self.jobs.values():
                job.cancel_requested = True
        deadline = time.monotonic() + STOPPING_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _wake(self) -> None:
        return None
