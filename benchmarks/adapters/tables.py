"""Rows of tables: delimited text, none of them shifted, and Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sage.core.errors import InputError


class _Unquoted(csv.excel):
    quoting = csv.QUOTE_NONE


LONGEST = 131_072
"""Characters of a cell, Python's own default."""


def read_rows(path: Path, *, quoted: bool = True) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row of a .tsv or .csv file by column, with how a message names it.

    Parameters
    ----------
    path : UTF-8 text with a head; tabs part the cells of a .tsv
    quoted : whether quotation marks hold a cell together

    Raises
    ------
    InputError
        If it cannot be read, has no head, or a row has fewer or more cells than the head.
    """
    csv.field_size_limit(LONGEST)  # of the whole process: others may have changed it
    mark = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            how = csv.excel if quoted else _Unquoted
            rows = csv.reader(stream, how, delimiter=mark)
            head = next(rows, [])
            if not any(head) or len(set(head)) < len(head):
                raise InputError(f"{path}: its first line names no columns, or one twice")
            for row in rows:
                where = f"{path}, line {rows.line_num}"
                if not row:
                    continue
                if len(row) != len(head):
                    raise InputError(f"{where}: has {len(row)} cells, the head {len(head)}")
                yield where, dict(zip(head, row, strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None


def read_parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row of a Parquet file by column, with how a message names it.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    from pyarrow import ArrowException
    from pyarrow.parquet import read_table

    try:
        rows = read_table(path).to_pylist()
    except (ArrowException, OSError, ValueError) as error:
        said = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise InputError(f"{path}: cannot be read ({said})") from None
    for number, row in enumerate(rows, 1):
        yield f"{path}, row {number}", row
