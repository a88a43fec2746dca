"""Context of a tool call: files under the roots, progress, cancellation and shared handles."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mcp_servers.roots import Kind, Roots
from sage.core.errors import Cancelled, InputError
from sage.core.files import replacing

T = TypeVar("T")

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Person making the current call; empty if nobody is identified."""

Progress = Callable[[float, str], None]


class Handles:
    """A worker's small LRU cache of open slides and models."""

    def __init__(self, capacity: int = 8) -> None:
        """Create a cache for at most `capacity` handles; the least recently used closes first."""
        self.capacity = max(1, capacity)
        self._held: OrderedDict[Any, Any] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """Return the handle stored under `key`, creating it with `make` if it is not cached."""
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
        """Close all handles."""
        while self._held:
            self._close(self._held.popitem()[1])

    @staticmethod
    def _close(handle: Any) -> None:
        close = getattr(handle, "close", None)
        if callable(close):
            close()


def remove_path(path: Path) -> None:
    """Remove a file, or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@dataclass
class ToolContext:
    """Files, limits and callbacks available to a tool call.

    `memory_mb` is the tool's memory allowance, `threads` is its share of the CPUs, and
    `device` is "cpu" or "cuda:N". `tag` is part of the name of every temporary file, so that
    files left by a killed job can be found. `read` and `written` record the files accessed
    through the context, and `caller` is the person making the call.
    """

    roots: Roots
    on_progress: Progress = lambda fraction, message: None
    cancelled: Callable[[], bool] = lambda: False
    memory_mb: int = 1024
    threads: int = 1
    device: str = "cpu"
    tag: str = field(default_factory=lambda: str(os.getpid()))
    handles: Handles = field(default_factory=Handles)
    read: list[Path] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    caller: str = field(default_factory=CALLER.get)

    def input(self, path: str | Path, kind: Kind = "any") -> Path:
        """Resolve an input path under the roots and record it in the provenance.

        Raises `InputError` if the path is outside the roots, does not exist, or is not of the
        requested kind.
        """
        resolved = self.roots.input(path, kind)
        if resolved not in self.read:
            self.read.append(resolved)
        return resolved

    def model(self, path: str | Path, kind: Kind = "any") -> Path:
        """Resolve the path of a model to be run, which may contain code; see `input`.

        Also raises `InputError` if any part of the model, or the target of a link in it, is in a
        location where tools or programs can write: a model found there was not chosen by a
        person.
        """
        resolved = self.input(path, kind)
        for file in (resolved, *(resolved.rglob("*") if resolved.is_dir() else ())):
            if self.roots.writes(self.input(file) if file.is_symlink() else file):
                raise InputError(
                    f"{path}: weights must be in a readable input folder, not in the output folder "
                    "or in a session or run folder"
                )
        return resolved

    def output(self, name: str | Path) -> Path:
        """Return the path for the output `name` below the output root, and record it.

        Use it for folders and for libraries that must write files themselves; for other files
        prefer `writing`.
        """
        target = self.roots.write_path(name)
        relative = target.relative_to(self.roots.output).as_posix()
        if relative not in self.written:
            self.written.append(relative)
        return target

    @contextlib.contextmanager
    def writing(self, name: str | Path) -> Iterator[Path]:
        """Yield a temporary path that is renamed to `name` if the block succeeds.

        The temporary path has the suffix of `name`. If the block fails or the process is killed,
        any existing content at `name` is unchanged. If two writers use the same name, the last to
        finish wins and their contents are never mixed.
        """
        target = self.roots.write_path(name)
        with replacing(target, self.tag) as temporary:
            yield temporary
        self.output(name)

    @contextlib.contextmanager
    def writing_folder(self, name: str | Path, replace: bool = False) -> Iterator[Path]:
        """Yield a temporary path for a folder that is renamed to `name` if the block succeeds.

        The block must create the folder. Anything already at `name` is kept until the new folder is
        complete; with `replace` it is then moved away and removed. Raises `InputError` if `name`
        already exists and `replace` is false.
        """
        target = self.roots.write_path(name)

        def free() -> None:
            if target.exists() and not replace:
                raise InputError(
                    f'"{target}" already exists; set replace=true, or choose another output'
                )

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
        """Report the tool's progress, from 0 to 1; raise `Cancelled` if the caller cancelled."""
        self.on_progress(min(1.0, max(0.0, float(fraction))), message)
        self.check_cancelled()

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if the caller cancelled; cheap enough to call in every long loop."""
        if self.cancelled():
            raise Cancelled("canceled by the caller")

    def share_handle(self, key: Any, make: Callable[[], T]) -> T:
        """Return a handle, such as an open slide, that stays open between a worker's calls."""
        return self.handles.get(key, make)
