"""Durable file writes that either complete or leave no trace, and atomic appends of lines."""

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
    """Open a binary stream whose content appears at `path` once the block ends without an error.

    After an error, or a kill at any moment, `path` is unchanged. The file has no name until
    it is complete, so a kill leaves nothing behind; on file systems that do not support this,
    such as some network file systems, a hidden `.part` file remains. Concurrent writers to
    the same path do not mix: the last to finish wins.

    Parameters
    ----------
    path : the file to write; missing parent folders are created
    durable : whether to wait until the data are on disk; caches, which can be rebuilt, do not

    Raises
    ------
    OSError
        With `path` as its file name, including when the disk is full.
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
    """Replace `path` as `writing` does, yielding a hidden path for libraries that need a path.

    The hidden file has the same suffix as `path`. `tag` becomes part of its name, so the
    caller can find what a killed process left behind.
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
    """Write bytes to a file as `writing` does."""
    with writing(path, durable=durable) as stream:
        stream.write(content)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write text as UTF-8, with lone surrogates, which UTF-8 cannot encode, as JSON escapes."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"), durable=durable)


def write_json(path: Path, value: Any) -> None:
    """Write a pydantic model or plain data as indented JSON with sorted keys."""
    plain = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
    write_text(path, json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises
    ------
    InputError
        If the file does not contain valid JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}. Restore it from a backup") from None


def read_lines(path: Path) -> list[Any]:
    """Read a file with one JSON value per line, omitting lines left incomplete by a kill.

    A missing file has no lines.
    """
    found = []
    # Not splitlines, which also splits at separators that a JSON text may contain.
    for line in path.read_text(encoding="utf-8").split("\n") if path.is_file() else ():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def read_new_lines(path: Path, offset: int) -> list[bytes]:
    """Read the complete lines that begin after `offset` bytes; none if the file does not exist."""
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            lines = stream.read(1 << 22).splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [line for line in lines if line.endswith(b"\n")]


def append_line(path: Path, line: str, *, durable: bool = False) -> None:
    """Append a line in a single write, so that the lines of concurrent writers stay intact."""
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as stream:
            stream.write(f"{line}\n".encode("utf-8", errors="backslashreplace"))
            if durable:
                os.fsync(stream.fileno())


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file at `path`, waiting if another process holds it.

    If a process is killed, its lock is released.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Attach `path` to any disk error raised within the block."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def _as(path: Path) -> Iterator[None]:
    """Replace the hidden file's name with `path` in any error raised within the block."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _open(folder: int, part: str) -> tuple[int, bool]:
    """Open a new file in the folder, and return whether it was created under the name `part`."""
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
        if error.errno != errno.EINVAL:  # a file system without this call
            raise
