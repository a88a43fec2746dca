"""Cleaning of a tumor mask, and the zones around it, on the `survey` grid."""

from __future__ import annotations

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.pathology.compute.distance import Border
from mcp_servers.pathology.compute.survey import CELL_UM
from mcp_servers.slides.arrays import BoolArray, bands
from mcp_servers.slides.components import components

HOLE_UM2 = 20_000.0
"""Area below which gaps in tumor are filled."""


def clean_mask(mask: BoolArray, min_area_um2: float) -> BoolArray:
    """Smooth a mask's border, and remove patches below `min_area_um2` and small holes.

    A hole is a gap below `HOLE_UM2` that the mask encloses. A gap at the border of the image
    is not a hole, however small: the area beyond is unknown, and in a field without tumor the
    gap is the whole image.
    """
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (5, 5))
    out = np.ascontiguousarray(mask).view(np.uint8)
    for step in (cv2.MORPH_OPEN, cv2.MORPH_CLOSE):
        out = np.asarray(cv2.morphologyEx(out, step, kernel), dtype=np.uint8)
    smooth = out.view(bool)
    patches = components(smooth)
    patches.fill(smooth, patches.areas() < min_area_um2 / CELL_UM**2, False)
    del patches
    if smooth.any():
        gaps = components(smooth, value=False)
        gaps.fill(smooth, (gaps.areas() < HOLE_UM2 / CELL_UM**2) & ~gaps.on_border(), True)
    return smooth


def zones(tumor: BoolArray, tissue: BoolArray, band_um: float) -> dict[str, BoolArray]:
    """Return the tumor, a peritumoral band (outside, within `band_um`) and the remaining tissue."""
    inside = tumor & tissue
    band = tissue & ~inside
    border = Border(tumor)
    for rows in bands(len(tumor)):
        if band[rows].any():
            band[rows] &= border.distance(rows) <= band_um
    return {"Tumor": inside, "Peritumoral": band, "Rest": tissue & ~inside & ~band}
