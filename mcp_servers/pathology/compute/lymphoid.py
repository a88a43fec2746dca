"""Aggregates of lymphocyte-like nuclei, from the grid of `survey`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mcp_servers.pathology.compute.survey import CELL_UM, Survey
from mcp_servers.slides.arrays import F32, F64, I32, U8, AnyArray, BoolArray, looked_up

if TYPE_CHECKING:
    from mcp_servers.pathology.common import Call

SEED_PER_MM2, EDGE_PER_MM2 = 5_000.0, 3_200.0
"""Density of lymphocyte-like nuclei that starts an aggregate, and down to which it extends."""
EDGE_OF_PEAK = 0.4
"""An aggregate ends where the density falls below this share of its own peak."""
MIN_COVERAGE = 0.30
"""Least share of an aggregate's area under nuclei; keeps scattered debris out."""


MIN_REGULAR = 0.40
"""Least share of nuclei with a round, smooth outline. Measured: lymphoid 0.59 to 0.88 (on one poor
scan 0.41, 0.48), necrotic debris 0.33 to 0.37, crowded tumor 0.26 to 0.46, folds 0.34 to 0.44."""
SURE_REGULAR, SURE_CONTRAST = 0.55, 2.6
"""Below either an aggregate is counted, but as doubtful. Contrast is the red density of nuclei over
that of the dyed area between them: lymphoid 2.7 to 5.5, debris and tumor 1.6 to 2.6."""
FOLD_BACKGROUND = 1.3
"""Green density between nuclei, over the slide's median, from which an aggregate with not quite
regular nuclei is taken for a fold: lymphoid 0.8 to 1.1, folds 1.3 to 1.7."""
SUMMED = 1 << 20
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
        return looked_up(counted, self.labels)


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

    low, density = _dense(survey, edge_per_mm2)
    at = np.flatnonzero(low)
    count, labels = cv2.connectedComponents(low, connectivity=4)
    first = labels.ravel()[at]
    faint = density <= EDGE_OF_PEAK * _peak(first, density, count)[first]
    low.ravel()[at[faint]] = 0
    del labels
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    low = np.asarray(cv2.morphologyEx(low, cv2.MORPH_OPEN, kernel), dtype=np.uint8)
    left = low.ravel()[at] > 0
    at, density = at[left], density[left]
    del first, faint, left
    count, labels, stats, _ = cv2.connectedComponentsWithStats(low, connectivity=4)
    flat = labels.ravel()[at]
    area = stats[:, cv2.CC_STAT_AREA] * CELL_UM**2

    def total(values: AnyArray) -> F64:
        sums = np.zeros(count)
        for start in range(0, len(flat), SUMMED):  # numpy copies what it sums to eight bytes
            part = slice(start, start + SUMMED)
            sums += np.bincount(flat[part], values[part], count)
        return sums

    def within(name: str) -> F64:
        return total(survey.values(name, survey.stored[name].ravel()[at]))

    peak, cells = _peak(flat, density, count), within("lymphocytes")
    keep = (peak >= seed_per_mm2) & (area >= min_area_um2) & (cells >= min_cells)
    keep[0] = False
    del density
    width = _widths(low, labels, stats, keep)
    del labels
    smooth = [survey.smooth("nuclear", 20.0, rows)[low[rows] > 0] for rows in survey.bands()]
    covered = total(np.concatenate(smooth)) / np.maximum(stats[:, cv2.CC_STAT_AREA], 1)
    keep &= (width >= min_width_um) & (covered >= MIN_COVERAGE)
    regular, contrast, background = _look(survey, at, total)
    columns = (area, cells, peak, covered, width, regular, contrast, background)
    table = np.stack(columns, axis=1)[keep]
    number = np.zeros(count, dtype=np.int32)
    number[keep] = np.arange(1, int(keep.sum()) + 1)
    own = np.zeros(low.shape, dtype=np.int32)
    own.ravel()[at] = number[flat]
    return Aggregates(own, table, tuple(call(row, min_regular) for row in table))


def _dense(survey: Survey, edge_per_mm2: float) -> tuple[U8, F32]:
    """Tissue with more lymphocytes than `edge_per_mm2`, and the density at each of its cells."""
    low = np.zeros(survey.shape, dtype=np.uint8)
    values = []
    for rows in survey.bands():
        density = survey.lymphocytes_per_mm2(rows=rows)
        dense = (density > edge_per_mm2) & (survey.layer("tissue", rows) > 0.2)
        low[rows] = dense
        values.append(density[dense])
    return low, np.concatenate(values)


def _widths(low: U8, labels: AnyArray, stats: AnyArray, wanted: BoolArray) -> F64:
    """Inscribed diameter in µm of the wanted labels, 0 for the others.

    The largest disc within a region lies in its box, so the distances are taken box by box.
    """
    import cv2

    out = np.zeros(len(wanted))
    for index in np.flatnonzero(wanted):
        x, y, width, height = (int(v) for v in stats[index, :4])
        box = np.s_[max(0, y - 1) : y + height + 1, max(0, x - 1) : x + width + 1]
        depth = cv2.distanceTransform(np.ascontiguousarray(low[box]), cv2.DIST_L2, 5)
        out[index] = float(depth[labels[box] == index].max()) * 2 * CELL_UM
    return out


def call(row: F64, min_regular: float = MIN_REGULAR) -> Call:
    """What one row of `COLUMNS` is taken for; nothing is rejected at a `min_regular` of 0."""
    regular, contrast, background = row[5:8]
    fold = background > FOLD_BACKGROUND and regular < min(SURE_REGULAR, min_regular + 0.1)
    if min_regular > 0 and (regular < min_regular or fold):
        return "rejected"
    return "lymphoid" if regular >= SURE_REGULAR and contrast >= SURE_CONTRAST else "doubtful"


def _look(survey: Survey, at: AnyArray, total: Callable[[AnyArray], F64]) -> tuple[F64, F64, F64]:
    """Per label: share of regular nuclei, contrast of their chromatin, darkness between them.

    `at` are the cells of the labels, flat; `total` sums values at these by label.
    """

    def between(layer: Callable[[str], F32]) -> tuple[F32, F32]:
        """Dyed area without nuclei, and the density of green there."""
        area = np.maximum(layer("tissue") - layer("nuclear") - layer("gap"), 0.0)
        return area, layer("green") - layer("nuclear_green")

    def here(name: str) -> F32:
        return survey.values(name, survey.stored[name].ravel()[at])

    usual = []
    for rows in survey.bands():
        area, green = between(lambda name, rows=rows: survey.layer(name, rows))  # type: ignore[misc]
        dyed = area > 0.2
        usual.append(green[dyed] / area[dyed])
    darkness = np.concatenate(usual)
    median = float(np.median(darkness)) if len(darkness) else 1.0
    area, green = between(here)
    space = np.maximum(total(area), 1e-3)
    nuclear = np.maximum(total(here("nuclear")), 1e-3)
    regular = total(here("regular")) / np.maximum(total(here("nuclei")), 1.0)
    red = total(here("red") - here("nuclear_red")) / space
    contrast = total(here("nuclear_red")) / nuclear / np.maximum(red, 1e-3)
    return regular, contrast, total(green) / space / max(median, 1e-3)


def _peak(labels: AnyArray, values: AnyArray, count: int) -> F64:
    """Largest value of each label."""
    out = np.zeros(count)
    np.maximum.at(out, labels, values)
    return out
