"""Folders that tools may read and write, checked after symlinks are resolved."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from sage.core.errors import InputError

MAX_PATH = 1024
"""Longest path or output name that a caller may send, in characters."""

TRACE = "trace.jsonl"
"""File in each folder of a session or run, beside the files of its programs."""

Kind = Literal["file", "folder", "any"]


class MissingError(InputError):
    """A file or folder is not there, on the machine that looked; another may have it."""


@dataclass(frozen=True)
class Roots:
    """Folders that tools may read (`inputs`) and may write (`output`).

    An input may be a file: then it alone, not what lies beside it. The output folder is readable
    too, so that a tool can go on from what another wrote. `made` are further folders that programs
    or earlier calls write. All are stored resolved. Build it with `Roots.resolve`.
    """

    inputs: tuple[Path, ...]
    output: Path
    made: tuple[Path, ...] = ()

    @classmethod
    def resolve(cls, inputs: Iterable[str | Path], output: str | Path) -> Roots:
        """Resolve the folders, and create the output folder.

        Raises
        ------
        InputError
            If an input root is not a folder, or the output folder cannot be made.
        """
        resolved = []
        for given in inputs:
            folder = Path(given).expanduser().resolve()
            if not folder.is_dir():
                raise InputError(f'root "{given}" is not a folder; give an existing folder')
            resolved.append(folder)
        out = Path(output).expanduser()
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f'output folder "{output}" cannot be made: {error.strerror}'
            ) from error
        return cls(inputs=tuple(resolved), output=out.resolve())

    @property
    def readable(self) -> tuple[Path, ...]:
        """Every folder that may be read; a relative path is looked up in this order."""
        return (*self.inputs, self.output)

    def input(self, path: str | Path, kind: Kind = "any") -> Path:
        """Return the resolved path of an input, relative or absolute within a root.

        Raises
        ------
        InputError
            If it does not exist (`MissingError`), is outside every root (also through a
            symlink), or is not of the asked kind. The message never reveals whether a path outside
            the roots exists.
        """
        text = _plain(path)
        given = Path(text)
        candidates = [given] if given.is_absolute() else [root / given for root in self.readable]
        if not given.is_absolute():  # as results and errors name a file: below its root's name
            named = [root for root in self.readable if given.parts[:1] == (root.name,)]
            candidates += [root.joinpath(*given.parts[1:]) for root in named]
        outside = False
        for candidate in candidates:
            try:
                resolved = candidate.resolve()
            except (OSError, RuntimeError) as error:  # a loop of symlinks
                raise InputError(f'"{text}" cannot be resolved: {error}') from error
            if not self.allows(resolved):
                outside = True
                continue
            if not resolved.exists():
                continue
            if kind == "file" and not resolved.is_file():
                raise InputError(f'"{text}" is not a file')
            if kind == "folder" and not resolved.is_dir():
                raise InputError(f'"{text}" is not a folder')
            return resolved
        roots = ", ".join(root.name or "/" for root in self.readable if not self._inner(root))
        if outside:
            raise InputError(f'"{text}" is outside the allowed folders ({roots}); add a root')
        raise MissingError(f'"{text}" was not found under {roots}')

    def _inner(self, root: Path) -> bool:
        return any(root != other and root.is_relative_to(other) for other in self.readable)

    def allows(self, resolved: Path) -> bool:
        """Return True when the resolved path lies in a readable root."""
        return any(resolved == root or resolved.is_relative_to(root) for root in self.readable)

    def writes(self, resolved: Path) -> bool:
        """Check whether the resolved path lies where tools or programs write, or wrote earlier."""
        return any(resolved.is_relative_to(folder) for folder in (*self.made, self.output)) or any(
            (folder / TRACE).is_file() for folder in resolved.parents
        )

    def write_path(self, name: str | Path, *, make: bool = True) -> Path:
        """Return the resolved path for an output called `name` (relative, below the output root).

        Parents are created unless `make` is false. The path itself may exist; it is never a
        symlink out of the root.

        Raises
        ------
        InputError
            If the name is absolute, empty, climbs out, or passes through a symlink that does.
        """
        text = _plain(name)
        parts = PurePosixPath(text).parts
        if not parts or PurePosixPath(text).is_absolute() or ".." in parts:
            raise InputError(f'output name "{text}" must be relative, without ".."')
        target = self.output.joinpath(*parts)
        self._inside(target.parent, text)
        if make:
            target.parent.mkdir(parents=True, exist_ok=True)
        self._inside(target, text)
        return target

    def _inside(self, path: Path, text: str) -> None:
        resolved = path.resolve()
        if resolved != self.output and not resolved.is_relative_to(self.output):
            raise InputError(f'output name "{text}" leaves the output folder through a symlink')

    def below(self, name: str) -> Roots:
        """Roots with `output / name` as the output root; the previous output stays readable.

        The folder is made by the first who writes into it.
        """
        folder = self.write_path(name, make=False)
        inputs = self.inputs if self.output in self.inputs else (*self.inputs, self.output)
        return Roots(inputs=inputs, output=folder.resolve(), made=(*self.made, self.output))


def hide_folders(value: Any, folders: Iterable[Path]) -> Any:
    """`value` with each folder's path in it, at any depth, shortened to the folder's name.

    For callers that need not know the location of the roots.
    """
    longest_first = sorted(
        {folder for folder in folders if folder.name}, key=lambda f: -len(str(f))
    )
    pattern = "|".join(re.escape(str(folder)) for folder in longest_first)
    found = re.compile(rf"(?<![\w.-])(?:{pattern})(?![\w+@-]|\.\w)")

    def hide(inner: Any) -> Any:
        if isinstance(inner, str):
            return found.sub(lambda match: Path(match.group()).name, inner)
        if isinstance(inner, dict):
            return {hide(key): hide(item) for key, item in inner.items()}
        if isinstance(inner, (list, tuple)):
            return [hide(item) for item in inner]
        return inner

    return hide(value)


def _plain(path: str | Path) -> str:
    text = os.fspath(path)
    if not text or len(text) > MAX_PATH or "\0" in text:
        raise InputError(f"a path must have 1 to {MAX_PATH} characters and no NUL")
    return text
