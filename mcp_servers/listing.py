"""Listing of files and folders under the roots, named in the form used for tool arguments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mcp_servers.roots import Roots

MOST_FOLDERS = 20_000
"""Maximum number of folders to search."""


def walk_below(roots: Roots) -> Iterator[tuple[Path, Path, list[str]]]:
    """Yield each visible folder below the roots, with its root and file names.

    Hidden folders are skipped, and links to folders are not followed.
    """
    visited: set[Path] = set()
    for root in roots.readable:
        for folder, inner, files in os.walk(root):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            here = Path(folder)
            if here in visited:
                inner.clear()
                continue
            if here.suffix == ".zarr":  # an image, whose folders are its parts
                inner.clear()
            visited.add(here)
            if len(visited) > MOST_FOLDERS:
                return
            yield root, here, sorted(name for name in files if not name.startswith("."))


def make_argument(root: Path, path: Path, roots: Roots) -> str | None:
    """Express a path below a root as a tool argument; None if an earlier root hides it."""
    name = path.relative_to(root).as_posix()
    return name if roots.input(name) == path.resolve() else None


def find_folders(roots: Roots, file: str) -> Iterator[tuple[str, Path]]:
    """Find the folders that contain a file of that name, as tool arguments and as paths."""
    for root, folder, files in walk_below(roots):
        if file in files and (name := make_argument(root, folder, roots)) is not None:
            yield name, folder
