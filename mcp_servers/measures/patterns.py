"""Statistics of point patterns, computed from arrays of coordinates in µm.

Edge correction always uses the border method: a point closer to the window's border than the radius
is counted as a neighbor, but its own neighbors are not counted. The estimate is unbiased for
windows of any shape, but points are lost if the radius is large relative to the window (Ripley
1988; Baddeley, Rubak and Turner 2015, chapter 7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mcp_servers.lazy import shapely
from mcp_servers.slides.arrays import F64, I64, BoolArray

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

KERNEL_STEPS = 4
"""Grid cells per bandwidth in `kernel_maximum`."""
KERNEL_REACH = 4.0
"""Distance, in bandwidths, beyond which the kernel is treated as zero."""
MOST_BINS = 4_000_000


def neighbor_counts(tree: cKDTree, points: F64, radius_um: float) -> I64:
    """Count the tree's points within a radius of each point, including the point itself."""
    if not len(points):
        return np.zeros(0, dtype=np.int64)
    return np.asarray(tree.query_ball_point(points, radius_um, return_length=True), dtype=np.int64)


def far_from(border: Any, points: F64, distance_um: float) -> BoolArray:
    """Return an (n,) mask of the points at least this far from a shapely line."""
    if distance_um <= 0:
        return np.ones(len(points), dtype=bool)
    shapely.prepare(border)
    near = shapely.dwithin(border, shapely.points(points), np.nextafter(distance_um, 0))
    return np.asarray(~near, dtype=bool)


def distances_to(region: Any, points: F64) -> F64:
    """Compute the (n,) distances of points to a shapely area, 0 inside."""
    shapely.prepare(region)
    return np.asarray(shapely.distance(region, shapely.points(points)))


def ripley_k(counts: I64, density: float) -> float:
    """Compute border-corrected Ripley's K: the mean number of other points over the density.

    Parameters
    ----------
    counts : (m,) other points within the radius of each point far enough from the border
    density : points per µm² over the whole window

    Returns
    -------
    K in µm²; π r² under complete spatial randomness
    """
    return float(counts.mean() / density)


def pair_correlation(
    within_outer: I64, within_inner: I64, density: float, radius_um: float, halfwidth_um: float
) -> float:
    """Compute the number of pairs in the ring radius ± half width relative to randomness.

    Parameters
    ----------
    within_outer, within_inner : (m,) points within radius + half width, and radius - half
        width
    density : points per µm²
    """
    ring = 4 * np.pi * radius_um * halfwidth_um
    return float((within_outer - within_inner).mean() / (density * ring))


def clark_evans(nearest_um: F64, density: float) -> float:
    """Compute the mean nearest-neighbor distance over 1 / (2 √density) (Clark and Evans 1954)."""
    return float(nearest_um.mean() * 2 * np.sqrt(density))


def entropy_bits(counts: I64) -> F64:
    """Compute the Shannon entropy of each row of (n, types) counts; NaN for rows without counts."""
    total = counts.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = counts / total
        terms = np.where(shares > 0, shares * np.log2(shares), 0.0)
    return np.asarray(np.where(total[:, 0] > 0, -terms.sum(axis=1), np.nan), dtype=np.float64)


def kernel_maximum(points: F64, bandwidth_um: float) -> float:
    """Compute the maximum Gaussian kernel density per µm² on a grid of a quarter bandwidth.

    There is no edge correction, so a maximum near the border can be underestimated but never
    invented. Raises `ValueError` if the points span more grid cells than fit in memory.
    """
    from scipy.ndimage import gaussian_filter

    step = bandwidth_um / KERNEL_STEPS
    counts = count_bins(points, step, margin=int(KERNEL_REACH * KERNEL_STEPS))
    smooth = gaussian_filter(counts, KERNEL_STEPS, mode="constant", truncate=KERNEL_REACH)
    return float(smooth.max() / step**2)


def densest_window(points: F64, side_um: float) -> float:
    """Find the highest count in a square with this side length, per µm².

    Squares start every half side. Raises `ValueError` if the points span more squares than
    fit in memory.
    """
    counts = count_bins(points, side_um / 2, margin=1)
    blocks = counts[:-1, :-1] + counts[1:, :-1] + counts[:-1, 1:] + counts[1:, 1:]
    return float(blocks.max() / side_um**2)


def field_counts(points: F64, corners: F64, side_um: float) -> I64:
    """Count the points in each square, given the squares' (fields, 2) lower corners on a grid."""
    if not len(corners):
        return np.zeros(0, dtype=np.int64)
    origin = corners.min(axis=0)
    at = np.floor((points - origin) / side_um).astype(np.int64)
    grid = np.rint((corners - origin) / side_um).astype(np.int64)
    shape = grid.max(axis=0) + 1
    inside = ((at >= 0) & (at < shape)).all(axis=1)
    table = np.zeros(tuple(shape), dtype=np.int64)
    np.add.at(table, (at[inside, 0], at[inside, 1]), 1)
    return np.asarray(table[grid[:, 0], grid[:, 1]])


def morisita(counts: I64) -> float:
    """Compute Morisita's index of counts over fields: Q Σ n(n-1) / (N(N-1)); 1 under randomness."""
    total = int(counts.sum())
    return float(len(counts) * (counts * (counts - 1)).sum() / (total * (total - 1)))


def weighted_slope(at: F64, values: F64, weights: F64) -> float:
    """Compute the slope of a weighted least-squares line."""
    center = np.average(at, weights=weights)
    spread = (weights * (at - center) ** 2).sum()
    return float((weights * (at - center) * values).sum() / spread)


def count_bins(points: F64, step: float, margin: int) -> F64:
    """Count (n, 2) points in square bins of side `step`, with `margin` empty bins around them."""
    low = np.floor(points.min(axis=0) / step).astype(np.int64)
    at = np.floor(points / step).astype(np.int64) - low + margin
    shape = at.max(axis=0) + margin + 1
    if int(shape[0]) * int(shape[1]) > MOST_BINS:
        raise ValueError("the points are too widely spread for this resolution")
    counts = np.zeros(tuple(shape))
    np.add.at(counts, (at[:, 0], at[:, 1]), 1.0)
    return counts
