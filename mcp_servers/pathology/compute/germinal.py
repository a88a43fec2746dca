"""Detection of germinal centers: pale cores of larger nuclei in an aggregate's dense mantle.

A core is classified on the 8 µm grid of `survey` by its difference from its own mantle,
so that stain strength and scanner have little effect. A core that narrowly misses a limit
is doubtful: it is listed with the reason but never counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.pathology.common import Call
from mcp_servers.pathology.compute.survey import CELL_UM, Survey
from mcp_servers.slides.arrays import BoolArray
from mcp_servers.slides.components import Components

COARSEST_MPP = 1.05
"""Pixel size above which core and mantle nuclei cannot be distinguished by size."""
MIN_AREA_UM2, MIN_WIDTH_UM = 4_000.0, 55.0
"""Minimum area (a disc of 71 µm diameter) and minimum inscribed diameter."""
CLOSED_UM = 24.0
"""Half the maximum width, in µm, of gaps in the mantle to close, such as at a vessel."""


class Limit(NamedTuple):
    """Limits on a measure.

    A core between `sure` and `least` is doubtful, and a core beyond `least` is rejected.
    """

    what: str
    sure: float
    least: float
    higher: bool = True


LIMITS = {
    "enclosed": Limit("of its rim is mantle", 0.75, 0.6),
    "nuclei_per_mm2": Limit("nuclei per mm²", 4_800.0, 3_500.0),
    "nuclear_um2": Limit("µm² as the mean area of its nuclei", 42.0, 36.0),
    "paleness": Limit("times the nuclear density of its mantle", 0.85, 0.92, higher=False),
    "gap": Limit("of it without dye", 0.10, 0.25, higher=False),
}
"""Limits on a core's measures.

The measures are the share of its rim that is mantle; its nuclei per mm², which are rarely
as many in nests of tumor and vessels; the mean area of its nuclei (small lymphocytes have
about 38 µm²; the mantle's mean is not a reference, because packed nuclei are merged); the
mean optical density (red) of its nuclei relative to that of the mantle's; and its share
without stain, as in a lumen. The limits were chosen on painted slides and on real fields
without germinal centers.
"""


@dataclass(frozen=True, slots=True)
class Core:
    """A pale core: its cells in a box on the grid, its measurements, and its classification.

    The cells extend one cell beyond the pale area because the mantle's density is smoothed.
    `beside` is an adjacent cell (row, column) in the mantle.
    """

    box: tuple[slice, slice]
    cells: BoolArray
    beside: tuple[int, int]
    measured: dict[str, float]
    call: Call
    reason: str

    @property
    def area_um2(self) -> float:
        """Area in µm²."""
        return float(self.cells.sum()) * CELL_UM**2


def cores(survey: Survey, mantles: Components, chosen: BoolArray) -> list[Core]:
    """Find pale cores in the chosen mantles that are or may be germinal centers.

    `chosen` is a mask with length count + 1.
    """
    pieces = mantles.pieces()
    found: list[Core] = []
    for label in np.flatnonzero(chosen).tolist():
        found += _cores_of(survey, pieces.box(label), pieces.cells(label))
    return found


def fill(mask: BoolArray, found: list[Core]) -> BoolArray:
    """Fill the cores that are germinal centers in a mask."""
    filled = mask.copy()
    for core in found:
        if core.call == "lymphoid":
            filled[core.box] |= core.cells
    return filled


def judge(measured: dict[str, float]) -> tuple[Call, str]:
    """Classify a core: `lymphoid` means a germinal center; others are doubtful or rejected."""
    near: list[str] = []
    for name, (what, sure, least, higher) in LIMITS.items():
        value = measured[name]
        sign = 1.0 if higher else -1.0
        if not sign * value >= sign * least:
            return "rejected", f"{value:.3g} {what}"
        if sign * value < sign * sure:
            near.append(f"{value:.3g} {what}")
    return ("doubtful", "; ".join(near)) if near else ("lymphoid", "")


def _cores_of(survey: Survey, box: tuple[slice, slice], mantle: BoolArray) -> Iterator[Core]:
    from scipy.ndimage import binary_fill_holes

    reach = round(CLOSED_UM / CELL_UM)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1))
    padded = np.pad(mantle, reach + 1).view(np.uint8)
    closed = cv2.morphologyEx(padded, cv2.MORPH_CLOSE, kernel).view(bool)
    inner = np.s_[reach + 1 : -reach - 1, reach + 1 : -reach - 1]
    pale = (binary_fill_holes(closed)[inner] & ~mantle).astype(np.uint8)
    pale = cv2.morphologyEx(pale, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    count, labels = cv2.connectedComponents(pale, connectivity=4)
    if count < 2:
        return
    rows, columns = box
    layers = {
        name: survey.layer(name, rows)[:, columns]
        for name in ("tissue", "nuclei", "nuclear", "nuclear_red", "gap")
    }
    for label in range(1, count):
        own = labels == label
        depth = cv2.distanceTransform(np.pad(own, 1).view(np.uint8), cv2.DIST_L2, 5)
        if own.sum() * CELL_UM**2 < MIN_AREA_UM2 or depth.max() * 2 * CELL_UM < MIN_WIDTH_UM:
            continue
        rim = cv2.dilate(own.view(np.uint8), np.ones((5, 5), np.uint8)).view(bool) & ~own
        if not (rim & mantle).any():
            continue
        measured = _measures(layers, own, mantle, float(mantle[rim].mean()))
        call, reason = judge(measured)
        if call != "rejected":
            row, column = np.argwhere(rim & mantle)[0]
            beside = (rows.start + int(row), columns.start + int(column))
            grown = cv2.dilate(own.view(np.uint8), np.ones((3, 3), np.uint8)).view(bool)
            yield Core(box, grown, beside, measured, call, reason)


def _measures(
    layers: dict[str, np.ndarray], core: BoolArray, mantle: BoolArray, enclosed: float
) -> dict[str, float]:
    """Compute the measures that `LIMITS` bounds, by name.

    Parameters
    ----------
    layers : survey layers in the box
    core, mantle : masks of cells in the box
    enclosed : share of the core's rim that is mantle
    """
    inside, around = (
        {name: float(values[cells].sum()) for name, values in layers.items()}
        for cells in (core, mantle)
    )
    tissue = max(inside["tissue"], 1e-3)

    own, other = (part["nuclear_red"] / max(part["nuclear"], 1e-3) for part in (inside, around))
    paleness = own / max(other, 1e-6)
    return {
        "enclosed": enclosed,
        "nuclei_per_mm2": inside["nuclei"] / (tissue * (CELL_UM / 1000) ** 2),
        "nuclear_um2": inside["nuclear"] * CELL_UM**2 / max(inside["nuclei"], 1.0),
        "paleness": paleness,
        "gap": inside["gap"] / tissue,
    }
