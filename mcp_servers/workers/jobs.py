"""Jobs and their states, common to all worker types."""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from mcp_servers.context import CALLER, remove_path
from mcp_servers.registry import Registry, load
from mcp_servers.results_cache import ResultsCache
from mcp_servers.roots import MissingError, Roots
from mcp_servers.slides.metadata import PixelSizeError
from mcp_servers.spec import Resources, ToolRun, ToolSpec, wanted_device
from sage.core import clock
from sage.core.errors import Cancelled, FaultError, InputError

_order = itertools.count()


class State(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """True if the job has ended and its state will not change."""
        return self in (State.DONE, State.FAILED, State.CANCELLED)


@dataclass(frozen=True)
class Recipe:
    """Recipe for building a worker's registry, with plain values that can be pickled."""

    suite: str = "all"
    tool_folders: tuple[str, ...] = ()
    cache_folder: str | None = None

    def build(self) -> Registry:
        """Build the registry, with its results cache if a cache folder is set."""
        cache = ResultsCache(self.cache_folder) if self.cache_folder else None
        return load(self.suite, tool_folders=self.tool_folders, cache=cache)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """Build a recipe from JSON data made with `dataclasses.asdict`."""
        return cls(data["suite"], tuple(data["tool_folders"]), data["cache_folder"])


@dataclass
class Job:
    """A tool call run by a worker; jobs run by descending `priority`, then in order of arrival.

    `device` is the device that the arguments request: "auto", "cpu", "cuda" (any GPU),
    "cuda:N", or "" if the tool has no such argument.
    """

    tool: str
    arguments: dict[str, Any]
    roots: Roots
    resources: Resources
    priority: int = 0
    on_change: Callable[[Job], None] | None = None
    device: str = ""
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    state: State = State.QUEUED
    fraction: float = 0.0
    message: str = ""
    attempts: int = 0
    run: ToolRun | None = None
    error: Exception | None = None
    submitted: float = field(default_factory=time.time)
    started: float | None = None
    ended: float | None = None
    cancel_requested: bool = False
    order: int = field(default_factory=lambda: next(_order))
    caller: str = field(default_factory=CALLER.get)
    _finished: threading.Event = field(default_factory=threading.Event)

    def sort_key(self) -> tuple[int, int]:
        """Return the key by which the queue is sorted."""
        return (-self.priority, self.order)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; return False if the timeout expires first."""
        return self._finished.wait(timeout)

    def result(self, timeout: float | None = None) -> ToolRun:
        """Return a finished job's run.

        Raises `TimeoutError` if the job has not ended after `timeout` seconds, or the error with
        which it ended: `InputError`, `FaultError` or `Cancelled`.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"job {self.id} ({self.tool}) is still {self.state.value}")
        if self.error is not None:
            raise self.error
        if self.run is None:
            raise FaultError(f"job {self.id} ({self.tool}) ended without a result")
        return self.run

    def report(self, fraction: float, message: str) -> None:
        """Record progress reported by the worker."""
        self.fraction = max(self.fraction, fraction)
        self.message = message
        self.notify()

    def begin(self) -> None:
        """Mark the job as running."""
        self.state = State.RUNNING
        self.attempts += 1
        self.started = self.started or clock.seconds()
        self.notify()

    def requeue(self, why: str = "its worker died; waiting for another worker") -> None:
        """Return the job to the queue, for example because its worker died; progress is lost."""
        self.state = State.QUEUED
        self.fraction = 0.0
        self.message = why
        self.notify()

    def finish(self, run: ToolRun | None = None, error: Exception | None = None) -> None:
        """Mark the job as ended; only the first call has an effect."""
        if self._finished.is_set():
            return
        self.run, self.error, self.ended = run, error, clock.seconds()
        if run is not None:
            self.state, self.fraction = State.DONE, 1.0
        elif isinstance(error, Cancelled):
            self.state = State.CANCELLED
        else:
            self.state = State.FAILED
            self.message = str(error)
        self._finished.set()
        self.notify()

    def notify(self) -> None:
        """Call `on_change` with the job."""
        if self.on_change is not None:
            self.on_change(self)

    def status(self) -> dict[str, Any]:
        """Return the job's state as JSON data."""
        end = self.ended or clock.seconds()
        return {
            "job": self.id,
            "tool": self.tool,
            "state": self.state.value,
            "fraction": round(self.fraction, 4),
            "message": self.message,
            "attempts": self.attempts,
            "seconds": round(end - self.started, 3) if self.started else 0.0,
        }


def make_request(job: Job, device: str) -> dict[str, Any]:
    """Make the message that is sent to a worker to start a job."""
    return {
        "op": "run",
        "id": job.id,
        "tool": job.tool,
        "arguments": job.arguments,
        "inputs": [str(given) for given in job.roots.inputs],
        "output": str(job.roots.output),
        "made": [str(folder) for folder in job.roots.made],
        "memory_mb": job.resources.memory_mb,
        "threads": job.resources.cpu,
        "device": device,
        "caller": job.caller,
    }


def parse_roots(request: Mapping[str, Any]) -> Roots:
    """Parse a request's roots, which are already resolved."""
    inputs, made = (tuple(map(Path, request[key])) for key in ("inputs", "made"))
    return Roots(inputs, Path(request["output"]), made)


KINDS: dict[str, type[Exception]] = {
    "pixel_size": PixelSizeError,
    "missing": MissingError,
    "input": InputError,
    "fault": FaultError,
    "cancelled": Cancelled,
}


def name_error(error: Exception) -> str:
    """Return the name of an error's most specific kind, to be sent to another process."""
    return next((word for word, kind in KINDS.items() if isinstance(error, kind)), "fault")


def restore_error(kind: str, message: str) -> Exception:
    """Recreate an error received from another process."""
    return KINDS[kind](message)


def finish_job(job: Job, message: Mapping[str, Any]) -> None:
    """Finish a job according to its worker's last message; other messages have no effect."""
    if message["op"] == "done":
        job.finish(run=ToolRun.model_validate(message["run"]))
    elif message["op"] == "failed":
        job.finish(error=restore_error(message["kind"], message["message"]))


def make_job(
    spec: ToolSpec,
    arguments: Mapping[str, Any],
    roots: Roots,
    priority: int = 0,
    on_change: Callable[[Job], None] | None = None,
) -> Job:
    """Make a job with validated arguments.

    Raises `InputError` if the arguments do not match the schema.
    """
    given = spec.parse(arguments)
    needs = spec.needs(given)
    device = wanted_device(given)
    return Job(spec.name, dict(arguments), roots, needs, priority, on_change, device)


def remove_leftovers(job: Job) -> None:
    """Remove temporary files and folders that a killed job left below its output folder."""
    if not job.roots.output.is_dir():
        return
    for folder, folders, names in os.walk(job.roots.output):
        for name in [*names, *folders]:
            if name.startswith(".") and f".{job.id}-" in name and ".part" in name:
                remove_path(Path(folder) / name)
