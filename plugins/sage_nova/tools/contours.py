"""Shape of a closed outline: area, perimeter, hull, and ellipse of equal second moments."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, hypot, pi, sqrt
from typing import Any

import numpy as np

from mcp_servers.slides.arrays import F64

MEASURES = (
    "area", "perimeter", "hull_area", "hull_perimeter", "solidity", "convexity", "circularity",
    "eccentricity", "major_axis_length", "minor_axis_length",
)  # fmt: skip


def make_polygon(points: Sequence[Sequence[float]]) -> Any:
    """Make a polygon from the corners, or from their hull if they enclose no area."""
    import shapely

    ring = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    return shapely.Polygon(ring) if len(ring) > 2 else shapely.MultiPoint(ring)


def hull_corners(points: Sequence[Sequence[float]]) -> F64:
    """Compute the (m, 2) corners of the convex hull, or return the corners if the area is zero."""
    shape = make_polygon(points).convex_hull
    if shape.geom_type != "Polygon":
        return np.unique(np.asarray(points, dtype=np.float64), axis=0)
    return np.asarray(shape.exterior.coords, dtype=np.float64)[:-1]


def fit_ellipse(points: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Compute the axes and angle (radians) of the ellipse with the outline's second moments.

    They are defined as in `skimage.measure.regionprops`; zeros for an outline without area.
    """
    x0, y0 = (np.asarray(points, dtype=np.float64) - np.mean(points, axis=0)).T
    x1, y1 = np.roll(x0, -1), np.roll(y0, -1)
    cross = x0 * y1 - x1 * y0
    total = cross.sum() / 2
    if abs(total) < 1e-12:
        return 0.0, 0.0, 0.0
    cx = ((x0 + x1) * cross).sum() / (6 * total)
    cy = ((y0 + y1) * cross).sum() / (6 * total)
    xx = ((x0**2 + x0 * x1 + x1**2) * cross).sum() / (12 * total) - cx**2
    yy = ((y0**2 + y0 * y1 + y1**2) * cross).sum() / (12 * total) - cy**2
    xy = ((x0 * y1 + 2 * x0 * y0 + 2 * x1 * y1 + x1 * y0) * cross).sum() / (24 * total) - cx * cy
    spread = hypot(xx - yy, 2 * xy)
    long, short = (xx + yy + spread) / 2, max((xx + yy - spread) / 2, 0.0)
    return 4 * sqrt(long), 4 * sqrt(short), atan2(2 * xy, xx - yy) / 2


def measure_shape(points: Sequence[Sequence[float]]) -> dict[str, float]:
    """Measure an outline in the unit of its corners; zeros if it has fewer than three.

    `circularity` is 4 pi area / perimeter², `solidity` is the area divided by the hull's
    area, and `convexity` is the hull's perimeter divided by the outline's.
    """
    shape = make_polygon(points)
    if shape.geom_type != "Polygon":
        return dict.fromkeys(MEASURES, 0.0)
    area, around, outer = shape_area(points), shape.length, shape.convex_hull
    hull_around = outer.length if outer.area else 2 * outer.length
    major, minor, _ = fit_ellipse(points)
    return {
        "area": area,
        "perimeter": around,
        "hull_area": outer.area,
        "hull_perimeter": hull_around,
        "solidity": area / outer.area if outer.area else 0.0,
        "convexity": hull_around / around if around else 0.0,
        "circularity": 4 * pi * area / around**2 if around else 0.0,
        "eccentricity": sqrt(max(0.0, 1 - (minor / major) ** 2)) if major else 0.0,
        "major_axis_length": major,
        "minor_axis_length": minor,
    }


def shape_area(points: Sequence[Sequence[float]]) -> float:
    """Compute the area with the shoelace formula; 0 for fewer than three corners."""
    return float(abs(make_polygon(points).area))
