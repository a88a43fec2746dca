"""Disk storage for data too large for memory: table rows, and byte tiles in a grid."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mcp_servers.slides.arrays import F64, U8, AnyArray

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
        return self

    def __exit__(self, *_: object) -> None:
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
        """Yield all rows in order, in parts; yield a single empty part if there are no rows."""
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
        """Read a column for all rows."""
        out, seen = np.empty(len(self)), 0
        for rows in self.chunks():
            out[seen : seen + len(rows)] = rows[:, number]
            seen += len(rows)
        return out


Place = tuple[int, int]


class TileSpool:
    """Tiles of (layers, side, side) bytes by row and column, initialized to zeros.

    Up to `held` tiles are kept in memory. The file has no name and disappears with the spool or
    when its process dies. Access is not thread-safe.
    """

    def __init__(self, layers: int, side: int, *, held: int, folder: Path | None = None) -> None:
        """Create an empty spool; `folder` (default: the temporary folder) is used if needed."""
        self._shape = (layers, side, side)
        self._held = max(1, held)
        self._folder = folder
        self._memory: OrderedDict[Place, U8] = OrderedDict()
        self._slots: dict[Place, int] = {}
        self._file: BinaryIO | None = None

    def __len__(self) -> int:
        """Return the number of tiles that have been written to."""
        return len(self._memory.keys() | self._slots.keys())

    def __iter__(self) -> Iterator[Place]:
        """Iterate over the positions of the tiles, sorted."""
        return iter(sorted(self._memory.keys() | self._slots.keys()))

    @property
    def nbytes(self) -> int:
        """Size of the tiles in memory, in bytes."""
        return sum(tile.nbytes for tile in self._memory.values())

    def edit(self, place: Place) -> U8:
        """Return a tile for writing; it is valid until another tile is requested."""
        tile = self._memory.get(place)
        if tile is None:
            tile = np.zeros(self._shape, dtype=np.uint8)
            if place in self._slots:
                for layer in range(self._shape[0]):
                    tile[layer] = self._load_layer(place, layer, 0, self._shape[1])
            self._memory[place] = tile
            while len(self._memory) > self._held:
                self._put_away(*self._memory.popitem(last=False))
        self._memory.move_to_end(place)
        return tile

    def read(self, place: Place, layer: int, top: int, bottom: int) -> U8 | None:
        """Return some rows from a layer of a tile, or None if the tile does not exist.

        The rows run from `top` up to but not including `bottom`.
        """
        tile = self._memory.get(place)
        if tile is not None:
            return np.asarray(tile[layer, top:bottom])
        return self._load_layer(place, layer, top, bottom) if place in self._slots else None

    def _load_layer(self, place: Place, layer: int, top: int, bottom: int) -> U8:
        """Read rows from a layer in the file."""
        assert self._file is not None
        layers, side, _ = self._shape
        self._file.seek(((self._slots[place] * layers + layer) * side + top) * side)
        held = self._file.read((bottom - top) * side)
        return np.frombuffer(held, dtype=np.uint8).reshape(-1, side)

    def _put_away(self, place: Place, tile: U8) -> None:
        if self._file is None:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115
        slot = self._slots.setdefault(place, len(self._slots))
        self._file.seek(slot * tile.nbytes)
        view = tile.data.cast("B")
        while view:
            view = view[self._file.write(view) :]
