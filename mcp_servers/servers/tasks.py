"""Tasks of the protocol: the extension `io.modelcontextprotocol/tasks` (2026-07-28) over jobs.

A client that declares the extension with a call may get a task instead of a result; it asks for
its state by `tasks/get` and gives it up by `tasks/cancel`. A task is a job, its identifier the
job's, so that clients without the extension do the same by job_status, job_result and job_cancel.
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
    """Which task."""

    task_id: str = Field(min_length=1, max_length=200)


class UpdateParams(TaskParams):
    """Answers to what a task asked; no task of ours asks."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


def declared(ctx: Any) -> bool:
    """Whether this request's client takes tasks."""
    able = ctx.session.client_capabilities
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return bool(modern and able and EXTENSION in (able.extensions or {}))


def created(job: Job) -> dict[str, Any]:
    """What a call answers with in place of its result."""
    return {"resultType": "task", **_task(job)}


def detailed(job: Job, result: types.CallToolResult | None) -> dict[str, Any]:
    """A task's state, with its result where it has ended."""
    found = {"resultType": "complete", **_task(job)}
    if result is not None and found["status"] == "completed":
        found["result"] = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return found


def _task(job: Job) -> dict[str, Any]:
    """What every answer says of a task. Results are kept until many later jobs have ended."""
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
