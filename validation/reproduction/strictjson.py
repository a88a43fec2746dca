"""JSON from untrusted programs: bounded in size and depth, finite, without duplicate names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sage.core.errors import InputError

DEEPEST = 8


def read_bounded(path: Path, largest: int) -> Any:
    """Read a small JSON file.

    Raises `InputError` if the file is missing, not a regular file, larger than `largest` bytes,
    nested deeper than `DEEPEST` or not JSON, or if it contains NaN, infinity or a duplicate name.
    The message does not quote the file.
    """
    name = path.name
    if path.is_symlink() or not path.is_file():
        raise InputError(f"the program did not write {name}")
    if path.stat().st_size > largest:
        raise InputError(f"{name} is larger than {largest // 1024} KiB")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{name} is not valid UTF-8") from None
    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=_require_unique)
    except InputError as error:
        raise InputError(f"{name} {error}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{name} is not JSON") from None
    level, depth = [value], 0
    while level := [inner for outer in level for inner in _inside(outer)]:
        depth += 1
        if depth > DEEPEST:
            raise InputError(f"{name} is nested deeper than {DEEPEST} levels")
    return value


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _refuse(_: str) -> Any:
    raise InputError("contains NaN or infinity")


def _require_unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InputError("contains a name twice")
    return found
