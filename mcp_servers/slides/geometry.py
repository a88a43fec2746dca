"""Rectangles, polygons, masks and grids, with coordinates x, y in level-0 pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.slides.arrays import F64, I64, U8, AnyArray, BoolArray
from mcp_servers.slides.components import spread
from mcp_servers.slides.outlines import outlines
from sage.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Polygon:
    """An outer ring and holes, each an unclosed (n, 2) array of x, y."""

    exterior: F64
    holes: tuple[F64, ...] = ()
    label: str = ""

    @property
    def area(self) -> float:
        """Area in square pixels, excluding holes."""
        return ring_area(self.exterior) - sum(ring_area(h) for h in self.holes)

    @property
    def centroid(self) -> tuple[float, float]:
        """Centroid of the area enclosed by the outer ring."""
        x, y = self.exterior[:, 0], self.exterior[:, 1]
        cross = x * np.roll(y, -1) - np.roll(x, -1) * y
        total = float(cross.sum())
        if abs(total) < 1e-9:
            return float(x.mean()), float(y.mean())
        cx = float(((x + np.roll(x, -1)) * cross).sum() / (3 * total))
        cy = float(((y + np.roll(y, -1)) * cross).sum() / (3 * total))
        return cx, cy


FARTHEST = 1e12
"""Limit to which coordinates in mask pixels are clipped, far beyond any slide."""
Box = tuple[slice, slice]


def ring_area(ring: F64) -> float:
    """Compute the area of a ring with the shoelace formula."""
    x, y = ring[:, 0], ring[:, 1]
    return abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))) / 2


def mask_polygons(
    mask: BoolArray,
    scale: float,
    *,
    origin: tuple[float, float] = (0.0, 0.0),
    min_area_px: float = 0.0,
    simplify_px: float = 0.0,
    label: str = "",
) -> list[Polygon]:
    """Outline the connected regions of a mask, with their holes, in level-0 pixels.

    The outlines run along pixel edges, so the area of a polygon is the area of its pixels (before
    `simplify_px`, a tolerance in mask pixels, removes points). Regions below `min_area_px` are
    dropped.

    Parameters
    ----------
    mask : (height, width)
    scale : level-0 pixels per mask pixel
    origin : x and y of the mask's corner, level-0 pixels
    min_area_px : mask pixels
    simplify_px : mask pixels; 0 keeps every point
    """

    def place_ring(ring: AnyArray) -> F64 | None:
        if simplify_px > 0:
            ring = np.asarray(cv2.approxPolyDP(ring[:, None], simplify_px, closed=True))[:, 0]
        return np.asarray(ring * scale + np.asarray(origin)) if len(ring) > 2 else None

    out = []
    for outline in outlines(mask):
        exterior = place_ring(outline.exterior)
        if exterior is None:
            continue
        holes = tuple(h for h in map(place_ring, outline.holes) if h is not None)
        polygon = Polygon(exterior, holes, label)
        if polygon.area / scale**2 >= min_area_px:
            out.append(polygon)
    return out


def mask_area(mask: BoolArray, scale: float, width: int, height: int) -> float:
    """Compute the area of a mask in square level-0 pixels.

    The mask's last row and column end at the image's border. `scale` is level-0 pixels per pixel of
    the (rows, columns) mask.
    """
    below, right = (edge - n * scale for edge, n in zip((height, width), mask.shape, strict=True))
    across, down = (int(np.count_nonzero(edge)) * scale for edge in (mask[-1], mask[:, -1]))
    corner = below * right if mask[-1, -1] else 0.0
    whole = int(np.count_nonzero(mask)) * scale**2
    return float(whole + across * below + down * right + corner)


def lattice(mask: AnyArray) -> U8:
    """Return the corners and edges of mask pixels as a (2 height + 1, 2 width + 1) image.

    A contour traced through this image's pixels runs along the edges of the mask's pixels, at
    half their scale, and so encloses their area; only inner corners are cut, by 1/8 of a
    pixel each.
    """
    height, width = mask.shape
    corners = np.zeros((2 * height + 1, 2 * width + 1), dtype=np.uint8)
    corners[1::2, 1::2] = mask
    # as a dilation by 3 x 3 would, in place: this is four times the size of the mask
    for beside in (np.s_[:-1:2], np.s_[2::2]):
        corners[1::2, beside] |= corners[1::2, 1::2]
    for beside in (np.s_[:-1:2], np.s_[2::2]):
        corners[beside] |= corners[1::2]
    return corners


def rasterize(polygons: list[Polygon], scale: float, shape: tuple[int, int]) -> BoolArray:
    """Rasterize polygons to a (height, width) mask with `scale` level-0 pixels per mask pixel.

    A pixel belongs to a polygon if its center does, that is, if the center is inside the
    outer ring (by the even-odd rule) and outside every hole.
    """
    mask = np.zeros(shape, dtype=bool)
    for polygon in polygons:
        exterior = _by_centers(polygon.exterior, scale)
        box = _box(exterior, shape)
        own = _inside(exterior, box)
        for hole in polygon.holes:
            ring = _by_centers(hole, scale)
            rows, columns = common = _box(ring, shape, box)
            gap = _inside(ring, common)
            own[
                rows.start - box[0].start : rows.stop - box[0].start,
                columns.start - box[1].start : columns.stop - box[1].start,
            ][gap] = False
        mask[box] |= own
    return mask


def _by_centers(ring: F64, scale: float) -> F64:
    """Convert a ring to mask pixels, with pixel centers at integer coordinates."""
    return np.asarray(np.clip(ring / scale - 0.5, -FARTHEST, FARTHEST))


def _box(ring: F64, shape: tuple[int, int], within: Box | None = None) -> Box:
    """Return the rows and columns of a mask, or part of it, whose centers a ring can contain."""
    rows, columns = within or (slice(0, shape[0]), slice(0, shape[1]))
    low, high = np.ceil(ring.min(axis=0)), np.ceil(ring.max(axis=0))
    return (
        slice(*np.clip((low[1], high[1]), rows.start, rows.stop).astype(int).tolist()),
        slice(*np.clip((low[0], high[0]), columns.start, columns.stop).astype(int).tolist()),
    )


def _inside(ring: F64, box: Box) -> BoolArray:
    """Return a mask of the integer coordinates in a box that are inside a ring (even-odd)."""
    rows, columns = box
    height, width = rows.stop - rows.start, columns.stop - columns.start
    changes = np.zeros((height, width), dtype=np.uint8)
    if height < 1 or width < 1:
        return changes.astype(bool)
    (x0, y0), (x1, y1) = ring.T, np.roll(ring, -1, axis=0).T
    # an edge crosses the rows from its upper end (included) to its lower end (excluded)
    first, last = (
        np.clip(np.ceil(end), rows.start, rows.stop).astype(np.int64)
        for end in (np.minimum(y0, y1), np.maximum(y0, y1))
    )
    edge = np.repeat(np.arange(len(ring)), last - first)
    row = spread(first, last - first)
    share = (row - y0[edge]) / (y1[edge] - y0[edge])
    crossing = x0[edge] * (1 - share) + x1[edge] * share
    column = np.clip(np.ceil(crossing), columns.start, columns.stop).astype(np.int64)
    within = column < columns.stop
    at = (row[within] - rows.start, column[within] - columns.start)
    np.bitwise_xor.at(changes, at, np.uint8(1))
    return np.bitwise_xor.accumulate(changes, axis=1, out=changes).view(bool)


def make_grid(width: int, height: int, size: float, step: float, edges: bool = False) -> I64:
    """Compute the (n, 2) corners of a grid of squares, row by row.

    `edges` also keeps squares that extend beyond the right or bottom border. Raises
    `InputError` if size or step is not positive.
    """
    if size <= 0 or step <= 0:
        raise InputError(f"tile size and step must be positive, got {size:g} and {step:g}")

    def starts(length: int) -> I64:
        if edges:
            count = max(1, int(np.ceil(length / step)))
        else:
            count = int(np.floor((length - size) / step + 1e-9)) + 1 if length >= size else 0
        if count > 2_000_000:
            raise InputError(f"a step of {step:g} px gives {count} tiles per row; use larger tiles")
        return np.round(np.arange(max(count, 0)) * step).astype(np.int64)

    xs, ys = starts(width), starts(height)
    if len(xs) * len(ys) > 50_000_000:
        raise InputError(f"{len(xs)} x {len(ys)} tiles are too many for a slide; use larger tiles")
    gx, gy = np.meshgrid(xs, ys)
    return np.stack([gx.ravel(), gy.ravel()], axis=1)


def measure_coverage(mask: BoolArray, corners: I64, size: float, scale: float) -> F64:
    """Compute the covered fraction of each of n squares; outside the mask counts as uncovered.

    Parameters
    ----------
    mask : (height, width)
    corners : (n, 2) upper left corners, level-0 pixels
    size : side of the squares, level-0 pixels
    scale : level-0 pixels per mask pixel
    """
    if len(corners) == 0:
        return np.zeros(0)
    height, width = mask.shape
    side = max(1, round(size / scale))
    x0 = np.round(corners[:, 0] / scale).astype(np.int64)
    y0 = np.round(corners[:, 1] / scale).astype(np.int64)
    x1, y1 = np.clip(x0 + side, 0, width), np.clip(y0 + side, 0, height)
    x0, y0 = np.clip(x0, 0, width), np.clip(y0, 0, height)
    total = np.zeros(len(corners), dtype=np.int64)
    order = np.lexsort((y1, y0))
    starts = np.flatnonzero(np.diff(y0[order], prepend=-1) | np.diff(y1[order], prepend=-1))
    for same in np.split(order, starts[1:]):  # squares of the same rows
        along = np.zeros(width + 1, dtype=np.int64)
        np.cumsum(mask[y0[same[0]] : y1[same[0]]].sum(axis=0), out=along[1:])
        total[same] = along[x1[same]] - along[x0[same]]
    return np.asarray(total / float(side * side))
