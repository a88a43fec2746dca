"""Byte tiles of a grid too large for memory: recently written tiles in memory, others on disk."""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mcp_servers.slides.arrays import U8

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
        """Return the number of tiles that were ever written to."""
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
        """Return some rows of one layer of a tile, or None if the tile does not exist.

        Parameters
        ----------
        top, bottom : range of the tile's pixel rows, `bottom` excluded
        """
        tile = self._memory.get(place)
        if tile is not None:
            return np.asarray(tile[layer, top:bottom])
        return self._load_layer(place, layer, top, bottom) if place in self._slots else None

    def _load_layer(self, place: Place, layer: int, top: int, bottom: int) -> U8:
        """Read rows of a layer from the file."""
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
