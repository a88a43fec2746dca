"""A real PostgreSQL server for the tests that need one."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import pytest

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if os.name == "posix" else []
NEEDED = [
    pytest.mark.postgres,
    pytest.mark.skipif(not BINARIES, reason="PostgreSQL is not installed (Debian: postgresql)"),
    pytest.mark.skipif(
        os.geteuid() == 0 and shutil.which("runuser") is None,
        reason="the server does not run as root, and there is no runuser",
    ),
]


@contextmanager
def server() -> Iterator[str]:
    """A database of its own on the one server of this process, by its URL."""
    from psycopg import connect

    place, name = _started(), f"postgres{next(numbers)}"
    with connect(f"{place}/postgres", autocommit=True) as live:
        live.execute(f"CREATE DATABASE {name}")
    yield f"{place}/{name}"


numbers = itertools.count(1)


@lru_cache(maxsize=1)
def _started() -> str:
    """Start a server on a free loopback port, which ends with this process.

    Its folder is not pytest's own, which other sessions close to other users.
    """
    place = Path(tempfile.mkdtemp(prefix="sage-postgres-"))
    data = place / "data"
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_user:
        place.chmod(0o755)
        shutil.chown(place, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    programs = BINARIES[-1]
    init = [*as_user, str(programs / "initdb"), "-D", str(data), "-U", "sage", "-A", "trust",
            "-E", "UTF8"]  # fmt: skip
    subprocess.run(init, check=True, capture_output=True, cwd="/")
    control = [*as_user, str(programs / "pg_ctl"), "-D", str(data), "-w", "-o",
               f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off"]  # fmt: skip
    atexit.register(_stop, control, place)
    subprocess.run(
        [*control, "-l", str(place / "log"), "start"], check=True, cwd="/",
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return f"postgresql://sage@127.0.0.1:{port}"


def _stop(control: list[str], place: Path) -> None:
    subprocess.run([*control, "-m", "immediate", "stop"], capture_output=True, cwd="/")
    shutil.rmtree(place, ignore_errors=True)


class Line:
    """A line to a server on loopback that can be cut and that can fall silent.

    While `cuts` is not 0, a connection ends once its COMMIT reached the server, before the answer.
    While `silent` is set, nothing passes and nothing is closed.
    """

    def __init__(self, url: str) -> None:
        self.target = int(url.rpartition(":")[2].partition("/")[0])
        self.cuts = 0
        self.silent = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(str(self.target), str(self.socket.getsockname()[1]))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.socket.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                cut = threading.Event()
                for ends in ((near, far), (far, near)):
                    given = (*ends, cut, ends[0] is near)
                    threading.Thread(target=self._carry, args=given, daemon=True).start()

    def _carry(
        self, one: socket.socket, other: socket.socket, cut: threading.Event, there: bool
    ) -> None:
        with suppress(OSError):
            while said := one.recv(1 << 16):
                while self.silent.is_set():
                    time.sleep(0.02)
                if there and self.cuts and b"COMMIT" in said:
                    self.cuts -= 1
                    cut.set()
                    other.sendall(said)
                    time.sleep(0.3)
                    one.shutdown(socket.SHUT_RDWR)
                    other.shutdown(socket.SHUT_RDWR)
                    return
                if there or not cut.is_set():
                    other.sendall(said)

    def close(self) -> None:
        """Take no more connections."""
        self.socket.close()
