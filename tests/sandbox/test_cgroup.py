"""Control groups on both versions, on a tree of plain files that stands in for the kernel's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox import cgroup
from sandbox.types import Limits

LIMITS = Limits(memory_mb=100, pids=7, cpus=0.5)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    monkeypatch.setattr(cgroup, "_memberships", lambda pid="self": {"": "/a/b.scope"})
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
    (tmp_path / "a").mkdir()
    for name, text in (("cgroup.subtree_control", "memory pids"), ("cgroup.procs", "")):
        (tmp_path / "a" / name).write_text(text)
    return tmp_path


def with_procs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel makes `cgroup.procs` with the folder."""
    real = Path.mkdir

    def mkdir(self: Path, *rest: object, **more: object) -> None:
        real(self, *rest, **more)  # type: ignore[arg-type]
        (self / "cgroup.procs").write_text("")

    monkeypatch.setattr(Path, "mkdir", mkdir)


def test_version_two_bounds_memory_processes_and_cpu(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_procs(monkeypatch)
    group = cgroup.make(LIMITS, 20)
    assert group is not None
    folder = group.folders[0]
    assert folder.parent == tree / "a"
    assert (folder / "memory.max").read_text() == str(120 << 20)
    assert (folder / "pids.max").read_text() == "7"
    assert (folder / "cpu.max").read_text() == "50000 100000"
    assert group.joins == [str(folder / "cgroup.procs")]


def test_counters_of_version_two_are_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_procs(monkeypatch)
    group = cgroup.make(LIMITS, 0)
    assert group is not None
    folder = group.folders[0]
    (folder / "memory.peak").write_text(str(50 << 20))
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\n")
    (folder / "pids.events").write_text("max 3\n")
    (folder / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert group.counters() == cgroup.Counters(1.5, 50.0, 2, 3)


def test_without_the_right_to_make_a_group_there_is_none(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "a" / "cgroup.subtree_control").write_text("")
    (tree / "a" / "cgroup.procs").unlink()
    assert cgroup.make(LIMITS, 0) is None


def test_a_group_that_may_not_be_joined_is_not_used(tree: Path) -> None:
    assert cgroup.make(LIMITS, 0) is None, "a folder without cgroup.procs was taken for a group"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make control groups everywhere")
def test_a_real_group_is_made_and_removed() -> None:
    group = cgroup.make(LIMITS, 0)
    if group is None:
        pytest.skip("no control groups can be made on this machine")
    assert all(folder.is_dir() for folder in group.folders)
    group.remove()
    assert not any(folder.exists() for folder in group.folders)
