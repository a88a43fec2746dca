"""CSV tables, one per slide or per cohort."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.slides.arrays import AnyArray


def write_columns(path: Path, columns: Mapping[str, AnyArray | Sequence[Any]]) -> None:
    """Write columns of equal length; floats keep six digits."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    data = {}
    for name, values in columns.items():
        array = np.asarray(values)
        if array.dtype.kind == "f":
            with np.errstate(divide="ignore", invalid="ignore"):
                digits = 5 - np.floor(np.log10(np.abs(array)))
            digits = np.where(np.isfinite(digits), np.clip(digits, 0, 6), 0)
            array = np.round(array * 10.0**digits) / 10.0**digits
        data[name] = array
    arrow_csv.write_csv(pa.table(data), path)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write records; the header is the union of their keys in order of appearance."""
    header: dict[str, None] = {}
    for row in rows:
        header.update(dict.fromkeys(row))
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(header))
        writer.writeheader()
        writer.writerows(rows)
