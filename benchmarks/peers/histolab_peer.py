"""Histolab: its tissue mask, the grid of its GridTiler without saving, and its tile reading."""

from __future__ import annotations

import tempfile
from typing import Any

from histolab.masks import TissueMask
from histolab.slide import Slide
from histolab.tiler import GridTiler
from histolab.types import CoordinatePair
from peer import TILE, Corner, main


def mask_and_tiles(path: str) -> int:
    """Tiles of which at least 80% (fixed in histolab) lie in the tissue mask."""
    with tempfile.TemporaryDirectory() as out:
        slide = Slide(path, out)
        tiler = GridTiler((TILE, TILE), level=0, check_tissue=False)
        # what extract() walks; extract itself would also write every tile as PNG
        return sum(1 for _ in tiler._grid_coordinates_generator(slide, TissueMask()))


def reader(path: str) -> tuple[tuple[int, int], Any]:
    """Size of the slide, and the call that reads one tile."""
    slide = Slide(path, tempfile.gettempdir())

    def read(corner: Corner) -> Any:
        x, y = corner
        return slide.extract_tile(CoordinatePair(x, y, x + TILE, y + TILE), (TILE, TILE), level=0)

    return slide.dimensions, read


if __name__ == "__main__":
    main(
        "histolab",
        mask_and_tiles,
        reader,
        way="TissueMask, grid of GridTiler, 80% tissue",
        nuclei="none offered",
    )
