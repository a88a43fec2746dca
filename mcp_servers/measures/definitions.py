"""Files of measurements: a formula per line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mcp_servers.measures.formula import parse
from mcp_servers.measures.language import Measurement
from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.hashes import hash_text

MOST = 20_000
MAX_BYTES = 16 << 20


def read_definitions(path: Path) -> list[Measurement]:
    """The measurements of a file: a formula a line; empty lines and those after # are left out.

    Raises
    ------
    InputError
        If a line is no measurement (it is named), two have the same name, or there is none.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    found: dict[str, Measurement] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            measurement = parse(text)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if measurement.name in found:
            raise InputError(f"{path}, line {number}: {measurement.formula} stands there twice")
        found[measurement.name] = measurement
        if len(found) > MOST:
            raise InputError(f"{path}: more than {MOST} measurements")
    if not found:
        raise InputError(f"{path}: holds no measurement; write one formula a line")
    return list(found.values())


def keep_definitions(measurements: Sequence[Measurement], folder: Path) -> Path:
    """Write measurements under a name that changes with them; the file."""
    text = "".join(f"{measurement.formula}\n" for measurement in measurements)
    digest = hash_text(text, digits=12)
    path = folder / f"definitions-{digest}.txt"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path
