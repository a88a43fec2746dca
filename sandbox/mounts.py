"""Mounting of host files in a sandbox, even if it runs as another user."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path

COPY_MB = 128
"""Size in MiB up to which inputs are copied into the run's own folder."""


@dataclass(frozen=True)
class Mount:
    """A mount: `source` on the host appears read-only at `target`.

    `staged` is an intermediate mount point in a folder that every user can reach: root binds the
    source there first, because the sandbox's user may not pass through the folders above it.
    """

    source: Path
    target: str
    staged: Path | None = None


def plan(mounts: list[Mount], stage: Path | None) -> list[Mount]:
    """Plan mounts, parents first, each with a mount point below `stage` (None unless root)."""
    ordered = sorted(mounts, key=lambda mount: mount.target)
    if stage is None:
        return ordered
    staged = []
    for number, mount in enumerate(ordered):
        point = stage / str(number)
        if mount.source.is_dir():
            point.mkdir(parents=True)
        else:
            point.parent.mkdir(parents=True, exist_ok=True)
            point.touch()
        staged.append(replace(mount, staged=point))
    return staged


def stage_input(source: Path, target: Path, uid: int | None) -> Path:
    """Copy `source` to `target`, so that the sandbox never learns the original's location.

    The mount table inside a sandbox reveals the location of every mounted folder. Inputs
    larger than `COPY_MB` are mounted in place, unless user `uid` may not read them there.

    Parameters
    ----------
    source : a file or a folder
    target : a new path in the run's own folder
    uid : the only user who owns and may read the copy; None for the calling user

    Links inside an input are never followed out of it; they are omitted from the copy.
    """
    if megabytes(source) > COPY_MB and (uid is None or _open_to_all(source)):
        return source
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        _copy_file(source, target, uid)
        return target
    _new_folder(target, uid)
    for folder, folders, files in os.walk(source, followlinks=False):
        here = target / Path(folder).relative_to(source)
        for name in folders:
            if not (Path(folder) / name).is_symlink():
                _new_folder(here / name, uid)
        for name in files:
            origin = Path(folder) / name
            if stat.S_ISREG(origin.lstat().st_mode):
                _copy_file(origin, here / name, uid)
    return target


def megabytes(source: Path) -> float:
    """Return the size of a file, or of all files in a folder, in MiB."""
    if source.is_file():
        return source.stat().st_size / 2**20
    walked = os.walk(source, followlinks=False)
    paths = (Path(folder) / name for folder, _, files in walked for name in files)
    return sum(path.lstat().st_size for path in paths) / 2**20


def _new_folder(folder: Path, uid: int | None) -> None:
    folder.mkdir(mode=0o700 if uid is None else 0o500)
    if uid is not None:
        os.chown(folder, uid, uid)


def _copy_file(source: Path, target: Path, uid: int | None) -> None:
    # Only its owner may read the copy, from the first byte on.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(descriptor, "wb") as sink, source.open("rb") as origin:
        shutil.copyfileobj(origin, sink, 1 << 20)
    if uid is not None:
        os.chown(target, uid, uid)


def _open_to_all(source: Path) -> bool:
    if source.is_file():
        return bool(source.stat().st_mode & stat.S_IROTH)
    for folder, folders, files in os.walk(source, followlinks=False):
        for name in (*folders, *files, "."):
            mode = (Path(folder) / name).lstat().st_mode
            if stat.S_ISDIR(mode) and mode & 0o005 != 0o005:
                return False
            if stat.S_ISREG(mode) and not mode & stat.S_IROTH:
                return False
    return True
