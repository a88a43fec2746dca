"""Sandbox jobs and their results."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Protocol

from pydantic import Field

from sage.core.models import Strict


class Limits(Strict):
    """Resource limits for a run. Wall time in seconds, memory and output in MiB, logs in KiB."""

    seconds: float = 600
    memory_mb: int = 4096
    cpus: float = 2
    pids: int = 128
    output_mb: int = 256
    log_kb: int = 256


class Job(Strict):
    """Code to run. `files` are written into the work folder; `inputs` are mounted read-only.

    `compiled_by_sage` is True only for code that SAGE itself compiled from a contract; a
    limited subprocess accepts nothing else. Without `offers_sage` the code cannot import
    SAGE's packages, so that a second implementation cannot call the first.
    """

    files: dict[str, str]
    command: tuple[str, ...] = ("python", "-I", "analysis.py")
    inputs: dict[str, Path] = Field(default_factory=dict)
    output: Path
    limits: Limits = Limits()
    compiled_by_sage: bool = False
    offers_sage: bool = True
    label: str = ""


class Reason(StrEnum):
    """Reason that a run ended."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    PROCESSES = "processes"
    OUTPUT_LIMIT = "output_limit"
    KILLED = "killed"
    POLICY = "policy"
    UNAVAILABLE = "unavailable"


class Artifact(Strict):
    """A regular file left by the run in its output folder."""

    path: str
    bytes: int
    sha256: str


class Usage(Strict):
    """Resources that the run used."""

    wall_seconds: float = 0.0
    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None


class SandboxResult(Strict):
    """Outcome of a run, regardless of what the code attempted."""

    sandbox: str
    exit_code: int | None
    reason: Reason
    message: str = ""
    stdout_tail: str = ""
    stderr_tail: str = ""
    artifacts: tuple[Artifact, ...] = ()
    dropped: tuple[str, ...] = ()
    usage: Usage = Usage()

    @property
    def ok(self) -> bool:
        """True if the code ran to completion and returned 0."""
        return self.reason is Reason.OK


class Availability(Strict):
    """Availability of a sandbox on this machine, with a remedy if it is unavailable."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


class Sandbox(Protocol):
    """A sandbox in which code can run under limits."""

    name: str

    def available(self) -> Availability:
        """Check whether this sandbox works on this machine; never raises."""
        ...

    def prepare(self) -> None:
        """Start preparations that speed up later runs, without waiting for them."""
        ...

    def run(self, job: Job) -> SandboxResult:
        """Run `job` and return its outcome; never raise because of the code's behavior."""
        ...
