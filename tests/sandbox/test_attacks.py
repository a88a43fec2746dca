"""Hostile code in the real sandboxes: contained, the host intact, each ending told as it was."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandbox.types import Job, SandboxResult
from tests.sandbox.attack import PRELUDE, Attack
from tests.sandbox.attacks import ATTACKS
from tests.sandbox.boxes import BOXES, working

MARKER = str(80_000 + os.getpid())
SECRET = "canary-5f1c-secret"


@dataclass
class Host:
    """What an attacker would like to reach, watched for the length of one attack."""

    folder: Path
    facts: dict[str, Any]
    victim: subprocess.Popen[bytes]

    def digest(self) -> str:
        """The content and modes of everything outside the run's own output."""
        digest = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            if "out" not in path.relative_to(self.folder).parts:
                digest.update(f"{path} {path.lstat().st_mode}".encode())
                digest.update(path.read_bytes() if path.is_file() else b"")
        return digest.hexdigest()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("SAGE_ATTACK_CANARY", SECRET)
    (tmp_path / "cohort").mkdir()
    (tmp_path / "cohort" / "clinical.csv").write_text("patient,os\nTCGA-XX-0001,12\n")
    (tmp_path / "secret.txt").write_text(SECRET)
    victim = subprocess.Popen(["sleep", "60"], start_new_session=True)
    abstract = f"sage-attack-{os.getpid()}"
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix:
        tcp.bind(("0.0.0.0", 0))
        tcp.listen()
        unix.bind(f"\0{abstract}")
        unix.listen()
        facts = {
            "port": tcp.getsockname()[1],
            "abstract": abstract,
            "secret": str(tmp_path / "secret.txt"),
            "folder": str(tmp_path),
            "pid": victim.pid,
            "marker": MARKER,
        }
        yield Host(tmp_path, facts, victim)
    victim.send_signal(signal.SIGKILL)
    victim.wait()


def strike(name: str, attack: Attack, host: Host) -> SandboxResult:
    code = PRELUDE.format(host=host.facts) + attack.code + "\n"
    job = Job(
        files={"analysis.py": code},
        inputs={"cohort": host.folder / "cohort"},
        output=host.folder / "out",
        limits=attack.limits,
    )
    return working(name).run(job)


DOCKER, _, WARM = BOXES  # bubblewrap alone has less to get wrong than warm
STRIKES = [
    pytest.param(attack, *box.values, marks=box.marks, id=f"{attack.name}-{box.values[0]}")
    for attack in ATTACKS
    for box in ([WARM] if attack.variant else [DOCKER, WARM])
]


@pytest.mark.parametrize(("attack", "name"), STRIKES)
def test_an_attack_is_contained_and_reported_as_what_it_was(
    attack: Attack, name: str, host: Host
) -> None:
    before = host.digest()

    result = strike(name, attack, host)

    seen = f"{result.message}\n{result.stdout_tail}\n{result.stderr_tail}\n{result.dropped}"
    assert "ESCAPED" not in result.stdout_tail, seen
    assert result.reason is attack.reason, seen
    assert result.usage.wall_seconds < attack.limits.seconds + 60, "it was not over in time"
    assert attack.message in result.message, seen
    assert attack.says in result.stdout_tail + result.stderr_tail, seen
    assert "\x1b" not in seen and "\x00" not in seen
    assert SECRET not in seen
    assert host.digest() == before, "the host's files changed"
    assert host.victim.poll() is None, "a process of the host was hurt"
    assert_output_is_plain(result, attack, host.folder / "out")
    assert_nothing_is_left(name)


def assert_output_is_plain(result: SandboxResult, attack: Attack, out: Path) -> None:
    """Only regular, unprivileged files, all of them listed, within the limit."""
    files = [path for path in out.rglob("*") if not path.is_dir() or path.is_symlink()]
    assert sorted(str(path.relative_to(out)) for path in files) == [
        artifact.path for artifact in result.artifacts
    ]
    for path in files:
        assert path.is_file() and not path.is_symlink()
        assert path.stat().st_nlink == 1
        assert not path.stat().st_mode & 0o7111
        assert SECRET.encode() not in path.read_bytes()
    assert sum(artifact.bytes for artifact in result.artifacts) <= attack.limits.output_mb << 20
    assert len(result.dropped) >= attack.dropped, result.dropped
    for name in attack.kept:
        assert (out / name).is_file(), result.dropped


def assert_nothing_is_left(name: str) -> None:
    """No container of this process, no process of the code, no control group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            assert MARKER.encode() not in words, "a process of the code is still running"
    groups = (name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names)
    assert not [name for name in groups if name.startswith(f"sage-sandbox-{os.getpid()}-")]
    if name == "docker":
        assert not own_containers()


def own_containers() -> list[str]:
    """Containers that this process started and that still exist; none where no engine runs."""
    from sandbox.docker_engine import OWNER_LABEL, DockerSandbox, engine

    if not DockerSandbox().available().ok:
        return []
    with engine() as client:
        # Those of other processes may end while they are listed.
        listed = client.containers.list(
            all=True, filters={"label": OWNER_LABEL}, ignore_removed=True
        )
        return [
            str(item.name)
            for item in listed
            if f'"pid": "{os.getpid()}"' in item.labels[OWNER_LABEL]
        ]
