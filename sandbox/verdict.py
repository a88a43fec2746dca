"""Determine why a run ended, using only measurements taken outside the sandbox.

The program's output is ignored, since a program can print anything, and its exit code
counts only if no limit was exceeded.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from sandbox.types import Limits, Reason


@dataclass(frozen=True)
class Ending:
    """Facts at the end of a run; `output_over` counts bytes and files in all writable places."""

    exit_code: int | None
    timed_out: bool = False
    log_over: bool = False
    output_over: bool = False
    memory_kills: int = 0
    refused_processes: int = 0


def judge(end: Ending, limits: Limits) -> tuple[Reason, str]:
    """Return the reason and a sentence for the user: the first limit reached, then any others."""
    met = [
        (reason, sentence)
        for reason, counted, sentence in (
            (Reason.OUTPUT_LIMIT, end.log_over, f"printed more than {limits.log_kb} KiB"),
            (Reason.TIMEOUT, end.timed_out, f"ran longer than {limits.seconds:g} s"),
            (
                Reason.MEMORY,
                end.memory_kills,
                f"needed more than {limits.memory_mb} MiB of memory",
            ),
            (
                Reason.PROCESSES,
                end.refused_processes,
                f"started more than {limits.pids} processes or threads",
            ),
            (
                Reason.OUTPUT_LIMIT,
                end.output_over,
                f"wrote more than {limits.output_mb} MiB or too many files",
            ),
        )
        if counted
    ]
    if met:
        return met[0][0], "; ".join(sentence for _, sentence in met)
    return (Reason.OK, "") if end.exit_code == 0 else _by_code(end.exit_code)


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
