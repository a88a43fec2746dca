"""Aggregates of lymphocyte-like nuclei, from the grid of `survey`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcp_servers.pathology.compute.survey import CELL_UM, Survey
from mcp_servers.slides.arrays import F64, I32, AnyArray

SEED_PER_MM2, EDGE_PER_MM2 = 5_000.0, 3_200.0
"""Density of lymphocyte-like nuclei that starts an aggregate, and down to which it extends."""
EDGE_OF_PEAK = 0.4
"""An aggregate ends where the density falls below this share of its own peak."""
MIN_COVERAGE = 0.30
"""Least share of an aggregate's area under nuclei; keeps scattered debris out."""


@dataclass(frozen=True, slots=True)
class Aggregates:
    """`labels` on the grid of the survey; one row of `table` each: area (µm²), lymphocyte-like
    nuclei, peak density (per mm²), share under nuclei, inscribed diameter (µm)."""

    labels: I32
    table: F64


def aggregates(
    survey: Survey,
    *,
    min_area_um2: float = 10_000.0,
    min_cells: int = 50,
    min_width_um: float = 70.0,
    seed_per_mm2: float = SEED_PER_MM2,
    edge_per_mm2: float = EDGE_PER_MM2,
) -> Aggregates:
    """Connected regions of high lymphocyte density.

    A region holds a density above `edge_per_mm2` and above `EDGE_OF_PEAK` of its peak everywhere,
    above `seed_per_mm2` somewhere, is at least `min_area_um2` large, `min_width_um` wide at its
    widest and holds `min_cells`; single-file rows and small clusters fail these.
    """
    import cv2

    density, coverage = survey.lymphocytes_per_mm2(), survey.smooth("nuclear", 20.0)
    low = ((density > edge_per_mm2) & (survey.layers["tissue"] > 0.2)).astype(np.uint8)
    count, first = cv2.connectedComponents(low, connectivity=4)
    low &= (density > EDGE_OF_PEAK * _peak(first.ravel(), density, count)[first]).astype(np.uint8)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    low = np.asarray(cv2.morphologyEx(low, cv2.MORPH_OPEN, kernel), dtype=np.uint8)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(low, connectivity=4)
    depth = cv2.distanceTransform(low, cv2.DIST_L2, 5)
    flat = labels.ravel()
    area = stats[:, cv2.CC_STAT_AREA] * CELL_UM**2
    cells = np.bincount(flat, survey.layers["lymphocytes"].ravel(), count)
    peak = _peak(flat, density, count)
    width = _peak(flat, depth, count) * 2 * CELL_UM
    weight = np.maximum(np.bincount(flat, minlength=count), 1)
    covered = np.bincount(flat, coverage.ravel(), count) / weight
    keep = (peak >= seed_per_mm2) & (area >= min_area_um2) & (cells >= min_cells)
    keep &= (width >= min_width_um) & (covered >= MIN_COVERAGE)
    keep[0] = False
    number = np.zeros(count, dtype=np.int32)
    number[keep] = np.arange(1, int(keep.sum()) + 1)
    table = np.stack([area, cells, peak, covered, width], axis=1)[keep]
    return Aggregates(number[labels], table)


def _peak(labels: AnyArray, values: AnyArray, count: int) -> F64:
    out = np.zeros(count)
    np.maximum.at(out, labels, values.ravel())
    return out
