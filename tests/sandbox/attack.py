"""One attack on a sandbox: its code, and how its end must be reported.

`HOST[...]` holds what only the host knows (paths, ports, process numbers); the suite fills it in.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.types import Limits, Reason

PRELUDE = """
import ctypes, os, pathlib, socket, subprocess, sys, threading, time
HOST = {host!r}
libc = ctypes.CDLL(None, use_errno=True)

def syscall(number, *args):
    if libc.syscall(number, *args) == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))

def escaped(what):
    print("ESCAPED", what, flush=True)
    os._exit(99)

def must_fail(what, act, *args, **named):
    try:
        act(*args, **named)
    except Exception as refused:
        print("refused", what, type(refused).__name__, refused, flush=True)
        return
    escaped(what)
"""

SMALL = Limits(seconds=15, memory_mb=256, pids=32, output_mb=8, log_kb=64)
SHORT = SMALL.model_copy(update={"seconds": 2})


@dataclass(frozen=True)
class Attack:
    """One attack, and how its end must be reported."""

    name: str
    code: str
    reason: Reason = Reason.OK
    limits: Limits = SMALL
    says: str = ""
    kept: tuple[str, ...] = ()
    dropped: int = 0
    message: str = ""
    variant: bool = False
    """Another form of an attack that is in the list too: it is tried on one sandbox."""
