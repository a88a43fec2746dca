"""Small values that cross the package's borders: findings, numbers, summaries."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from sage.core.errors import FaultError
from sage.core.models import Strict

Severity = Literal["error", "warning", "info"]


class Finding(Strict):
    """Something that `check` saw in a cohort: what, where, and what to do about it."""

    severity: Severity
    code: str
    where: str
    message: str
    remedy: str = ""


def finding(severity: Severity, code: str, where: str, message: str, remedy: str = "") -> Finding:
    """A finding; `remedy` says what to do about it, where there is something to do."""
    return Finding(severity=severity, code=code, where=where, message=message, remedy=remedy)


class CohortSummary(Strict):
    """One line of `sage cohort list`."""

    id: str
    title: str
    kind: Literal["builtin", "folder", "cbioportal", "gdc"]
    simulated: bool
    patients: int | None = None
    path: str | None = None


class Number(Strict):
    """A number that a report may quote: its value, its unit, and how it is printed."""

    value: float | int | None
    unit: str
    text: str


def data_folder(name: str) -> Path:
    """A folder of shipped data: beside the packages, or inside the installed application."""
    base = Path(__file__).resolve().parents[1]
    for folder in (base / "data" / name, base / "sage" / "_data" / name):
        if folder.is_dir():
            return folder
    raise FaultError(f"no data/{name} beside {base}; the installation is incomplete")


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no free choice of spacing, so that equal values hash equally."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256_text(text: str) -> str:
    """SHA-256 of UTF-8 text, as hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, as hex."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        for block in iter(lambda: handle.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all; a lone surrogate is written as its JSON escape."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.partial")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
