"""Removal of old call outputs, by age and size, unless they are still needed.

Each call writes into its own folder, `TOOL/HANDLE`, below the output folder.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from mcp_servers.context import remove_path
from sage.core import clock

HANDLE = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Bounds:
    """Limits on outputs; None means no limit.

    Folders that changed within the last `young_s` seconds are kept because they may be in use.
    """

    days: float | None = None
    megabytes: float | None = None
    young_s: float = 3600.0

    def __bool__(self) -> bool:
        return self.days is not None or self.megabytes is not None


@dataclass(frozen=True)
class Pruned:
    """Call folders removed, and counts and sizes of what was freed and kept."""

    removed: tuple[Path, ...]
    freed: int
    kept: int
    kept_bytes: int
    referenced: int


def prune(
    output: Path, bounds: Bounds, needed: Collection[Path] = (), *, dry: bool = False
) -> Pruned:
    """Remove the oldest call folders that exceed the limits."""
    now = clock.seconds()
    found = []
    for folder in output.glob("*/*"):
        if HANDLE.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink():
            files = [item.lstat() for item in folder.rglob("*")]
            newest = max([folder.lstat().st_mtime, *(item.st_mtime for item in files)])
            found.append((newest, sum(item.st_size for item in files), folder))
    found.sort()
    resolved = {path.resolve() for path in needed}
    total = sum(size for _, size, _ in found)
    removed, freed, referenced = [], 0, 0
    for newest, size, folder in found:
        age = now - newest
        too_old = bounds.days is not None and age > bounds.days * 86_400
        too_much = bounds.megabytes is not None and total - freed > bounds.megabytes * 1e6
        if age < bounds.young_s or not (too_old or too_much):
            continue
        home = folder.resolve()
        if any(path == home or path.is_relative_to(home) for path in resolved):
            referenced += 1
            continue
        if not dry:
            remove_path(folder)
        removed.append(folder)
        freed += size
    return Pruned(tuple(removed), freed, len(found) - len(removed), total - freed, referenced)
