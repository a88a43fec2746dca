"""Slow references: every distance between every two points, by loops a reader can follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import shapely


def distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.sqrt(((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=-1))


def without_itself(table: np.ndarray, same: bool) -> np.ndarray:
    table = table.copy()
    if same:
        np.fill_diagonal(table, np.inf)
    return table


def border_distance(window: shapely.Geometry, points: np.ndarray) -> np.ndarray:
    return np.array([window.boundary.distance(shapely.Point(x, y)) for x, y in points])


def inside(area: shapely.Geometry, points: np.ndarray) -> np.ndarray:
    return np.array([area.intersects(shapely.Point(x, y)) for x, y in points], dtype=bool)


def k_border(
    one: np.ndarray, other: np.ndarray, window: shapely.Geometry, radius: float, same: bool
) -> float:
    table = without_itself(distances(one, other), same)
    far = border_distance(window, one) >= radius
    total = sum(int((table[i] <= radius).sum()) for i in np.flatnonzero(far))
    return total / far.sum() / (len(other) / window.area)


def entropy(
    points: np.ndarray, everything: np.ndarray, types: Sequence[int], radius: float
) -> float:
    found = []
    for point in points:
        near = [
            types[j]
            for j, other in enumerate(everything)
            if 0 < np.hypot(*(point - other)) <= radius
        ]
        if near:
            shares = [near.count(kind) / len(near) for kind in set(near)]
            found.append(-sum(share * np.log2(share) for share in shares))
    return float(np.mean(found))


def kernel_density(points: np.ndarray, at: np.ndarray, sigma: float) -> np.ndarray:
    squared = distances(at, points) ** 2
    return np.exp(-squared / (2 * sigma**2)).sum(axis=1) / (2 * np.pi * sigma**2)
