"""Extraction of results from a sandbox: only regular files with plain names, within limits.

Both routes (an open folder, a tar stream) treat their input as hostile: symbolic and hard
links, devices, pipes, sockets, odd names and oversized content are skipped and listed.
Archives among the files are copied as files and never unpacked.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from sage.core.errors import InputError
from sandbox.types import Artifact

MAX_FILES = 2000
MAX_DEPTH = 6
MAX_NAME = 128
MAX_DROPPED = 50
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_ .,+=@()-]*")
_BLOCK = 1024 * 1024


@dataclass
class Collected:
    """Collected files, skipped files with the reason for each, and the state of the limit."""

    artifacts: list[Artifact] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    bytes: int = 0
    over: bool = False

    def drop(self, name: str, why: str) -> None:
        """Record that a file was skipped; the list is limited in length."""
        if len(self.dropped) < MAX_DROPPED:
            shown = name.encode("utf-8", "backslashreplace").decode()
            shown = "".join(c if c.isprintable() else "?" for c in shown)
            self.dropped.append(f"{shown[:80]}{'…' if len(shown) > 80 else ''}: {why}")
        elif len(self.dropped) == MAX_DROPPED:
            self.dropped.append("more files were dropped and are not listed")


class Landing:
    """A new folder next to the output folder, which it replaces once everything has arrived."""

    def __init__(self, output: Path, limit_mb: int) -> None:
        self.output = output
        self.limit = limit_mb * 1024 * 1024
        self.result = Collected()
        output.parent.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=".landing-", dir=output.parent))

    def __enter__(self) -> Landing:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self) -> Collected:
        """Move the collected files into place."""
        self.folder.chmod(self.output.parent.stat().st_mode & 0o777)
        self.result.artifacts.sort(key=lambda artifact: artifact.path)
        if self.output.is_symlink() or self.output.exists():
            self.output.rmdir()
        self.folder.rename(self.output)
        return self.result

    def take(self, parts: tuple[str, ...], size: int, source: IO[bytes]) -> None:
        """Copy a regular file of `size` bytes to `parts` below the landing folder."""
        shown = "/".join(parts)
        if why := _refuse(parts):
            return self.result.drop(shown, why)
        if len(self.result.artifacts) >= MAX_FILES:
            return self.result.drop(shown, f"more than {MAX_FILES} files")
        if size > self.limit - self.result.bytes:
            self.result.over = True
            return self.result.drop(shown, "over the output limit")
        target = self.folder.joinpath(*parts)
        digest, copied = hashlib.sha256(), 0
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            sink = target.open("xb")
        except OSError as wrong:
            return self.result.drop(shown, f"clashes with another name ({wrong.strerror})")
        with sink:
            while copied < size and (block := source.read(min(_BLOCK, size - copied))):
                sink.write(block)
                digest.update(block)
                copied += len(block)
        self.result.bytes += copied
        self.result.artifacts.append(Artifact(path=shown, bytes=copied, sha256=digest.hexdigest()))
        return None


def require_empty(output: Path) -> None:
    """Reject an output folder that is not empty, since a run never overwrites files."""
    if output.is_symlink() or (output.exists() and not output.is_dir()):
        raise InputError(f"{output} is not a folder; choose a new folder for the output")
    if output.is_dir() and any(output.iterdir()):
        raise InputError(f"{output} is not empty; choose a new folder for the output")


def from_folder(descriptor: int, output: Path, limit_mb: int) -> Collected:
    """Copy files from the folder open at `descriptor`, to which no process may still be writing.

    Everything is opened relative to its parent's descriptor and without following links, so
    no name in the folder can lead anywhere else.
    """
    with Landing(output, limit_mb) as landing:
        _walk(descriptor, (), landing)
        return landing.keep()


def _walk(folder: int, above: tuple[str, ...], landing: Landing) -> None:
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names[: MAX_FILES * 2]:
        parts = (*above, name)
        shown = "/".join(parts)
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as wrong:
            landing.result.drop(shown, f"not readable ({wrong.strerror})")
            continue
        if stat.S_ISDIR(info.st_mode):
            if why := _refuse(parts):
                landing.result.drop(shown, why)
                continue
            _descend(folder, name, parts, landing)
        elif why := _not_plain(info):
            landing.result.drop(shown, why)
        else:
            _file(folder, name, parts, landing)
    if len(names) > MAX_FILES * 2:
        landing.result.drop(
            "/".join(above) or ".", f"{len(names)} entries, not all of them were read"
        )


def _descend(folder: int, name: str, parts: tuple[str, ...], landing: Landing) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        inner = os.open(name, flags, dir_fd=folder)
    except OSError as wrong:
        return landing.result.drop("/".join(parts), f"not readable ({wrong.strerror})")
    try:
        _walk(inner, parts, landing)
    finally:
        os.close(inner)


def _file(folder: int, name: str, parts: tuple[str, ...], landing: Landing) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as wrong:
        return landing.result.drop("/".join(parts), f"not readable ({wrong.strerror})")
    with os.fdopen(descriptor, "rb", closefd=True) as source:
        info = os.fstat(source.fileno())
        if why := _not_plain(info):
            return landing.result.drop("/".join(parts), why)
        return landing.take(parts, info.st_size, source)


def _not_plain(info: os.stat_result) -> str:
    if not stat.S_ISREG(info.st_mode):
        return f"not a regular file ({_kind(info.st_mode)})"
    if info.st_nlink != 1:
        return "hard link"
    return ""


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISFIFO, "pipe"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISCHR, "device"),
        (stat.S_ISBLK, "device"),
    ):
        if test(mode):
            return name
    return "unknown kind"


def _refuse(parts: tuple[str, ...]) -> str:
    if not parts:
        return "no name"
    if len(parts) > MAX_DEPTH:
        return f"more than {MAX_DEPTH} folders deep"
    for part in parts:
        if len(part.encode("utf-8", "surrogateescape")) > MAX_NAME:
            return f"name longer than {MAX_NAME} bytes"
        if not _NAME.fullmatch(part) or part != part.rstrip(" ."):
            return "name with characters that are not allowed"
    return ""


def from_tar(chunks: Iterable[bytes], output: Path, limit_mb: int, root: str) -> Collected:
    """Copy from a tar stream whose members are below `root`, and stop reading past the limit.

    Parameters
    ----------
    chunks : the tar file, piece by piece
    output : folder for the files; anything but a plain file is skipped with a reason
    limit_mb : total size of all files in megabytes
    root : the folder's name in the tar file

    Returns
    -------
    The files that were copied and those that were skipped.
    """
    with Landing(output, limit_mb) as landing:
        source = _Bounded(chunks, landing.limit + 64 * _BLOCK)
        try:
            with tarfile.open(fileobj=source, mode="r|") as archive:  # type: ignore[call-overload]
                for number, member in enumerate(archive):
                    if number > 2 * MAX_FILES:
                        landing.result.drop(root, "too many entries, not all were read")
                        break
                    _member(archive, member, root, landing)
        except (tarfile.TarError, EOFError, ValueError) as wrong:
            landing.result.drop("(archive)", f"ended early: {wrong}")
        landing.result.over = landing.result.over or source.over
        return landing.keep()


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo, root: str, landing: Landing) -> None:
    parts = tuple(part for part in member.name.split("/") if part not in ("", "."))
    if parts[:1] != (root,):
        return landing.result.drop(member.name, "outside the output folder")
    parts = parts[1:]
    if member.isdir():
        return None
    if not member.isreg():
        kind = "symbolic link" if member.issym() else "hard link" if member.islnk() else "device"
        return landing.result.drop("/".join(parts), f"not a regular file ({kind})")
    content = archive.extractfile(member)
    return landing.take(parts, member.size, content or io.BytesIO())


class _Bounded:
    """File-like view of chunks that stops after `limit` bytes or repeated reads past the end.

    A tar header may declare a terabyte; skipping it would read that much.
    """

    def __init__(self, chunks: Iterable[bytes], limit: int) -> None:
        self._chunks: Iterator[bytes] = iter(chunks)
        self._left = limit
        self._rest = b""
        self._ends = 0
        self.over = False

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes, fewer only at the end; raise EOFError past the limit."""
        parts: list[bytes] = []
        wanted = size
        while wanted > 0:
            if not self._rest:
                self._rest = next(self._chunks, b"")
                if not self._rest:
                    self._ends += 1
                    if self._ends > 8:
                        raise EOFError("the stream is shorter than declared")
                    break
                self._left -= len(self._rest)
                if self._left < 0:
                    self.over = True
                    raise EOFError("more output than allowed")
            part, self._rest = self._rest[:wanted], self._rest[wanted:]
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)
