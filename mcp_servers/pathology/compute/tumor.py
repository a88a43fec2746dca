"""Tumor-like epithelium, its border and its surroundings, from the grid of `survey`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mcp_servers.pathology.compute.lymphoid import aggregates
from mcp_servers.pathology.compute.survey import CELL_UM, Survey
from mcp_servers.pathology.compute.tissue import otsu
from mcp_servers.slides.arrays import F32, BoolArray, looked_up

Box = tuple[slice, slice]
SMOOTH_UM = 28.0
BOUNDS = (0.0, 0.75)
"""The automatic threshold on the score is kept within these."""
PALE = 0.42
"""A threshold below this was set by solidity more than by nuclei, and is reported as unsure."""


def tumor_score(survey: Survey) -> F32:
    """How much each cell looks like solid epithelium, about -0.5 to 1.5; 0 outside tissue.

    Four cues, each smoothed over ~28 µm: area under round, not small nuclei (0.15 of the tissue
    counts fully); basophilia, the ratio of red to green density (0.38 of stroma to 0.58 of
    epithelium); solidity, the absence of undyed gaps (0.15 and more counts as loose); and the
    area per lymphocyte-like nucleus, which counts against.
    """
    score = np.zeros(survey.shape, dtype=np.float32)
    for rows in survey.bands():
        nuclei = np.minimum(survey.smooth("epithelial", SMOOTH_UM, rows) / 0.15, 1.5)
        green = np.maximum(survey.smooth("green", SMOOTH_UM, rows), 0.02)
        red = survey.smooth("red", SMOOTH_UM, rows)
        basophilia = np.clip((red / green - 0.38) / 0.2, -0.3, 1.0)
        solid = 1.0 - np.minimum(survey.smooth("gap", SMOOTH_UM, rows) / 0.15, 1.0)
        immune = np.minimum(survey.lymphocytes_per_mm2(SMOOTH_UM, rows) / 4000.0, 1.0)
        values = 0.5 * nuclei + 0.35 * basophilia + 0.45 * solid - 0.9 * immune
        score[rows] = np.where(survey.layer("tissue", rows) > 0.25, values, 0.0)
    return score


def tumor_mask(
    survey: Survey, *, min_area_um2: float = 20_000.0, threshold: float | None = None
) -> tuple[BoolArray, float]:
    """Cells that look like solid epithelium, and the threshold used: Otsu's within `BOUNDS`."""
    allowed = ~aggregates(survey).mask
    score, tissue = tumor_score(survey), survey.tissue
    if threshold is None:
        found = otsu(score[tissue], -0.5, 1.6) if tissue.any() else BOUNDS[1]
        threshold = float(np.clip(found, *BOUNDS))
    allowed &= tissue
    mask = (score > threshold) & allowed
    del score, tissue
    return np.asarray(cleaned(mask, min_area_um2) & allowed), threshold


def cleaned(mask: BoolArray, min_area_um2: float) -> BoolArray:
    """A mask with a smooth border, without patches and holes below `min_area_um2`."""
    import cv2

    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (5, 5))
    out = mask.astype(np.uint8)
    for step in (cv2.MORPH_OPEN, cv2.MORPH_CLOSE):
        out = np.asarray(cv2.morphologyEx(out, step, kernel), dtype=np.uint8)
    least = min_area_um2 / CELL_UM**2
    for value in (1, 0):
        own = out if value else 1 - out
        _, labels, stats, _ = cv2.connectedComponentsWithStats(own, connectivity=4)
        small = stats[:, cv2.CC_STAT_AREA] < least
        small[0] = False
        out[looked_up(small, labels)] = 1 - value
        del labels
    return np.asarray(out, dtype=bool)


def signed_distance(mask: BoolArray, cell_um: float = CELL_UM) -> F32:
    """Distance to a mask's border in µm: negative inside, positive outside.

    Without any True cell all are infinitely far outside.
    """
    signed = _to_border(mask, cell_um)
    np.copyto(signed, -_to_border(mask, cell_um, inside=True), where=mask)
    return signed


def distances_at(mask: BoolArray, places: Sequence[tuple[Box, BoolArray]]) -> list[F32]:
    """`signed_distance` at some places alone, each a box and the cells in it, for less memory."""
    signed = []
    for inside in (False, True):
        whole = _to_border(mask, CELL_UM, inside=inside)
        signed.append([whole[box][own] for box, own in places])
        del whole
    return [
        np.where(mask[box][own], -within, without)
        for (box, own), without, within in zip(places, *signed, strict=True)
    ]


def _to_border(mask: BoolArray, cell_um: float, inside: bool = False) -> F32:
    """Distance of cells outside, or inside, to the mask's border; infinite without a border."""
    import cv2

    if mask.all() if inside else not mask.any():
        return np.full(mask.shape, np.inf, dtype=np.float32)
    padded = np.pad(mask if inside else ~mask, 1, mode="edge").view(np.uint8)
    found = cv2.distanceTransform(padded, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    distance: F32 = np.asarray(found, dtype=np.float32)[1:-1, 1:-1]
    distance -= np.float32(0.5)  # centers of border cells lie half a cell from the border
    distance *= np.float32(cell_um)
    return distance


def zones(tumor: BoolArray, tissue: BoolArray, band_um: float) -> dict[str, BoolArray]:
    """Tumor, peritumoral band (outside, within `band_um`) and the rest of the tissue."""
    distance = signed_distance(tumor)
    inside = tumor & tissue
    band = tissue & ~inside & (distance <= band_um)
    return {"Tumor": inside, "Peritumoral": band, "Rest": tissue & ~inside & ~band}
