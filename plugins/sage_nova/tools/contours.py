"""Shape of a closed outline: area, perimeter, hull, and the ellipse of the same second moments."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, hypot, pi, sqrt
from typing import Any

import numpy as np

from mcp_servers.slides.arrays import F64


def ring_of(points: Sequence[Sequence[float]]) -> F64:
    """(n, 2) corners, without the first one again at the end."""
    ring = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    if len(ring) > 1 and np.array_equal(ring[0], ring[-1]):
        ring = ring[:-1]
    return ring


def area(ring: F64) -> float:
    """Area by the shoelace formula; 0 for fewer than three corners."""
    x, y = ring[:, 0], ring[:, 1]
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)


def perimeter(ring: F64) -> float:
    """Length of the closed outline."""
    steps = np.roll(ring, -1, axis=0) - ring
    return float(np.hypot(steps[:, 0], steps[:, 1]).sum())


def hull(ring: F64) -> F64:
    """(m, 2) corners of the convex hull; the corners themselves where they span no area."""
    import shapely

    shape = shapely.MultiPoint(ring).convex_hull
    if shape.geom_type != "Polygon":
        return np.unique(ring, axis=0)
    return np.asarray(shape.exterior.coords, dtype=np.float64)[:-1]


def ellipse(points: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Major and minor axis and direction (radians) of the ellipse with the outline's second
    moments, as `skimage.measure.regionprops` defines them; zeros for an outline without area."""
    ring = ring_of(points)
    if len(ring) < 3:
        return 0.0, 0.0, 0.0
    ring = ring - ring.mean(axis=0)
    x0, y0 = ring.T
    x1, y1 = np.roll(ring, -1, axis=0).T
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


def shape_of(points: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Measures of an outline in the unit of its corners.

    `circularity` is 4 pi area / perimeter², `solidity` area over the hull's area, `convexity` the
    hull's perimeter over the outline's; 0 where they cannot be had.
    """
    ring = ring_of(points)
    if len(ring) < 3:
        keys = "area perimeter hull_area hull_perimeter solidity convexity circularity eccentricity"
        return dict.fromkeys(keys.split(), 0.0)
    around, inside, outer = perimeter(ring), area(ring), hull(ring)
    major, minor, _ = ellipse(points)
    hull_area, hull_around = area(outer), perimeter(outer)
    return {
        "area": inside,
        "perimeter": around,
        "hull_area": hull_area,
        "hull_perimeter": hull_around,
        "solidity": inside / hull_area if hull_area else 0.0,
        "convexity": hull_around / around if around else 0.0,
        "circularity": 4 * pi * inside / around**2 if around else 0.0,
        "eccentricity": sqrt(max(0.0, 1 - (minor / major) ** 2)) if major else 0.0,
        "major_axis_length": major,
        "minor_axis_length": minor,
    }
