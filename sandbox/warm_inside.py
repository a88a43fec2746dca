"""Program of the preloading process, which forks itself to become each analysis.

It is self-contained: `sandbox.warm` starts it where it sees the libraries available in a
sandbox and nothing of SAGE. For each job it forks, enters the namespaces of a sandbox set
up by bubblewrap, and drops the same privileges that bubblewrap would have dropped: user,
groups, capabilities, new privileges and all system calls except those the filter allows.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import random
import resource
import signal
import socket
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

LOADED = (
    "numpy", "pandas", "pyarrow.parquet", "scipy.stats", "scipy.optimize", "lifelines",
    "lifelines.statistics", "statsmodels.api", "statsmodels.duration.survfunc",
    "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.pyplot",
)  # fmt: skip
NAMESPACES = {
    "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000, "net": 0x40000000,
    "pid": 0x20000000, "mnt": 0x00020000, "user": 0x10000000,
}  # fmt: skip
"""Flags of setns(2); the user namespace comes last, as the others may belong to its parent."""
LIMITS = {
    "core": resource.RLIMIT_CORE, "fsize": resource.RLIMIT_FSIZE, "nofile": resource.RLIMIT_NOFILE,
    "cpu": resource.RLIMIT_CPU, "as": resource.RLIMIT_AS, "nproc": resource.RLIMIT_NPROC,
}  # fmt: skip
_DUMPABLE, _SECCOMP, _DROP_BOUND, _NO_NEW_PRIVILEGES, _AMBIENT = 4, 22, 24, 38, 47
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def main(descriptor: int) -> None:
    """Load the libraries, then fork for each channel that arrives, until the peer closes."""
    control = socket.socket(fileno=descriptor)
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    control.send(str(os.getpid()).encode())
    while True:
        asked, channels, _, _ = socket.recv_fds(control, 1, 1)
        if not asked:
            return
        if os.fork() == 0:
            control.close()
            try:
                _serve(socket.socket(fileno=channels[0]))
            finally:
                os._exit(125)
        os.close(channels[0])


def _serve(channel: socket.socket) -> None:
    """Start a job and report its exit status and usage; a closed channel means a failure."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    channel.sendall(f"{os.getpid()}\n".encode())
    head, descriptors, _, _ = socket.recv_fds(channel, 8, len(NAMESPACES) + 2)
    job = json.loads(channel.recv(int(head), socket.MSG_WAITALL))
    *spaces, out, err = descriptors
    if os.getuid() == 0:
        os.setgroups([])
    for (name, flag), space in zip(NAMESPACES.items(), spaces, strict=True):
        if os.fstat(space).st_ino != job["own"][name]:
            _must(_LIBC.setns(space, flag))
        os.close(space)
    child = os.fork()
    if child == 0:
        try:
            _enter(job, out, err)
            code = _execute(job["argv"])
        except BaseException:  # noqa: BLE001 - whatever it was, the job does not start
            sys.excepthook(*sys.exc_info())
            code = 125
        os._exit(code)
    os.close(out)
    os.close(err)
    _, status, usage = os.wait4(child, 0)
    spent = usage.ru_utime + usage.ru_stime
    code = os.waitstatus_to_exitcode(status)
    code = code if code >= 0 else 128 - code  # a signal, as bubblewrap reports it
    channel.sendall(json.dumps([code, spent]).encode())
    os._exit(0)


def _enter(job: dict[str, Any], out: int, err: int) -> None:
    """Become the sandbox's user with its limits and filter; none of this can be undone."""
    os.setsid()
    null = os.open("/dev/null", os.O_RDONLY)
    for source, target in ((null, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    os.closerange(3, 1 << 16)
    for name, value in job["limits"].items():
        resource.setrlimit(LIMITS[name], (value, value))
    os.chdir("/work")
    number = 0
    while _LIBC.prctl(_DROP_BOUND, number, 0, 0, 0) == 0:
        number += 1
    os.setresgid(1000, 1000, 1000)
    os.setresuid(1000, 1000, 1000)
    _must(_LIBC.prctl(_AMBIENT, 4, 0, 0, 0))
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _must(_LIBC.capset(header, nothing))
    _must(_LIBC.prctl(_DUMPABLE, 1, 0, 0, 0))  # as after the start of a program
    _must(_LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    if steps := bytes.fromhex(job["filter"]):
        kept = ctypes.create_string_buffer(steps, len(steps))
        given = _Filter(len(steps) // 8, ctypes.cast(kept, ctypes.c_void_p).value)
        _must(_LIBC.prctl(_SECCOMP, 2, ctypes.byref(given), 0, 0))


def _must(code: int) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _execute(argv: list[str]) -> int:
    """Run the script `argv[0]` as `python -P` does and return its exit code."""
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    importlib.invalidate_caches()
    sys.argv = argv
    module = sys.modules["__main__"] = ModuleType("__main__")
    script = Path(argv[0]).absolute()
    module.__file__ = str(script)
    code: Any = 0
    try:
        program = compile(script.read_bytes(), script, "exec", dont_inherit=True)
        exec(program, vars(module))  # noqa: S102 - the sandbox is there for this
    except SystemExit as ended:
        code = ended.code
        if code is not None and not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
    except BaseException as wrong:  # noqa: BLE001 - shown as Python shows it
        where = wrong.__traceback__ and wrong.__traceback__.tb_next
        sys.excepthook(type(wrong), wrong.with_traceback(where), where)
        code = 130 if isinstance(wrong, KeyboardInterrupt) else 1
    # As Python ends, without the time in which it would take all modules apart.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    kinds = (io.TextIOWrapper, io.BufferedWriter)
    left_open = (thing for thing in gc.get_objects() if issubclass(type(thing), kinds))
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, *left_open):
        with contextlib.suppress(Exception):  # the program may have closed or replaced it
            stream.flush()
    vars(module).clear()
    gc.collect()
    return int(code or 0) & 0xFF


if __name__ == "__main__":
    main(int(sys.argv[1]))
