"""Disk storage for tables too long for memory: rows are appended, then read back in parts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np

from mcp_servers.slides.arrays import F64, AnyArray

CHUNK = 100_000


class Spool:
    """An (n, width) table of float64 rows in an unnamed file.

    The file disappears when it is closed or when its process dies.
    """

    def __init__(self, folder: Path, width: int) -> None:
        """Open the file in `folder`, which must have 8 bytes of free space per value."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 closed by __exit__
        self._width = width
        self._dropped = np.zeros(0, dtype=np.int64)
        self._count = 0

    def __enter__(self) -> Spool:
        """Return the spool; leaving the block closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._file.close()

    def __len__(self) -> int:
        """Return the number of rows that were appended and not dropped."""
        return self._count - len(self._dropped)

    def append(self, rows: F64) -> None:
        """Append (n, width) rows."""
        self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(rows, dtype=np.float64).tobytes())
        self._count += len(rows)

    def drop(self, numbers: AnyArray) -> None:
        """Exclude rows from now on, given the numbers under which they were appended."""
        self._dropped = np.union1d(self._dropped, numbers)

    def chunks(self) -> Iterator[F64]:
        """Yield all rows in order, in parts; yield one empty part if there are no rows."""
        size = self._width * 8
        if not self._count:
            yield np.zeros((0, self._width))
        for start in range(0, self._count, CHUNK):
            self._file.seek(start * size)
            held = self._file.read(min(CHUNK, self._count - start) * size)
            rows = np.frombuffer(held, dtype=np.float64).reshape(-1, self._width)
            first, last = np.searchsorted(self._dropped, (start, start + len(rows)))
            yield np.delete(rows, self._dropped[first:last] - start, axis=0)

    def column(self, number: int) -> F64:
        """Read one column of all rows."""
        out, seen = np.empty(len(self)), 0
        for rows in self.chunks():
            out[seen : seen + len(rows)] = rows[:, number]
            seen += len(rows)
        return out
