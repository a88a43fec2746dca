"""SHA-256 hashes for texts, files and folders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def hash_text(*parts: str, digits: int = 64) -> str:
    """Return the first `digits` hexadecimal digits of the hash of the texts.

    The texts are joined by the separator U+001F.
    """
    text = "\x1f".join(parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def hash_file(path: Path) -> str:
    """Return the hash of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_files(paths: Iterable[Path], root: Path | None = None) -> str:
    """Hash the contents of files and their names relative to `root`, in the given order."""
    digest = hashlib.sha256()
    for path in paths:
        name = path.name if root is None else path.relative_to(root).as_posix()
        digest.update(f"{name}\x1f{hash_file(path)}\x1f".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
