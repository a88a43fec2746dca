"""A process with preloaded analysis libraries, from which bubblewrap jobs are forked.

Importing libraries takes most of the time of a short analysis. The process sees the same
part of the host as a sandbox (interpreter, libraries, job folders), runs nothing but
those imports, and lives as long as this process. Job sandboxes are set up from its view
of the host, so that a forked job finds every file where it was at load time.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sage.core.errors import FaultError
from sandbox import seccomp
from sandbox.cgroup import Group
from sandbox.stage import Stage
from sandbox.warm_inside import NAMESPACES

PROGRAM = Path(__file__).with_name("warm_inside.py")
START_SECONDS = 60.0


class Warm:
    """The preloaded process; `start` receives its descriptor and its stage, and starts it."""

    def __init__(self, start: Callable[[Stage, int], subprocess.Popen[bytes]]) -> None:
        self.stage = Stage()
        self._owner = os.getpid()
        self._control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = start(self.stage, inside.fileno())
        inside.close()
        self._control.settimeout(START_SECONDS)
        self._lock = threading.Lock()
        self._ready: bool | None = None
        self._spaces: list[int] = []
        self._own: dict[str, int] = {}
        atexit.register(self._remove)

    def ready(self) -> bool:
        """Wait until the libraries are loaded; return False if there is no process to fork from."""
        with self._lock:
            if self._ready is None:
                self._ready = self._open()
            return self._ready

    def _open(self) -> bool:
        pid = ""
        with contextlib.suppress(OSError):
            pid = self._control.recv(16).decode()
        if not pid:
            self._process.kill()
            return False
        names = ("mnt", "user") if os.getuid() else ("mnt",)
        self._spaces = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in names]
        self._own = {name: Path(f"/proc/{pid}/ns/{name}").stat().st_ino for name in NAMESPACES}
        return True

    def enter(self) -> list[str]:
        """Return the command prefix for running a command with this view of the host."""
        # Not by descriptors of its own, which a program would find open in its sandbox.
        mine = f"/proc/{os.getpid()}/fd"
        words = ["nsenter", f"--mount={mine}/{self._spaces[0]}"]
        if len(self._spaces) > 1:
            words += ["--preserve-credentials", f"--user={mine}/{self._spaces[1]}"]
        return [*words, "--"]

    def fork(
        self,
        pid: int,
        argv: Sequence[str],
        limits: dict[str, int],
        group: Group | None,
        streams: tuple[int, int],
    ) -> Forked:
        """Run the script `argv[0]` in the namespaces of the process `pid`.

        Raises
        ------
        FaultError
            If the preloaded process does not respond, in which case the job has not started.
        """
        channel, inside = socket.socketpair()
        channel.settimeout(START_SECONDS)
        try:
            with inside:
                socket.send_fds(self._control, [b"j"], [inside.fileno()])
            number = int(channel.makefile("rb", buffering=0).readline())
            for path in group.joins if group else ():
                Path(path).write_text(str(number), encoding="ascii")
            spaces = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
            try:
                text = json.dumps(
                    {
                        "argv": list(argv),
                        "limits": limits,
                        "own": self._own,
                        "filter": (seccomp.program() or b"").hex(),
                    }
                ).encode()
                socket.send_fds(channel, [f"{len(text):8d}".encode()], [*spaces, *streams])
                channel.sendall(text)
            finally:
                for space in spaces:
                    os.close(space)
        except (OSError, ValueError) as wrong:
            channel.close()
            self._ready = False
            raise FaultError(f"the job could not enter the sandbox: {wrong}") from wrong
        return Forked(number, channel)

    def _remove(self) -> None:
        if self._owner == os.getpid():
            self._control.close()
            self._process.kill()
            self._process.wait()
            self.stage.__exit__()


@dataclass
class Forked:
    """A forked job; `pid` is the process outside the sandbox that waits for it."""

    pid: int
    channel: socket.socket
    exit_code: int | None = None
    cpu_seconds: float | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for the end; return False if it has not ended within `seconds`."""
        self.channel.settimeout(seconds)
        try:
            text = self.channel.recv(4096)
        except TimeoutError:
            return False
        except ConnectionResetError:  # killed before it had read what to run
            text = b""
        if text:
            self.exit_code, self.cpu_seconds = json.loads(text)
        return True
