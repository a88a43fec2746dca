"""Tiatoolbox: its morphological tissue mask, its sliding-window extractor, and read_rect."""

from __future__ import annotations

from typing import Any

from peer import TILE, Corner, main
from tiatoolbox.tools.patchextraction import get_patch_extractor
from tiatoolbox.wsicore.wsireader import WSIReader


def mask_and_tiles(path: str) -> int:
    """Tiles with more than half tissue."""
    wsi = WSIReader.open(path)
    extractor = get_patch_extractor(
        "slidingwindow",
        input_img=wsi,
        input_mask="morphological",
        patch_size=(TILE, TILE),
        resolution=0,
        units="level",
        min_mask_ratio=0.5,
        within_bound=True,
    )
    return len(extractor)


def reader(path: str) -> tuple[tuple[int, int], Any]:
    """Size of the slide, and the call that reads one tile."""
    wsi = WSIReader.open(path)

    def read(corner: Corner) -> Any:
        return wsi.read_rect(corner, (TILE, TILE), resolution=0, units="level")

    return wsi.info.slide_dimensions, read


if __name__ == "__main__":
    main(
        "tiatoolbox",
        mask_and_tiles,
        reader,
        way="morphological mask, SlidingWindowPatchExtractor, half tissue",
        nuclei="learned only, weights by download",
    )
