"""Runs as separate command-line processes, which keep running after the server ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from sage.core.errors import InputError
from sage.core.files import write_json
from sage.core.hooks import OWNER
from sage.core.printable import clean_text, one_line
from sage.run.folder import RunFolder, find_holder
from sage.run.spec import RunSpec

HOLDER = re.compile(r"process (\d+) on (\S+) since")
STARTED = ".started"
"""Folder below the runs folder for the output of each command started by the server."""


class Commands:
    """Commands started by this server, keyed by the run they work on."""

    def __init__(self, runs_dir: Path) -> None:
        self.home = runs_dir / STARTED
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def start(
        self, name: str, *arguments: str, spec: RunSpec | None = None, owner: str = ""
    ) -> None:
        """Start `sage` with these arguments as a separate process that writes its output to a file.

        `spec` is the spec for a new run; `owner` is the person who requested it, if known.

        Raises
        ------
        InputError
            If a command for this run is still running.
        """
        with self._lock:
            if self.alive(name):
                raise InputError(f"run {name} is already in progress")
            self.home.mkdir(parents=True, exist_ok=True)
            if spec is not None:
                file = self.home / f"{Path(name).name[:200]}.spec.json"
                write_json(file, spec)
                arguments = (*arguments, f"--spec={file}")
            with self.log(name).open("wb") as said:
                self._running[name] = subprocess.Popen(
                    [sys.executable, "-m", "sage", *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, "COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
                    | ({OWNER: owner} if owner else {}),
                )

    def log(self, name: str) -> Path:
        """Return the path to the output of a run's last command, without checking `name`."""
        return self.home / f"{Path(name).name[:200]}.log"

    def alive(self, name: str) -> bool:
        """Check whether a command started by this server for the run is still running."""
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def failure(self, name: str) -> str:
        """Return the error message of the last command; empty if it did not fail."""
        process = self._running.get(name)
        code = process.poll() if process is not None else 0
        if not code or code == 130:
            return ""
        with contextlib.suppress(OSError):
            said = self.log(name).read_text(encoding="utf-8", errors="replace")
            errors = [line for line in said.splitlines() if line.startswith("error: ")]
            return (
                clean_text(errors[-1].removeprefix("error: "))
                if errors
                else clean_text(said[-2000:])
            )
        return f"the command ended with code {code}"

    def interrupt(self, name: str) -> bool:
        """Send Ctrl-C to the command started by this server for the run, if still running."""
        process = self._running.get(name)
        if process is None or process.poll() is not None:
            return False
        process.send_signal(signal.SIGINT)
        return True


def holder(run: RunFolder) -> int | None:
    """Return the id of the process on this machine that is working on the run, or None."""
    found = HOLDER.match(find_holder(run))
    here = found is not None and found[2] == socket.gethostname()
    return int(found[1]) if found is not None and here else None


def stop(run: RunFolder) -> None:
    """Send Ctrl-C to the process that is working on the run; finished steps are kept.

    Raises
    ------
    InputError
        If no process on this machine is working on the run.
    """
    process = holder(run)
    if process is None:
        if who := find_holder(run):
            raise InputError(f"run {run.id} is in use by {one_line(who)}; pause it instead")
        raise InputError(f"no process is working on run {run.id}")
    os.kill(process, signal.SIGINT)
