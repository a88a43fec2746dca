"""A real PostgreSQL server for the tests that need one."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    """A server of its own on a free loopback port, by its URL.

    Its folder is not pytest's own, which other sessions close to other users.
    """
    with tempfile.TemporaryDirectory(prefix="sage-postgres-") as place:
        yield from _running(Path(place))


def _running(place: Path) -> Iterator[str]:
    data = place / "data"
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_user:
        place.chmod(0o755)
        shutil.chown(place, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    programs = BINARIES[-1]
    init = [*as_user, str(programs / "initdb"), "-D", str(data), "-U", "sage", "-A", "trust"]
    subprocess.run(init, check=True, capture_output=True, cwd="/")
    control = [*as_user, str(programs / "pg_ctl"), "-D", str(data), "-w", "-o",
               f"-p {port} -k {place} -c listen_addresses=127.0.0.1"]  # fmt: skip
    try:
        subprocess.run(
            [*control, "-l", str(place / "log"), "start"], check=True, cwd="/",
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        yield f"postgresql://sage@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], capture_output=True, cwd="/")
