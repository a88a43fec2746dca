"""Detection of aggregates of lymphocyte-like nuclei on the `survey` grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.pathology.common import Call
from mcp_servers.pathology.compute.germinal import Core, cores, fill
from mcp_servers.pathology.compute.survey import CELL_UM, Survey
from mcp_servers.slides.arrays import F32, F64, BoolArray, median_of
from mcp_servers.slides.components import Components, components

SEED_PER_MM2, EDGE_PER_MM2 = 5_000.0, 3_200.0
"""Densities of lymphocyte-like nuclei that start an aggregate and define its edge."""
EDGE_OF_PEAK = 0.4
"""Share of an aggregate's own peak density at which the aggregate ends."""
MIN_COVERAGE = 0.30
"""Minimum share of an aggregate's area under nuclei; excludes scattered debris."""


MIN_REGULAR = 0.40
"""Minimum share of nuclei with a round, smooth outline.

Measured values: lymphoid 0.59 to 0.88 (0.41 and 0.48 on a poor scan), necrotic debris
0.33 to 0.37, crowded tumor 0.26 to 0.46, folds 0.34 to 0.44.
"""
SURE_REGULAR, SURE_CONTRAST = 0.55, 2.6
"""Values below which an aggregate is counted but classified as doubtful.

Contrast is the red density of nuclei over that of the stained area between them: lymphoid
2.7 to 5.5, debris and tumor 1.6 to 2.6.
"""
FOLD_BACKGROUND = 1.3
"""Background above which an aggregate with somewhat irregular nuclei is classified as a fold.

Background is the green density between nuclei over the slide's median: lymphoid 0.8 to
1.1, folds 1.3 to 1.7.
"""


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Aggregates: `regions` on the survey grid, each with a row in `table` and a call.

    A row contains the area in µm², the number of lymphocytes, their peak per mm², the share
    of the area under nuclei, the width in µm, the share of regular nuclei, contrast and
    background. The area and width include germinal centers; `cores` lists each region's
    cores, including doubtful ones.
    """

    regions: Components
    table: F64
    calls: tuple[Call, ...]
    cores: tuple[tuple[Core, ...], ...]

    @property
    def mask(self) -> BoolArray:
        """Mask of the cells in aggregates that were not rejected."""
        return self.regions.mask(np.array([False, *(call != "rejected" for call in self.calls)]))


def aggregates(
    survey: Survey,
    *,
    min_area_um2: float = 10_000.0,
    min_cells: int = 50,
    min_width_um: float = 70.0,
    min_regular: float = MIN_REGULAR,
) -> Aggregates:
    """Find aggregates, cached for each combination of settings; see `_aggregates`.

    `min_regular` is the minimum share of nuclei with a regular outline.
    """
    settings = (min_area_um2, min_cells, min_width_um, min_regular)
    key = ("aggregates", *settings)
    if key not in survey.kept:
        survey.kept[key] = _aggregates(survey, *settings)
    found: Aggregates = survey.kept[key]
    return found


def _aggregates(
    survey: Survey, min_area_um2: float, min_cells: int, min_width_um: float, min_regular: float
) -> Aggregates:
    """Find connected regions of high lymphocyte density and classify each by its nuclei.

    A region's density is above `EDGE_PER_MM2` and above `EDGE_OF_PEAK` of its peak
    everywhere, and above `SEED_PER_MM2` somewhere. It is at least `min_area_um2` large and
    `min_width_um` wide at its widest, and contains at least `min_cells` cells; single-file
    rows and small clusters fail these criteria. A region is rejected if too few nuclei have a
    round, smooth outline (necrotic fragments, crowded epithelium) or the tissue between them
    is far darker than elsewhere (folds), and it is doubtful if it is close to these limits. A
    germinal center belongs to its region, but its nuclei do not affect the region's
    classification.
    """
    low, density = _dense(survey)
    found = components(low)
    limit = EDGE_OF_PEAK * _peak(survey, found, density)
    for at, rows in enumerate(survey.bands()):
        high = density[at] > limit[found.of_cells(rows)]
        low[rows][low[rows]] = high
        density[at] = density[at][high]
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    opened = cv2.morphologyEx(low.view(np.uint8), cv2.MORPH_OPEN, kernel).view(bool)
    for at, rows in enumerate(survey.bands()):
        density[at] = density[at][opened[rows][low[rows]]]
    del low
    found = components(opened)
    chosen = _peak(survey, found, density) >= SEED_PER_MM2
    chosen &= found.areas() * CELL_UM**2 >= min_area_um2 / 2
    pale = cores(survey, found, chosen)
    whole = fill(opened, pale)
    for at, rows in enumerate(survey.bands()):
        mantle, density[at] = density[at], np.zeros(int(whole[rows].sum()), dtype=np.float32)
        density[at][opened[rows][whole[rows]]] = mantle
    found = components(whole)
    peak, cells = _peak(survey, found, density), found.areas()
    del density
    sums, median = _sums(survey, opened, whole, found)
    keep = (peak >= SEED_PER_MM2) & (cells * CELL_UM**2 >= min_area_um2)
    keep &= (sums["lymphocytes"] >= min_cells) & (np.arange(found.count + 1) > 0)
    found, cells, peak = found.keep_regions(keep), cells[keep], peak[keep]
    sums = {name: values[keep] for name, values in sums.items()}
    width = _widths(whole, found)
    covered = sums["covered"] / np.maximum(sums["mantle"], 1)
    columns = (cells * CELL_UM**2, sums["lymphocytes"], peak, covered, width, *_look(sums, median))
    wide = (width >= min_width_um) & (covered >= MIN_COVERAGE)
    table = np.stack(columns, axis=1)[wide]
    kept = found.keep_regions(np.concatenate([[False], wide]))
    calls = tuple(call(row, min_regular) for row in table)
    return Aggregates(kept, table, calls, _by_region(kept, pale))


def _by_region(kept: Components, pale: list[Core]) -> tuple[tuple[Core, ...], ...]:
    """Group cores by region, using the mantle adjacent to each core."""
    by_region: list[list[Core]] = [[] for _ in range(kept.count)]
    inside = kept.mask(np.arange(kept.count + 1) > 0)
    for core in pale:
        if inside[core.beside]:
            row, column = core.beside
            by_region[int(kept.labels_at(np.array([row]), np.array([column]))[0]) - 1].append(core)
    return tuple(tuple(own) for own in by_region)


def _dense(survey: Survey) -> tuple[BoolArray, list[F32]]:
    """Find tissue with more lymphocytes than `EDGE_PER_MM2`, and its cells' density by band."""
    low = np.zeros(survey.shape, dtype=bool)
    values = []
    for rows in survey.bands():
        density = survey.lymphocytes_per_mm2(rows=rows)
        low[rows] = (density > EDGE_PER_MM2) & (survey.layer("tissue", rows) > 0.2)
        values.append(density[low[rows]])
    return low, values


