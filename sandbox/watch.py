"""Monitoring of a run from outside: memory without a control group, and tmpfs files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox.types import Limits


class Watch(threading.Thread):
    """Thread that sums resident memory over a process tree and calls `kill` past the limit.

    Descendants of `waiter`, which is not itself part of the run, are also counted.
    """

    def __init__(
        self, pid: int, limits: Limits, kill: Callable[[], None], waiter: int | None = None
    ) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._waiter = waiter
        self._limit = limits.memory_mb
        self._kill = kill
        self._ended = threading.Event()
        self.killed = 0
        self.peak_mb = 0.0

    def run(self) -> None:
        """Check twenty times a second."""
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._ended.wait(0.05):
            pids = _tree(self._pid) + (_tree(self._waiter)[1:] if self._waiter else [])
            used = sum(_resident(pid) for pid in pids) * page / 1024 / 1024
            self.peak_mb = max(self.peak_mb, round(used, 1))
            if used > self._limit:
                self.killed = 1
                self._kill()
                return

    def stop(self) -> None:
        """Stop watching."""
        self._ended.set()
        self.join(timeout=2)


MAX_INODES = 20_000
"""Maximum number of files and folders that a run may create in each writable location."""
_NEARLY_FULL = 64 * 1024


class Space(threading.Thread):
    """Thread that monitors a run's writable file systems and calls `kill` on too many files.

    `places` are open descriptors or paths; the kernel does the counting.
    """

    def __init__(self, places: Sequence[int | str], kill: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._places = places
        self._kill = kill
        self._ended = threading.Event()
        self.over = False

    def run(self) -> None:
        """Check twenty times a second."""
        while not self._ended.wait(0.05):
            if any(_inodes(place) > MAX_INODES for place in self._places):
                self.over = True
                self._kill()
                return

    def stop(self) -> None:
        """Stop watching; from then on, `over` also reports a full file system."""
        self._ended.set()
        if self.is_alive():
            self.join(timeout=2)
        self.over = self.over or any(_full(place) for place in self._places)


def _inodes(place: int | str) -> int:
    try:
        found = os.statvfs(place)
    except OSError:  # ended, or not visible to this user
        return 0
    return found.f_files - found.f_ffree


def _full(place: int | str) -> bool:
    try:
        found = os.statvfs(place)
    except OSError:
        return False
    left = found.f_bavail * found.f_frsize
    return left < _NEARLY_FULL or found.f_files - found.f_ffree >= min(MAX_INODES, found.f_files)


def _tree(root: int) -> list[int]:
    """List a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            parent = int(line.rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += parents.get(pid, [])
    return found


def _resident(pid: int) -> int:
    """Count a process's resident pages, excluding those shared with files; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
        return max(int(fields[1]) - int(fields[2]), 0)
    except (OSError, IndexError):
        return 0
