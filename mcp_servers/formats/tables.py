"""CSV tables of slides or cohorts."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.slides.arrays import AnyArray


def write_columns(path: Path, columns: Mapping[str, AnyArray | Sequence[Any]]) -> None:
    """Write columns of equal length, with floats rounded to about six significant digits."""
    write_parts(path, [columns])


def write_parts(path: Path, parts: Iterable[Mapping[str, AnyArray | Sequence[Any]]]) -> None:
    """Write a table whose rows arrive in parts (at least one part); see `write_columns`."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    writer = None
    for columns in parts:
        table = pa.table(
            {name: _round_digits(np.asarray(values)) for name, values in columns.items()}
        )
        writer = writer or arrow_csv.CSVWriter(path, table.schema)
        writer.write_table(table)
    if writer is None:
        raise ValueError("a table without parts has no columns")
    writer.close()


def _round_digits(array: AnyArray) -> AnyArray:
    if array.dtype.kind != "f":
        return array
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 5 - np.floor(np.log10(np.abs(array)))
    digits = np.where(np.isfinite(digits), np.clip(digits, 0, 6), 0)
    return np.asarray(np.round(array * 10.0**digits) / 10.0**digits)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write records; the header is the union of their keys in order of appearance."""
    header: dict[str, None] = {}
    for row in rows:
        header.update(dict.fromkeys(row))
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(header))
        writer.writeheader()
        writer.writerows(rows)
