"""Aggregates of lymphocyte-like nuclei, from the grid of `survey`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mcp_servers.pathology.compute.survey import CELL_UM, Survey
from mcp_servers.slides.arrays import F64, I32, AnyArray, BoolArray

if TYPE_CHECKING:
    from mcp_servers.pathology.common import Call

SEED_PER_MM2, EDGE_PER_MM2 = 5_000.0, 3_200.0
"""Density of lymphocyte-like nuclei that starts an aggregate, and down to which it extends."""
EDGE_OF_PEAK = 0.4
"""An aggregate ends where the density falls below this share of its own peak."""
MIN_COVERAGE = 0.30
"""Least share of an aggregate's area under nuclei; keeps scattered debris out."""


MIN_REGULAR = 0.45
"""Least share of nuclei with a round, smooth outline. Measured: lymphoid 0.59 to 0.88, necrotic
debris 0.33 to 0.36, crowded tumor 0.26 to 0.46, folded edges 0.34 to 0.44."""
SURE_REGULAR, SURE_CONTRAST = 0.55, 2.6
"""Below either an aggregate is counted, but as doubtful. Contrast is the red density of nuclei over
that of the dyed area between them: lymphoid 2.7 to 5.5, debris and tumor 1.6 to 2.6."""
FOLD_BACKGROUND = 1.3
"""Green density between nuclei, over the slide's median, from which an aggregate with not quite
regular nuclei is taken for a fold: lymphoid 0.8 to 1.1, folds 1.3 to 1.7."""
COLUMNS = (
    "area_um2", "cells", "peak_per_mm2", "covered", "width_um", "regular", "contrast", "background",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Aggregates:
    """`labels` on the grid of the survey; one row of `table` (see `COLUMNS`) and call for each."""

    labels: I32
    table: F64
    calls: tuple[Call, ...]

    @property
    def mask(self) -> BoolArray:
        """Cells of aggregates that were not rejected."""
        counted = np.array([False, *(call != "rejected" for call in self.calls)])
        return np.asarray(counted[self.labels], dtype=bool)


def aggregates(
    survey: Survey,
    *,
    min_area_um2: float = 10_000.0,
    min_cells: int = 50,
    min_width_um: float = 70.0,
    seed_per_mm2: float = SEED_PER_MM2,
    edge_per_mm2: float = EDGE_PER_MM2,
    min_regular: float = MIN_REGULAR,
) -> Aggregates:
    """Connected regions of high lymphocyte density, each called by the look of its nuclei.

    A region holds a density above `edge_per_mm2` and above `EDGE_OF_PEAK` of its peak everywhere,
    above `seed_per_mm2` somewhere, is at least `min_area_um2` large, `min_width_um` wide at its
    widest and holds `min_cells`; single-file rows and small clusters fail these. What remains is
    rejected where too few nuclei have a round, smooth outline (fragments of necrosis, crowded
    epithelium) or the tissue between them is far darker than elsewhere (folds); it is doubtful
    where it comes near that.
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
    regular, contrast, background = _look(survey, flat, count)
    table = np.stack([area, cells, peak, covered, width, regular, contrast, background], axis=1)
    table = table[keep]
    return Aggregates(number[labels], table, tuple(call(row, min_regular) for row in table))


def call(row: F64, min_regular: float = MIN_REGULAR) -> Call:
    """What one row of `COLUMNS` is taken for; nothing is rejected at a `min_regular` of 0."""
    regular, contrast, background = row[5:8]
    fold = background > FOLD_BACKGROUND and regular < min(SURE_REGULAR, min_regular + 0.1)
    if min_regular > 0 and (regular < min_regular or fold):
        return "rejected"
    return "lymphoid" if regular >= SURE_REGULAR and contrast >= SURE_CONTRAST else "doubtful"


def _look(survey: Survey, flat: AnyArray, count: int) -> tuple[F64, F64, F64]:
    """Per label: share of regular nuclei, contrast of their chromatin, darkness between them."""
    layers = survey.layers

    def total(values: AnyArray) -> F64:
        return np.asarray(np.bincount(flat, values.ravel(), count), dtype=np.float64)

    area = np.maximum(layers["tissue"] - layers["nuclear"] - layers["gap"], 0.0)
    green = layers["green"] - layers["nuclear_green"]
    dyed = area > 0.2
    usual = float(np.median(green[dyed] / area[dyed])) if dyed.any() else 1.0
    between = np.maximum(total(area), 1e-3)
    nuclear = np.maximum(total(layers["nuclear"]), 1e-3)
    regular = total(layers["regular"]) / np.maximum(total(layers["nuclei"]), 1.0)
    red = total(layers["red"] - layers["nuclear_red"]) / between
    contrast = total(layers["nuclear_red"]) / nuclear / np.maximum(red, 1e-3)
    return regular, contrast, total(green) / between / max(usual, 1e-3)


def _peak(labels: AnyArray, values: AnyArray, count: int) -> F64:
    out = np.zeros(count)
    np.maximum.at(out, labels, values.ravel())
    return out
