"""SHA-256 of texts, files and folders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def hash_text(*parts: str, digits: int = 64) -> str:
    """First hexadecimal digits of the hash of texts, joined by the unit separator U+001F."""
    text = "\x1f".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def hash_file(path: Path) -> str:
    """Hash of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_files(paths: Iterable[Path], root: Path | None = None) -> str:
    """Hash of the names, below `root`, and contents of files, in the given order."""
    digest = hashlib.sha256()
    for path in paths:
        name = path.name if root is None else path.relative_to(root).as_posix()
        digest.update(f"{name}\x1f{hash_file(path)}\x1f".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
