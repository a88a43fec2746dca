"""Resource limits on a whole process tree through control groups (v1 or v2), where permitted."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.types import Limits

ROOT = Path("/sys/fs/cgroup")
PREFIX = "sage-sandbox-"


@dataclass
class Counters:
    """Control group counters; None for those that the kernel does not provide."""

    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None
    memory_kills: int = 0
    refused_processes: int = 0


@dataclass
class Group:
    """A control group: a single folder in version 2, a folder per controller in version 1."""

    folders: list[Path] = field(default_factory=list)

    @property
    def joins(self) -> list[str]:
        """Files to which a process writes its ID to join the group."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def counters(self) -> Counters:
        """Read the group's counters."""
        return read_counters(self.folders)

    def kill(self) -> None:
        """Kill every process in the group, even if they keep forking (limited number of tries)."""
        import signal

        for folder in self.folders:
            if (folder / "cgroup.kill").exists():
                with contextlib.suppress(OSError):
                    (folder / "cgroup.kill").write_text("1", encoding="ascii")
        for _ in range(200):
            numbers = {
                int(line)
                for folder in self.folders
                for line in read_counter(folder / "cgroup.procs").split()
            }
            if not numbers:
                return
            for number in numbers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.005)

    def remove(self) -> None:
        """Remove the group; the kernel may need a moment after the last process has ended."""
        for folder in self.folders:
            for _ in range(200):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.005)
                else:
                    break


def make(limits: Limits, extra_mb: int) -> Group | None:
    """Create a group that limits memory (plus `extra_mb` for files), CPU and processes.

    Returns None if this process may not create a group; the caller then has to limit the run by
    other means.
    """
    group = Group()
    name = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        if (ROOT / "cgroup.controllers").exists():
            _make_v2(group, name, limits, extra_mb)
        else:
            _make_v1(group, name, limits, extra_mb)
        if not all(os.access(path, os.W_OK) for path in group.joins):
            raise PermissionError("the group cannot be joined")
    except OSError:
        group.remove()
        return None
    return group


def _make_v2(group: Group, name: str, limits: Limits, extra_mb: int) -> None:
    own = ROOT / _memberships().get("", "").lstrip("/")
    # A process may not live in an inner node, so the group becomes our sibling, not our child.
    parent = own if own == ROOT else own.parent
    if not os.access(parent / "cgroup.procs", os.W_OK):
        raise PermissionError("processes cannot be moved from here")
    enabled = read_counter(parent / "cgroup.subtree_control").split()
    if not {"memory", "pids"} <= set(enabled):
        (parent / "cgroup.subtree_control").write_text("+memory +pids", encoding="ascii")
    folder = parent / name
    folder.mkdir()
    group.folders.append(folder)
    (folder / "memory.max").write_text(_bytes(limits, extra_mb), encoding="ascii")
    (folder / "pids.max").write_text(str(limits.pids), encoding="ascii")
    with contextlib.suppress(OSError):
        (folder / "memory.swap.max").write_text("0", encoding="ascii")
    with contextlib.suppress(OSError):
        (folder / "cpu.max").write_text(f"{int(limits.cpus * 100_000)} 100000", encoding="ascii")


def _make_v1(group: Group, name: str, limits: Limits, extra_mb: int) -> None:
    own = _memberships()
    for controller, settings in {
        "memory": {"memory.limit_in_bytes": _bytes(limits, extra_mb)},
        "pids": {"pids.max": str(limits.pids)},
        "cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": str(int(limits.cpus * 100_000))},
        "cpuacct": {},
    }.items():
        folder = ROOT / controller / own.get(controller, "/").lstrip("/") / name
        if folder in group.folders:
            continue
        folder.mkdir()
        group.folders.append(folder)
        for key, value in settings.items():
            (folder / key).write_text(value, encoding="ascii")
    with contextlib.suppress(OSError):
        swap = group.folders[0] / "memory.memsw.limit_in_bytes"
        swap.write_text(_bytes(limits, extra_mb), encoding="ascii")


def _bytes(limits: Limits, extra_mb: int) -> str:
    return str((limits.memory_mb + extra_mb) * 1024 * 1024)


def _memberships(pid: int | str = "self") -> dict[str, str]:
    """Map each controller to its path, from /proc; version 2 uses the empty controller name."""
    found = {}
    for line in read_counter(Path(f"/proc/{pid}/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def folders_of(pid: int) -> list[Path]:
    """Return the control group folders of a process, as seen from this process."""
    own = _memberships(pid)
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT / own.get("", "/").lstrip("/")]
    return [
        ROOT / controller / own[controller].lstrip("/")
        for controller in ("memory", "pids", "cpuacct")
        if controller in own
    ]


def read_counters(folders: list[Path]) -> Counters:
    """Read a group's counters from whichever of its files exist."""
    found = Counters()
    for folder in folders:
        for name in ("memory.peak", "memory.max_usage_in_bytes"):
            if text := read_counter(folder / name).strip():
                found.peak_memory_mb = round(int(text) / 1024 / 1024, 1)
        for name in ("memory.events", "memory.oom_control"):
            found.memory_kills = max(found.memory_kills, _field(folder / name, "oom_kill"))
        found.refused_processes = max(
            found.refused_processes, _field(folder / "pids.events", "max")
        )
        if text := read_counter(folder / "cpuacct.usage").strip():
            found.cpu_seconds = round(int(text) / 1e9, 3)
        if spent := _field(folder / "cpu.stat", "usage_usec"):
            found.cpu_seconds = round(spent / 1e6, 3)
    return found


def _field(path: Path, key: str) -> int:
    for line in read_counter(path).splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == key:
            return int(words[1])
    return 0


def read_counter(path: Path) -> str:
    """Return the text of a counter, or an empty string if it is not readable."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def sweep_groups() -> list[str]:
    """Remove empty groups left by dead runs and return their names."""
    removed = []
    for folder in sorted({*ROOT.glob(f"**/{PREFIX}*")}):
        number = folder.name.removeprefix(PREFIX).split("-")[0]
        if number.isdigit() and not Path(f"/proc/{number}").exists():
            Group([folder]).kill()
            with contextlib.suppress(OSError):
                folder.rmdir()
                removed.append(f"control group {folder}")
    return removed
