"""Why a run ended, from what was measured rather than from what it printed, where possible."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from sandbox.types import Limits, Reason

_DISK = ("No space left on device", "[Errno 28]", "File too large", "[Errno 27]")
_PROCESSES = ("Resource temporarily unavailable", "can't start new thread", "[Errno 11]")


@dataclass(frozen=True)
class Ending:
    """What is known at the end of a run."""

    exit_code: int | None
    timed_out: bool = False
    log_over: bool = False
    output_over: bool = False
    memory_kills: int = 0
    refused_processes: int = 0
    stderr: str = ""


def judge(end: Ending, limits: Limits) -> tuple[Reason, str]:
    """The reason and a sentence for the user."""
    also = _also(end, limits)
    if end.log_over:
        return Reason.OUTPUT_LIMIT, f"printed more than {limits.log_kb} KiB{also}"
    if end.timed_out:
        return Reason.TIMEOUT, f"ran longer than {limits.seconds:g} s{also}"
    if end.exit_code == 0:
        if end.output_over:
            return Reason.OUTPUT_LIMIT, f"wrote more than {limits.output_mb} MiB{also}"
        return Reason.OK, also.lstrip("; ")
    if end.memory_kills or "MemoryError" in end.stderr:
        return Reason.MEMORY, f"needed more than {limits.memory_mb} MiB of memory"
    if end.refused_processes or any(sign in end.stderr for sign in _PROCESSES):
        return Reason.PROCESSES, f"started more than {limits.pids} processes or threads"
    if end.output_over or any(sign in end.stderr for sign in _DISK):
        return Reason.OUTPUT_LIMIT, f"wrote more than {limits.output_mb} MiB"
    return _by_code(end.exit_code)


def _also(end: Ending, limits: Limits) -> str:
    notes = []
    if end.memory_kills:
        notes.append(f"a process was killed at {limits.memory_mb} MiB of memory")
    if end.refused_processes:
        notes.append(f"more than {limits.pids} processes or threads were refused")
    return "".join(f"; {note}" for note in notes)


def _by_code(code: int | None) -> tuple[Reason, str]:
    if code is None:
        return Reason.KILLED, "ended without an exit code"
    number = -code if code < 0 else code - 128
    if 0 < number < 65:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return Reason.KILLED, f"ended by {name}"
    return Reason.ERROR, f"exit code {code}"
