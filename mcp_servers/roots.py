"""Folders that tools may read and write, checked after resolving symlinks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from sage.core.errors import InputError
from sage.core.printable import reveal_invisible

MAX_PATH = 1024
"""Maximum length of a path or output name from a caller, in characters."""

TRACE = "trace.jsonl"
"""Name of the trace file in each session or run folder, next to the files of its programs."""

Kind = Literal["file", "folder", "any"]


class MissingError(InputError):
    """A file or folder does not exist on this machine but may exist on another."""


@dataclass(frozen=True)
class Roots:
    """Folders that tools may read (`inputs`) and write (`output`).

    An input may be a file, in which case only that file may be read, not its folder. The output
    folder is readable too, so that a tool can use what another wrote. `made` lists further folders
    written by programs or earlier calls. All paths are stored resolved. Use `Roots.resolve` to
    create an instance.
    """

    inputs: tuple[Path, ...]
    output: Path
    made: tuple[Path, ...] = ()

    @classmethod
    def resolve(cls, inputs: Iterable[str | Path], output: str | Path) -> Roots:
        """Resolve the folders and create the output folder.

        Raises `InputError` if an input root is not an existing folder, or the output folder cannot
        be created.
        """
        resolved = []
        for given in inputs:
            folder = Path(given).expanduser().resolve()
            if not folder.is_dir():
                raise InputError(f'root "{given}" is not an existing folder')
            resolved.append(folder)
        out = Path(output).expanduser()
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f'output folder "{output}" cannot be created: {error.strerror}'
            ) from error
        return cls(inputs=tuple(resolved), output=out.resolve())

    @property
    def readable(self) -> tuple[Path, ...]:
        """Readable folders, in lookup order for relative paths."""
        return (*self.inputs, self.output)

    def input(self, path: str | Path, kind: Kind = "any") -> Path:
        """Resolve the path of an input, relative to or absolute within a root.

        Raises `InputError` if it does not exist (`MissingError`), is outside every root (also
        through a symlink), or is of the wrong kind. The message never reveals whether a path
        outside the roots exists.
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
        """Check whether the resolved path is in a readable root."""
        return any(resolved == root or resolved.is_relative_to(root) for root in self.readable)

    def writes(self, resolved: Path) -> bool:
        """Check whether a resolved path is in a folder that tools or programs write or wrote to."""
        return any(resolved.is_relative_to(folder) for folder in (*self.made, self.output)) or any(
            (folder / TRACE).is_file() for folder in resolved.parents
        )

    def write_path(self, name: str | Path, *, make: bool = True) -> Path:
        """Resolve the path for an output called `name` (relative, below the output root).

        Parent folders are created unless `make` is false. The path itself may exist; it is never a
        symlink out of the root. Raises `InputError` if the name is absolute or empty, or leads out
        of the root, also through a symlink.
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
            raise InputError(
                f'output name "{text}" leaves the output folder through a symbolic link'
            )

    def below(self, name: str) -> Roots:
        """Return roots with `output / name` as output root; the previous output stays readable.

        The folder is created when something is first written to it.
        """
        folder = self.write_path(name, make=False)
        inputs = self.inputs if self.output in self.inputs else (*self.inputs, self.output)
        return Roots(inputs=inputs, output=folder.resolve(), made=(*self.made, self.output))


def hide_folders(value: Any, folders: Iterable[Path]) -> Any:
    """Shorten each folder's path in `value`, at any depth, to the folder's name.

    Characters that would reorder or hide adjacent text are written as escapes.

    This is for callers that need not know the location of the roots.
    """
    longest_first = sorted(
        {folder for folder in folders if folder.name}, key=lambda f: -len(str(f))
    )
    pattern = "|".join(re.escape(str(folder)) for folder in longest_first)
    found = re.compile(rf"(?<![\w.-])(?:{pattern})(?![\w+@-]|\.\w)")

    def hide(inner: Any) -> Any:
        if isinstance(inner, str):
            return reveal_invisible(found.sub(lambda match: Path(match.group()).name, inner))
        if isinstance(inner, dict):
            return {hide(key): hide(item) for key, item in inner.items()}
        if isinstance(inner, (list, tuple)):
            return [hide(item) for item in inner]
        return inner

    return hide(value)


def _plain(path: str | Path) -> str:
    text = os.fspath(path)
    if not text or len(text) > MAX_PATH or "\0" in text:
        raise InputError(f"a path must have 1 to {MAX_PATH} characters and must not contain NUL")
    return text
