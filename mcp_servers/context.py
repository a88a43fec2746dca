"""Context of a tool call: files under roots, progress, cancellation, shared handles."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mcp_servers.roots import Kind, Roots
from sage.core.errors import Cancelled, InputError
from sage.core.files import replacing

T = TypeVar("T")

Progress = Callable[[float, str], None]


class Handles:
    """A small least-recently-used cache of open slides and models of a worker."""

    def __init__(self, capacity: int = 8) -> None:
        """Hold at most `capacity` handles; the oldest is closed first."""
        self.capacity = max(1, capacity)
        self._held: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """Return the handle under `key`, made by `make` when it is not held."""
        if key in self._held:
            self._held.move_to_end(key)
            held: T = self._held[key]
            return held
        made = make()
        self._held[key] = made
        while len(self._held) > self.capacity:
            self._close(self._held.popitem(last=False)[1])
        return made

    def clear(self) -> None:
        """Close everything."""
        while self._held:
            self._close(self._held.popitem()[1])

    @staticmethod
    def _close(handle: Any) -> None:
        close = getattr(handle, "close", None)
        if callable(close):
            close()


def _silent(fraction: float, message: str) -> None:
    return None


def _never() -> bool:
    return False


def remove_path(path: Path) -> None:
    """Remove a file or a folder with all in it; nothing happens when there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@dataclass
class ToolContext:
    """Files, limits and callbacks of a call.

    `memory_mb` is the memory that the tool should plan for, `threads` its CPU share, `device` is
    "cpu" or "cuda:N". `tag` is in the names of temporary files, so that those of a killed job are
    found. `read` and `written` record the files that went through the context.
    """

    roots: Roots
    on_progress: Progress = _silent
    cancelled: Callable[[], bool] = _never
    memory_mb: int = 1024
    threads: int = 1
    device: str = "cpu"
    tag: str = field(default_factory=lambda: str(os.getpid()))
    handles: Handles = field(default_factory=Handles)
    read: list[Path] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    def input(self, path: str | Path, kind: Kind = "any") -> Path:
        """Return the resolved path of an input under the roots; it is recorded in the provenance.

        Raises `InputError` when it is outside the roots, absent, or not of the asked kind.
        """
        resolved = self.roots.input(path, kind)
        if resolved not in self.read:
            self.read.append(resolved)
        return resolved

    def model(self, path: str | Path, kind: Kind = "any") -> Path:
        """As `input`, for a model that runs: it may be code.

        Raises `InputError` also where a part of it lies, or a link leads, where tools or programs
        write: what lies there is no model that a person chose.
        """
        resolved = self.input(path, kind)
        for file in (resolved, *(resolved.rglob("*") if resolved.is_dir() else ())):
            if self.roots.writes(self.input(file) if file.is_symlink() else file):
                raise InputError(
                    f"{path}: weights must lie in a folder that you gave to read, not in the output"
                    " nor in the folder of a session or run"
                )
        return resolved

    def output(self, name: str | Path) -> Path:
        """Return the path for an output called `name`, below the output root; it is recorded.

        For a folder, or a library that insists on its own writing. Prefer `writing` for files.
        """
        target = self.roots.write_path(name)
        relative = target.relative_to(self.roots.output).as_posix()
        if relative not in self.written:
            self.written.append(relative)
        return target

    @contextlib.contextmanager
    def writing(self, name: str | Path) -> Iterator[Path]:
        """Make a temporary path with the name's suffix, renamed to `name` when the block ends well.

        On an error or a kill nothing is found under `name` but what was there before. Two writers
        of one name do not mix: the last to finish wins, whole.
        """
        target = self.roots.write_path(name)
        with replacing(target, self.tag) as temporary:
            yield temporary
        self.output(name)

    @contextlib.contextmanager
    def writing_folder(self, name: str | Path, replace: bool = False) -> Iterator[Path]:
        """As `writing`, for a folder: the block makes the temporary path, which is then renamed.

        What is there under `name` stays until the new folder is whole; with `replace` it is then
        moved away and removed.

        Raises
        ------
        InputError
            If there is something under `name` and `replace` was not asked for.
        """
        target = self.roots.write_path(name)

        def free() -> None:
            if target.exists() and not replace:
                raise InputError(f'"{target}" exists; set replace=true, or use another output')

        free()
        unique = f".{self.tag}-{secrets.token_hex(4)}"
        temporary = target.with_name(f".{target.stem[:80]}{unique}.part{target.suffix}")
        old = target.with_name(f".{target.stem[:80]}{unique}.old.part{target.suffix}")
        try:
            yield temporary
            free()  # another may have written it meanwhile
            if target.exists():
                target.rename(old)
            try:
                temporary.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
        finally:
            remove_path(temporary)
            remove_path(old)
        self.output(name)

    def progress(self, fraction: float, message: str = "") -> None:
        """Report how far the tool is, 0 to 1; raises `Cancelled` if the caller gave up."""
        self.on_progress(min(1.0, max(0.0, float(fraction))), message)
        self.check_cancelled()

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if the caller cancelled; cheap, to be called in every long loop."""
        if self.cancelled():
            raise Cancelled("cancelled by the caller")

    def share_handle(self, key: Any, make: Callable[[], T]) -> T:
        """Return a handle kept open between the calls of a worker, say an open slide or a model."""
        return self.handles.get(key, make)
