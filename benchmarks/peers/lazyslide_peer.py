"""LazySlide: pp.find_tissues, pp.tile_tissues, and tiles by its reader."""

from __future__ import annotations

from typing import Any

import lazyslide as zs
from peer import TILE, Corner, main
from wsidata import open_wsi


def mask_and_tiles(path: str) -> int:
    """Tiles with at most half background."""
    wsi = open_wsi(path, store=None)
    zs.pp.find_tissues(wsi)
    zs.pp.tile_tissues(wsi, TILE, background_fraction=0.5)
    return len(wsi["tiles"])


def reader(path: str) -> tuple[tuple[int, int], Any]:
    """Size of the slide, and the call that reads one tile."""
    wsi = open_wsi(path, store=None)
    height, width = wsi.properties.shape

    def read(corner: Corner) -> Any:
        return wsi.reader.get_region(*corner, TILE, TILE, level=0)

    return (width, height), read


if __name__ == "__main__":
    main(
        "lazyslide",
        mask_and_tiles,
        reader,
        way="pp.find_tissues, pp.tile_tissues, half background",
        nuclei="learned only, weights by download",
    )
