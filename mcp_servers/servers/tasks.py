"""Protocol tasks for jobs: the `io.modelcontextprotocol/tasks` extension (2026-07-28).

A client that declares the extension may get a task instead of a result; it polls the
state with `tasks/get` and cancels with `tasks/cancel`. A task is a job with the same
identifier, so that clients without the extension can use job_status, job_result and
job_cancel.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from mcp_servers.workers.jobs import Job, State
from sage.core import clock

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MS = 1000
STATUS = {
    State.FAILED: "completed",  # a tool's error is its result
    State.DONE: "completed",
    State.CANCELLED: "cancelled",
}


class TaskParams(types.RequestParams):
    """Request parameters that identify a task."""

    task_id: str = Field(min_length=1, max_length=200)


class UpdateParams(TaskParams):
    """Answers to a task's questions; SAGE's tasks ask none."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


def supports_tasks(ctx: Any) -> bool:
    """Check whether the client that sent this request supports tasks."""
    able = ctx.session.client_capabilities
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return bool(modern and able and EXTENSION in (able.extensions or {}))


def make_task_result(job: Job) -> dict[str, Any]:
    """Make the response to a call that became a task."""
    return {"resultType": "task", **_describe_task(job)}


def make_detail(job: Job, result: types.CallToolResult | None) -> dict[str, Any]:
    """Make a task's state, with its result once it has ended."""
    found = {"resultType": "complete", **_describe_task(job)}
    if result is not None and found["status"] == "completed":
        found["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return found


def _describe_task(job: Job) -> dict[str, Any]:
    """Return the fields common to all responses about a task.

    Results are kept until many later jobs have ended.
    """
    known = job.status()
    message = known["message"] or known["state"]
    return {
        "taskId": job.id,
        "status": STATUS.get(job.state, "working"),
        "statusMessage": f"{job.fraction:.0%}: {message}",
        "createdAt": _time(job.submitted),
        "lastUpdatedAt": clock.stamp(),
        "ttlMs": None,
        "pollIntervalMs": POLL_MS,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
