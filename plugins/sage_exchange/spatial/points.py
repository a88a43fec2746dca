"""SpatialData points elements, read in chunks from CSV tables of any length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from mcp_servers.formats.spatial import Elements, make_transformations
from sage.core.errors import InputError
from sage_exchange.spatial.elements import check_inside, column_names

ROWS = 200_000
Kind: TypeAlias = "np.dtype[Any] | type[str]"


def from_csv(
    path: Path, name: str, size: tuple[int, int], mpp: float | None, warnings: list[str]
) -> Elements:
    """Build a points element from a table with x and y in level-0 pixels, keeping other columns.

    The table is read twice: once here, to check it and to determine the kinds of its columns, and
    once while the store is written.

    Parameters
    ----------
    size : width and height of the slide, level-0 pixels
    mpp : micrometers per level-0 pixel; None if unknown

    Raises
    ------
    InputError
        If a position is missing or off the slide.
    """
    import dask.dataframe as dd
    from spatialdata.models import PointsModel

    kinds: dict[str, Kind] = {}
    count = 0
    for frame in _read_chunks(path, None):
        _check(path, frame, count, size)
        _widen(kinds, frame)
        count += len(frame)
    if not count:
        return {}
    own = ("x", "y")
    keys = [key for key in kinds if key not in own]
    names = dict(zip(keys, column_names(path, keys, own, warnings), strict=True))
    rows = _Rows(path, kinds, names)
    starts = range(0, count, ROWS)
    points = dd.from_map(rows, starts, meta=rows(0)[:0], divisions=(*starts, count - 1))
    made = PointsModel.parse(
        points,
        coordinates={"x": "x", "y": "y"},
        transformations=make_transformations(mpp),
        sort=True,
    )
    return {f"{name}_points": made}


class _Rows:
    """Row chunks of a table, `ROWS` rows each; consecutive chunks are fast to read in order."""

    def __init__(self, path: Path, kinds: Mapping[str, Kind], names: Mapping[str, str]) -> None:
        self._path, self._kinds, self._names = path, kinds, names
        self._next, self._frames = 0, _read_chunks(path, kinds)
        self._lock = Lock()

    def __dask_tokenize__(self) -> str:
        return str(self._path)

    def __call__(self, start: int) -> Any:
        """Read the chunk from row `start`, with the same column order and kinds as all chunks."""
        with self._lock:
            if start < self._next:
                self._next, self._frames = 0, _read_chunks(self._path, self._kinds)
            while self._next <= start:
                frame = next(self._frames)
                self._next += ROWS
        texts = [key for key, kind in self._kinds.items() if kind is str]
        # an empty column and text are read back as the same kind only if stored as text
        frame[texts] = frame[texts].fillna("")
        return frame.rename(columns=dict(self._names))


def _read_chunks(path: Path, kinds: Mapping[str, Kind] | None) -> Iterator[Any]:
    """Read the file in frames of `ROWS` rows; raises `InputError` if it is not a table."""
    import pandas as pd

    try:
        with pd.read_csv(path, chunksize=ROWS, dtype=kinds, low_memory=False) as frames:
            yield from frames
    except (ValueError, UnicodeDecodeError) as error:  # pandas' ParserError is a ValueError
        raise InputError(f"{path}: not a CSV table: {error}") from error


def _check(path: Path, frame: Any, start: int, size: tuple[int, int]) -> None:
    """Raise an error if any row has no position on the slide."""
    import pandas as pd

    if not {"x", "y"} <= set(frame.columns):
        held = ", ".join(map(str, frame.columns[:12]))
        raise InputError(f"{path}: columns x and y (level-0 pixels) are required. Columns: {held}")
    if not isinstance(frame.index, pd.RangeIndex):  # pandas took the first values for row names
        raise InputError(
            f"{path}: row {start + 2} has more values than the header has columns; name every "
            "column"
        )
    where = frame[["x", "y"]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    broken = np.flatnonzero(~np.isfinite(where).all(axis=1))
    if len(broken):
        raise InputError(f"{path}: row {start + broken[0] + 2} has no number for x or y")
    check_inside(path, where, where, size, start)


def _widen(kinds: dict[str, Kind], frame: Any) -> None:
    """Widen each column's kind to accommodate this frame's values."""
    from pandas.api.types import is_numeric_dtype

    for key, values in frame.items():
        own: Kind = str
        if key in ("x", "y"):
            own = np.dtype(np.float64)
        elif is_numeric_dtype(values.dtype):  # booleans too
            own = values.dtype
        kinds[str(key)] = _common(kinds.get(str(key), own), own)


def _common(kind: Kind, other: Kind) -> Kind:
    """Find a common kind: the wider number type, or text if a boolean meets a number."""
    if not isinstance(kind, np.dtype) or not isinstance(other, np.dtype):
        return str
    return np.result_type(kind, other) if (kind.kind == "b") == (other.kind == "b") else str
