"""Values on a grid over a slide's tissue: cell density or the share of a cell type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mcp_servers.lazy import shapely
from mcp_servers.measures.maps import SlideMaps, multipolygon
from mcp_servers.measures.patterns import field_counts
from mcp_servers.measures.places import plural
from mcp_servers.measures.prepared import squares
from mcp_servers.slides.arrays import F64
from sage.core.errors import InputError

SIDES_UM = (50.0, 100.0, 200.0, 250.0, 500.0, 1000.0, 2000.0, 5000.0)
MOST_SQUARES = 12_000
FEW = 10
"""Minimum number of cells in a square for computing a share."""

Quantity = Literal["density", "share"]


@dataclass(frozen=True, slots=True)
class Heat:
    """Values for the squares of a grid.

    Parameters
    ----------
    corners : (n, 2) upper-left corners in µm
    values : (n,), NaN where a square contains too few cells
    side_um : side length of the squares
    unit : unit of the values; "1" for a share
    """

    corners: F64
    values: F64
    side_um: float
    unit: str
    words: str


def heat(maps: SlideMaps, quantity: Quantity, kind: str = "", side_um: float | None = None) -> Heat:
    """Compute, for each square, the cells per mm² of tissue or a type's share of all cells.

    Raises `InputError` if the maps lack the required data, or the grid would be too fine.

    Parameters
    ----------
    maps : maps with cells; a density also requires the tissue outline
    quantity : quantity shown in each square
    kind : a cell type; empty for all cells, which is valid only for a density
    side_um : side length of the squares in µm; by default, chosen by the size of the tissue
    """
    cells = maps.cells
    if cells is None or not len(cells):
        raise InputError(f"{maps.slide}: the maps contain no cells")
    if kind and kind not in cells.types:
        raise InputError(
            f"the maps contain no cells of type {kind[:60]!r}; "
            f"available types: {', '.join(cells.types)}"
        )
    if quantity == "share" and not kind:
        raise InputError("a share requires a cell type")
    window = maps.window
    if window is None and quantity == "density":
        raise InputError("the tissue outline is unknown, so density cannot be computed")
    if window is None:
        window = multipolygon([shapely.box(*cells.points.min(axis=0), *cells.points.max(axis=0))])
    x0, y0, x1, y1 = window.bounds
    fits = [side for side in SIDES_UM if _count(x1 - x0, y1 - y0, side) <= MOST_SQUARES]
    side = side_um or (fits[0] if fits else SIDES_UM[-1])
    if _count(x1 - x0, y1 - y0, side) > MOST_SQUARES:
        raise InputError(f"squares of {side:g} µm are too small for this slide")
    corners, covered = squares(window, side)
    chosen = cells.of_type(kind) if kind else np.ones(len(cells), dtype=bool)
    own = field_counts(cells.points[chosen], corners, side)
    if quantity == "density":
        what = plural("cells", kind) if kind else "cells"
        return Heat(corners, own / (covered / 1e6), side, "1/mm²", f"{what} per mm² of tissue")
    every = field_counts(cells.points, corners, side)
    share = np.where(every >= FEW, own / np.maximum(every, 1), np.nan)
    return Heat(corners, share, side, "1", f"share of {plural('cells', kind)} among all cells")


def _count(width: float, height: float, side: float) -> float:
    return float(np.ceil(width / side) * np.ceil(height / side))
