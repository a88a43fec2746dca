"""Files written whole or not at all, and durably; lines appended whole."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sage.core.errors import InputError


@contextmanager
def writing(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a binary stream whose content is found under `path` when the block ends well.

    After an error, or a kill at any time, `path` is what it was before. The file has no name
    until it is whole, so a kill leaves nothing behind; where the file system cannot do that (some
    network ones) a hidden `.part` file is left. Two writers of one path do not mix: the last to
    finish wins.

    Parameters
    ----------
    path : parent folders are made
    durable : return only when the disk has it; caches, which lose nothing of worth, go without

    Raises
    ------
    OSError
        With `path` as its file name, also when the disk is full.
    """
    part = f".{path.name[:40]}.{os.getpid()}-{secrets.token_hex(4)}.part"
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            descriptor, named = _open(folder, part)
            with os.fdopen(descriptor, "w+b", buffering=1 << 20) as stream:
                yield stream
                stream.flush()
                if durable:
                    os.fsync(descriptor)
                if not named:
                    os.link(f"/proc/self/fd/{descriptor}", part, dst_dir_fd=folder)
            with _as(path):
                os.replace(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            if durable:
                _sync(folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
        finally:
            os.close(folder)


@contextmanager
def replacing(path: Path, tag: str = "") -> Iterator[Path]:
    """As `writing`, for a library that insists on a path: a hidden file with the same suffix.

    `tag` appears in the hidden name, so that whoever gave it finds what a kill left.
    """
    unique = f"{tag or os.getpid()}-{secrets.token_hex(4)}"
    temporary = path.with_name(f".{path.stem[:40]}.{unique}.part{path.suffix}")
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            with _as(path):
                temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file; see `writing`."""
    with writing(path, durable=durable) as stream:
        stream.write(content)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write UTF-8; a lone surrogate, which it cannot hold, is written as its JSON escape."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"), durable=durable)


def write_json(path: Path, value: Any) -> None:
    """Write a pydantic model or plain data as JSON, sorted and indented."""
    plain = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
    write_text(path, json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises
    ------
    InputError
        If it holds no JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}. Restore it from a backup") from None


def append_line(path: Path, line: str, *, durable: bool = False) -> None:
    """Add a line with a single call, so that lines of several writers stay whole."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as stream:
            stream.write(f"{line}\n".encode("utf-8", errors="backslashreplace"))
            if durable:
                os.fsync(stream.fileno())


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock file at `path`; whoever else asks for it waits. A killed holder lets go."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an error of the disk the path at which it came up."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def _as(path: Path) -> Iterator[None]:
    """Name `path` in an error in the place of the hidden file."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _open(folder: int, part: str) -> tuple[int, bool]:
    """Return a new file in the folder, and whether it had to be given the name `part` at once."""
    if hasattr(os, "O_TMPFILE") and Path("/proc/self/fd").is_dir():
        try:
            return os.open(".", os.O_TMPFILE | os.O_RDWR, 0o666, dir_fd=folder), False
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
    return os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666, dir_fd=folder), True


def _sync(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such call
            raise
