"""Checkpoints in a real PostgreSQL server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, sage

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if os.name == "posix" else []
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(not BINARIES, reason="PostgreSQL is not installed (Debian: postgresql)"),
    pytest.mark.skipif(
        os.geteuid() == 0 and shutil.which("runuser") is None,
        reason="the server does not run as root, and there is no runuser",
    ),
]


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own on a free loopback port."""
    place = tmp_path_factory.mktemp("postgres")
    data = place / "data"
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_user:
        for folder in (place, *list(place.parents)[:3]):
            folder.chmod(0o755)
        shutil.chown(place, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    programs = BINARIES[-1]
    init = [*as_user, str(programs / "initdb"), "-D", str(data), "-U", "sage", "-A", "trust"]
    subprocess.run(init, check=True, capture_output=True, cwd="/")
    control = [*as_user, str(programs / "pg_ctl"), "-D", str(data), "-w", "-o",
               f"-p {port} -k {place} -c listen_addresses=127.0.0.1"]  # fmt: skip
    subprocess.run(
        [*control, "-l", str(place / "log"), "start"], check=True, cwd="/",
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield f"postgresql://sage@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], capture_output=True, cwd="/")


def test_a_run_waits_and_goes_on_with_its_checkpoints_in_postgres(
    url: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    begun = sage(
        "run", PROMPT, "--json", "--out", str(run), cwd=tmp_path, SAGE_CHECKPOINT_URL=url
    )
    assert begun.code == 0, begun.err
    assert not (run / "checkpoints.sqlite").exists()
    ended = sage("review", str(run), "--approve", "--json", cwd=tmp_path, SAGE_CHECKPOINT_URL=url)
    assert ended.code == 0, ended.err
    assert ended.json["status"] == "finished"


def test_an_unreachable_database_is_one_clear_fault_without_its_password(tmp_path: Path) -> None:
    ended = sage(
        "run", PROMPT, "--out", str(tmp_path / "run"), cwd=tmp_path,
        SAGE_CHECKPOINT_URL="postgresql://sage:hunter2@127.0.0.1:9/postgres",
    )  # fmt: skip
    assert ended.code == 1
    assert "checkpoint database" in ended.err
    assert "hunter2" not in ended.err
