"""Files written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sage.core.errors import InputError


def write_text(path: Path, text: str) -> None:
    """Write `text` to a temporary name, flush it to the disk, and rename it into place.

    A lone surrogate, which UTF-8 cannot hold, is written as its JSON escape.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with (
            naming(path),
            os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file,
        ):
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write a pydantic model or plain data as JSON, sorted and indented."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
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
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}. Restore it from a backup") from None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an error of the disk the path at which it came up."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
