"""Opening text files for importers."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO

from sage.core.errors import InputError


def open_text(path: Path) -> IO[str]:
    """Open a text file, decompressing it if its name ends in .gz."""
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="")
        return path.open(encoding="utf-8", errors="replace", newline="")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
