"""Reading of expression files before any transformation: symbols as rows, samples as columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sage.core.errors import InputError
from validation.cohort.model import ExpressionSpec
from validation.cohort.tables import read_text_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

COLUMNS_AT_ONCE = 256
"""Number of columns read from a Parquet file into a table in each batch."""


@dataclass(frozen=True)
class Matrix:
    """A matrix with `values` (symbols, samples), in float32 unless the file is more precise."""

    symbols: list[str]
    samples: list[str]
    values: NDArray[Any]


def read_matrix(spec: ExpressionSpec, path: Path) -> Matrix:
    """Read the matrix described by `spec`, without transforming it.

    A Parquet file is read a few columns at a time, so that it needs no more memory than its
    numbers.

    Raises `InputError` if the file cannot be read as such a matrix.
    """
    if ".parquet" in path.suffixes:
        names, columns, values = _parquet(spec, path)
    else:
        names, columns, values = _text(spec, path)
    if spec.orientation == "genes_by_samples":
        return Matrix(names, columns, values)
    return Matrix(columns, names, values.T)


def _parquet(spec: ExpressionSpec, path: Path) -> tuple[list[str], list[str], NDArray[Any]]:
    import fastparquet

    try:
        file = fastparquet.ParquetFile(str(path))
        label = _label(spec, path, list(file.columns))
        names = _names(file.to_pandas(columns=[label], index=False)[label])
        columns = [name for name in file.columns if name != label and name not in spec.drop]
        small = {str(file.dtypes[name]) for name in columns} <= {"float16", "float32"}
        dtype = np.float32 if small else np.float64
        # Filled by whole columns of the file, which are contiguous in memory.
        values = np.empty((len(names), len(columns)), dtype=dtype, order="F")
        for first in range(0, len(columns), COLUMNS_AT_ONCE):
            some = columns[first : first + COLUMNS_AT_ONCE]
            table = file.to_pandas(columns=some, index=False)
            values[:, first : first + len(some)] = _numbers(table[some], path)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - what a broken file raises has no common class
        raise InputError(f"{path}: not a readable Parquet table: {error}") from None
    return names, columns, values


def _text(spec: ExpressionSpec, path: Path) -> tuple[list[str], list[str], NDArray[Any]]:
    if ".feather" in path.suffixes:
        table = read_text_table(path)
    else:
        separator = spec.separator or ("\t" if {".tsv", ".txt"} & set(path.suffixes) else ",")
        try:
            table = pd.read_csv(
                path,
                sep=separator,
                comment=spec.comment,
                low_memory=False,
                keep_default_na=True,
                na_filter=True,
                encoding="utf-8-sig",
            )
        except (ValueError, OSError) as error:
            raise InputError(f"{path}: not a readable expression matrix: {error}") from None
    label = _label(spec, path, list(table.columns))
    names = _names(table[label])
    body = table.drop(columns=[label, *(name for name in spec.drop if name in table.columns)])
    return names, [str(column) for column in body.columns], _numbers(body, path)


def _label(spec: ExpressionSpec, path: Path, columns: list[Any]) -> str:
    """Return the column that names the rows."""
    label = spec.symbol if spec.orientation == "genes_by_samples" else spec.sample
    label = label or str(columns[0])
    if label not in columns:
        shown = ", ".join(map(str, columns[:8]))
        raise InputError(
            f'cohort.toml: expression column "{label}" not found; {path.name} has {shown}'
        )
    return label


def _names(column: pd.Series) -> list[str]:
    names: list[str] = column.fillna("").astype(str).str.strip().tolist()
    return names


def _numbers(table: pd.DataFrame, path: Path) -> NDArray[Any]:
    try:
        return table.to_numpy(dtype=np.float64)
    except (ValueError, TypeError):
        text = [str(column) for column in table.columns if table[column].dtype == object][:4]
        raise InputError(
            f"{path}: columns {', '.join(text)} are not numeric; list them in expression.drop"
        ) from None
