"""Distances from cells to the border of a mask, computed a few rows at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mcp_servers.pathology.compute.kernels import column_distances, row_distances
from mcp_servers.pathology.compute.survey import CELL_UM
from mcp_servers.slides.arrays import F32, BoolArray, bands

Box = tuple[slice, slice]


class Border:
    """The border of a mask, with exact Euclidean distances to it computed row by row.

    Two bytes are stored per cell: the distance along its column to the next cell of the other kind.
    """

    def __init__(self, mask: BoolArray, cell_um: float = CELL_UM) -> None:
        self._mask = mask
        self._cell_um = np.float32(cell_um)
        self._beside = column_distances(mask)

    def distance(self, rows: slice = slice(None)) -> F32:
        """Compute the signed distance to the border in µm, negative inside and positive outside.

        If no cell is True, all are infinitely far outside; if all are True, all are infinitely
        far inside.
        """
        squared = row_distances(self._mask[rows], self._beside[rows])
        out = np.sqrt(np.maximum(squared, 0), dtype=np.float64).astype(np.float32)
        out[squared < 0] = np.inf
        out -= np.float32(0.5)  # centers of border cells lie half a cell from the border
        out *= self._cell_um
        np.negative(out, out=out, where=self._mask[rows])
        return np.asarray(out)

    def measure_places(self, places: Sequence[tuple[Box, BoolArray]]) -> list[F32]:
        """Compute `distance` only at some places, each given by a box and the cells in it."""
        parts: list[list[F32]] = [[] for _ in places]
        for rows in bands(len(self._mask)):
            here = [k for k, (box, _) in enumerate(places) if _overlap(box[0], rows)]
            if not here:
                continue
            distance = self.distance(rows)
            for k in here:
                (tall, wide), own = places[k]
                top, bottom = max(tall.start, rows.start), min(tall.stop, rows.stop)
                part = distance[top - rows.start : bottom - rows.start, wide]
                parts[k].append(part[own[top - tall.start : bottom - tall.start]])
        return [np.concatenate(part) for part in parts]


def _overlap(first: slice, second: slice) -> bool:
    return bool(first.start < second.stop and second.start < first.stop)