def _peak(survey: Survey, found: Components, by_band: list[F32]) -> F64:
    """Compute the largest value in each region, with shape (count + 1,).

    `by_band` contains the values in the regions' cells.
    """
    out = np.zeros(found.count + 1)
    for values, rows in zip(by_band, survey.bands(), strict=True):
        np.maximum(out, found.largest(values, rows), out=out)
    return out


def _widths(mask: BoolArray, found: Components) -> F64:
    """Compute the inscribed diameter of each region in a mask, in µm, with shape (count,).

    The largest disc in a region is inside its box, so distances are computed box by box.
    """
    out = np.zeros(found.count)
    pieces = found.pieces()
    for index in range(found.count):
        (top, bottom), (left, right) = ((s.start, s.stop) for s in pieces.box(index + 1))
        around = np.s_[max(0, top - 1) : bottom + 1, max(0, left - 1) : right + 1]
        low = np.ascontiguousarray(mask[around]).view(np.uint8)
        depth = cv2.distanceTransform(low, cv2.DIST_L2, 5)
        depth = depth[top - around[0].start :, left - around[1].start :]
        cells = pieces.cells(index + 1)
        own = depth[: cells.shape[0], : cells.shape[1]][cells]
        out[index] = float(own.max()) * 2 * CELL_UM
    return out


def _sums(
    survey: Survey, mask: BoolArray, whole: BoolArray, found: Components
) -> tuple[dict[str, F64], float]:
    """Sum the quantities needed by `_look` and the table over each region within `mask`.

    Also return the slide's median green density between nuclei.

    Parameters
    ----------
    mask : aggregates, excluding their germinal centers
    whole : aggregates, whose regions are `found`
    """
    names = "lymphocytes nuclei regular nuclear nuclear_red between green_between red_between"
    sums = {name: np.zeros(found.count + 1) for name in (*names.split(), "covered", "mantle")}
    for rows in survey.bands():
        own = mask[rows]
        if not own.any():
            continue
        area, green = _between_nuclei(survey, rows)
        red = survey.layer("nuclear_red", rows)
        layers = {
            "nuclear_red": red,
            "between": area,
            "green_between": green,
            "red_between": survey.layer("red", rows) - red,
            "covered": survey.smooth(("nuclear",), 20.0, rows)[0],
            "mantle": own,
        }
        labels = found.of_cells(rows)[own[whole[rows]]]
        for name in sums:
            values = layers[name] if name in layers else survey.layer(name, rows)
            sums[name] += np.bincount(labels, values[own], found.count + 1)
    return sums, median_of(lambda: _green_between(survey), 1.0)


def _between_nuclei(survey: Survey, rows: slice) -> tuple[F32, F32]:
    """Return the stained area without nuclei in each cell for some rows, and its green density."""
    bare = survey.layer("tissue", rows) - survey.layer("nuclear", rows) - survey.layer("gap", rows)
    green = survey.layer("green", rows) - survey.layer("nuclear_green", rows)
    return np.maximum(bare, np.float32(0)), green


def _green_between(survey: Survey) -> Iterator[F32]:
    """Yield, by band, the green density between nuclei for cells with enough stained area there."""
    for rows in survey.bands():
        if survey.holds(rows):
            area, green = _between_nuclei(survey, rows)
            dyed = area > 0.2
            yield np.maximum(green[dyed] / area[dyed], np.float32(0))


def call(row: F64, min_regular: float = MIN_REGULAR) -> Call:
    """Classify an aggregate by its row; with `min_regular` 0, none is rejected."""
    regular, contrast, background = row[5:8]
    fold = background > FOLD_BACKGROUND and regular < min(SURE_REGULAR, min_regular + 0.1)
    if min_regular > 0 and (regular < min_regular or fold):
        return "rejected"
    return "lymphoid" if regular >= SURE_REGULAR and contrast >= SURE_CONTRAST else "doubtful"


def _look(sums: dict[str, F64], median: float) -> tuple[F64, F64, F64]:
    """Compute each region's share of regular nuclei, their contrast, and the background."""
    space, nuclear = np.maximum(sums["between"], 1e-3), np.maximum(sums["nuclear"], 1e-3)
    regular = sums["regular"] / np.maximum(sums["nuclei"], 1.0)
    red = sums["red_between"] / space
    contrast = sums["nuclear_red"] / nuclear / np.maximum(red, 1e-3)
    return regular, contrast, sums["green_between"] / space / max(median, 1e-3)
