"""Detection of tumor-like epithelium, its border and its surroundings on the `survey` grid."""

from __future__ import annotations

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.pathology.compute.distance import Border
from mcp_servers.pathology.compute.lymphoid import aggregates
from mcp_servers.pathology.compute.survey import CELL_UM, Survey
from mcp_servers.pathology.compute.tissue import OTSU_BINS, otsu_of
from mcp_servers.slides.arrays import F32, BoolArray, bands
from mcp_servers.slides.components import components

SMOOTH_UM = 28.0
SPAN = (-0.5, 1.6)
BOUNDS = (0.0, 0.75)
"""Bounds on the automatic threshold of the score."""
PALE = 0.42
"""Threshold below which solidity outweighed nuclei, which is reported as uncertain."""

HOLE_UM2 = 20_000.0
"""Area below which gaps in tumor are filled."""


def tumor_score(survey: Survey, rows: slice) -> F32:
    """Score how closely each cell in some rows resembles solid epithelium.

    Scores are about -0.5 to 1.5, and 0 on glass. There are four cues, each smoothed over ~28
    µm: area under round nuclei that are not small (0.15 of the tissue counts fully);
    basophilia, the ratio of red to green density (0.38 in stroma to 0.58 in epithelium);
    solidity, the absence of unstained gaps (0.15 or more counts as loose); and the density of
    lymphocyte-like nuclei, which counts against.
    """
    cues = ("epithelial", "green", "red", "gap", "lymphocytes")
    epithelial, green, red, gap, lymphocytes = survey.smooth(cues, SMOOTH_UM, rows)
    nuclei = np.minimum(epithelial / 0.15, 1.5)
    basophilia = np.clip((red / np.maximum(green, 0.02) - 0.38) / 0.2, -0.3, 1.0)
    solid = 1.0 - np.minimum(gap / 0.15, 1.0)
    immune = np.minimum(lymphocytes / np.float32((CELL_UM / 1000) ** 2) / 4000.0, 1.0)
    values = 0.5 * nuclei + 0.35 * basophilia + 0.45 * solid - 0.9 * immune
    return np.asarray(np.where(survey.layer("tissue", rows) > 0.25, values, np.float32(0)))


def tumor_mask(
    survey: Survey, *, min_area_um2: float = 20_000.0, threshold: float | None = None
) -> tuple[BoolArray, float]:
    """Find the cells that resemble solid epithelium, and the threshold used.

    The default threshold is Otsu's, kept within `BOUNDS`.
    """
    allowed = ~aggregates(survey).mask
    mask, used = _above(survey, threshold)
    for rows in survey.bands():
        allowed[rows] &= survey.is_tissue(rows)
    mask &= allowed
    mask = clean_mask(mask, min_area_um2)
    mask &= allowed
    return mask, used


def _above(survey: Survey, threshold: float | None) -> tuple[BoolArray, float]:
    """Find the cells scoring above a threshold, by default Otsu's, kept within `BOUNDS`.

    Otsu's threshold is a histogram edge or a bound. The number of edges and bounds that a
    score exceeds is stored as a byte, so that scores are computed once and not stored.
    """
    counts, edges = np.histogram(np.zeros(0, np.float32), OTSU_BINS, SPAN)
    levels = np.unique(np.clip(edges, *BOUNDS))
    if threshold is not None:
        levels = np.array([threshold], dtype=np.float32)
    passed = np.zeros(survey.shape, dtype=np.uint8)
    for rows in survey.bands():
        if not survey.holds(rows):
            continue
        tissue = survey.is_tissue(rows)
        score = tumor_score(survey, rows)[tissue]
        counts += np.histogram(score, OTSU_BINS, SPAN)[0]
        passed[rows][tissue] = np.searchsorted(levels, score)
    if threshold is None:
        found = otsu_of(counts, edges) if counts.any() else BOUNDS[1]
        threshold = float(np.clip(found, *BOUNDS))
    return np.asarray(passed > np.searchsorted(levels, np.float32(threshold))), threshold


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
