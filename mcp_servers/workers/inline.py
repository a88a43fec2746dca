"""Jobs in threads of this process, for tools that hold something a process cannot be sent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from mcp_servers.context import ToolContext
from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.spec import Resources
from mcp_servers.workers.base import Workers
from mcp_servers.workers.jobs import Job, Recipe, job_for
from sage.core.errors import Cancelled, FaultError, SageError


class InlineWorkers(Workers):
    """Runs each job in a thread of its own. For drivers of other processes, not for computing."""

    def __init__(self, registry: Registry) -> None:
        """Run the tools of `registry`."""
        super().__init__(Recipe(suite="knowledge"), max_attempts=1, registry=registry)

    def submit(
        self,
        tool: str,
        arguments: Mapping[str, object],
        roots: Roots,
        *,
        priority: int = 0,
        on_change: Callable[[Job], None] | None = None,
    ) -> Job:
        """See `Workers.submit`; the job starts at once, in a thread.

        See `Workers.submit`.
        """
        job = job_for(self.registry.get(tool), arguments, roots, priority, on_change)
        with self.lock:
            if self.closed:
                raise FaultError("the workers are closed")
            self.jobs[job.id] = job
            self._forget()
        thread = threading.Thread(target=self._run, args=(job,), name=job.tool, daemon=True)
        thread.start()
        return job

    def _run(self, job: Job) -> None:
        context = ToolContext(
            roots=job.roots,
            on_progress=job.report,
            cancelled=lambda: job.cancel_requested,
            memory_mb=Resources().memory_mb,
        )
        job.begin()
        try:
            job.finish(run=self.registry.run(job.tool, job.arguments, context))
        except (SageError, Cancelled) as error:
            job.finish(error=error)

    def close(self) -> None:
        """Ask every running job to stop."""
        with self.lock:
            self.closed = True
            for job in self.jobs.values():
                job.cancel_requested = True

    def _wake(self) -> None:
        return None
