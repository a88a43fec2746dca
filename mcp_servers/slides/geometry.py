"""Rectangles, polygons, masks and grids. Coordinates are level-0 pixels, x then y."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcp_servers.errors import InputError
from mcp_servers.slides.arrays import F64, I64, U8, AnyArray, BoolArray
from mcp_servers.slides.components import components


@dataclass(frozen=True, slots=True)
class Polygon:
    """An outer ring and holes, each (n, 2) of x, y; rings are not closed here."""

    exterior: F64
    holes: tuple[F64, ...] = ()
    label: str = ""

    @property
    def area(self) -> float:
        """Area in square pixels, holes taken off."""
        return ring_area(self.exterior) - sum(ring_area(h) for h in self.holes)

    @property
    def centroid(self) -> tuple[float, float]:
        """Mean of the outer ring's area."""
        x, y = self.exterior[:, 0], self.exterior[:, 1]
        cross = x * np.roll(y, -1) - np.roll(x, -1) * y
        total = float(cross.sum())
        if abs(total) < 1e-9:
            return float(x.mean()), float(y.mean())
        cx = float(((x + np.roll(x, -1)) * cross).sum() / (3 * total))
        cy = float(((y + np.roll(y, -1)) * cross).sum() / (3 * total))
        return cx, cy


BEYOND = 2
"""Outlines are drawn up to so many sizes of the mask beyond its border."""
FARTHEST = 1e12
"""Coordinates beyond this, in pixels of the mask, are taken for it: no slide is near it."""
WHOLE_CELLS = 8_000_000
"""Masks up to this size are outlined at once."""


def ring_area(ring: F64) -> float:
    """Shoelace area of a ring."""
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
    """Outlines of the connected regions of a mask, with their holes, in level-0 pixels.

    The outlines run along pixel edges, so the area of a polygon is the area of its pixels (before
    `simplify_px`, a tolerance in mask pixels, removes points). `min_area_px` drops smaller ones;
    `scale` is level-0 pixels per mask pixel.
    """
    import cv2

    if not mask.any():
        return []
    if mask.size > WHOLE_CELLS:
        found = _by_piece(mask, scale, origin, min_area_px, simplify_px, label)
        if found is not None:
            return found
    rings, tree = cv2.findContours(lattice(mask), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    tree = tree[0]

    def place(ring: AnyArray) -> F64 | None:
        if simplify_px > 0:
            ring = cv2.approxPolyDP(ring, simplify_px * 2, closed=True)
        points = np.asarray(ring[:, 0, :], dtype=np.float64)
        if len(points) < 3:
            return None
        return np.asarray(points / 2 * scale + np.asarray(origin))

    out = []
    for index, ring in enumerate(rings):
        if tree[index][3] >= 0:
            continue
        exterior = place(ring)
        if exterior is None:
            continue
        holes = []
        child = int(tree[index][2])
        while child >= 0:
            hole = place(rings[child])
            if hole is not None:
                holes.append(hole)
            child = int(tree[child][0])
        polygon = Polygon(exterior, tuple(holes), label)
        if polygon.area / scale**2 >= min_area_px:
            out.append(polygon)
    return out


def _by_piece(
    mask: BoolArray,
    scale: float,
    origin: tuple[float, float],
    min_area_px: float,
    simplify_px: float,
    label_text: str,
) -> list[Polygon] | None:
    """`mask_polygons`, each connected region in its own box, so that no outline image of the whole
    is needed; None when one region has half of the mask for its box."""
    found = components(mask, diagonal=True)
    pieces = found.pieces()
    boxes = [pieces.box(label) for label in range(1, found.count + 1)]
    if any((r.stop - r.start) * (c.stop - c.start) > mask.size // 2 for r, c in boxes):
        return None
    out = []
    for label, (rows, columns) in enumerate(boxes, start=1):
        corner = (origin[0] + columns.start * scale, origin[1] + rows.start * scale)
        out += mask_polygons(
            pieces.cells(label),
            scale,
            origin=corner,
            min_area_px=min_area_px,
            simplify_px=simplify_px,
            label=label_text,
        )
    return out


def lattice(mask: AnyArray) -> U8:
    """The corners and edges of a mask's pixels as an image of (2 height + 1, 2 width + 1).

    A contour traced through its pixels runs along the edges of the mask's pixels, at half their
    scale, so that it encloses their area; only inner corners are cut, by 1/8 of a pixel each.
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
    """A (height, width) mask of polygons at `scale` level-0 pixels per mask pixel."""
    import cv2

    mask = np.zeros(shape, dtype=np.uint8)
    shift = 4  # 1/16 pixel
    for polygon in polygons:
        own = np.zeros(shape, dtype=np.uint8) if polygon.holes else mask
        for ring, value in ((polygon.exterior, 1), *((hole, 0) for hole in polygon.holes)):
            near = clipped(ring / scale - 0.5, shape)
            if len(near):
                points = np.round(near * 2**shift).astype(np.int32)
                cv2.fillPoly(own, [points], value, shift=shift)
        if polygon.holes:
            mask |= own
    return mask.astype(bool)


def clipped(ring: F64, shape: tuple[int, int]) -> F64:
    """The part of a ring that lies within `BEYOND` sizes of a (height, width) mask around it.

    Coordinates without bound would not fit the integers that a ring is drawn with. Rings within
    are given back as they are; where one is cut, it runs along the bounds (Sutherland, Hodgman).
    """
    size = np.array([shape[1], shape[0]], dtype=np.float64)
    low, high = -BEYOND * size, (BEYOND + 1) * size
    ring = np.clip(ring, -FARTHEST, FARTHEST)
    for axis, bound, side in ((0, low, 1.0), (1, low, 1.0), (0, high, -1.0), (1, high, -1.0)):
        inside = side * (ring[:, axis] - bound[axis])
        if not (inside < 0).any():
            continue
        before = np.roll(inside, 1)
        crossing = (inside < 0) != (before < 0)
        share = before / np.where(crossing, before - inside, 1.0)
        cut = np.roll(ring, 1, axis=0) + share[:, None] * (ring - np.roll(ring, 1, axis=0))
        cut[:, axis] = bound[axis]
        both = np.stack([cut, ring], axis=1).reshape(-1, 2)
        ring = both[np.stack([crossing, inside >= 0], axis=1).reshape(-1)]
    return ring


def grid(width: int, height: int, size: float, step: float, edges: bool = False) -> I64:
    """(n, 2) corners of a grid of squares, row by row.

    `edges` also keeps squares that reach beyond the right or bottom border.
    """
    if size <= 0 or step <= 0:
        raise InputError(f"tile size and step must be positive, not {size:g} and {step:g}")

    def starts(length: int) -> I64:
        if edges:
            count = max(1, int(np.ceil(length / step)))
        else:
            count = int(np.floor((length - size) / step + 1e-9)) + 1 if length >= size else 0
        if count > 2_000_000:
            raise InputError(f"a step of {step:g} px makes {count} tiles a row; take larger tiles")
        return np.round(np.arange(max(count, 0)) * step).astype(np.int64)

    xs, ys = starts(width), starts(height)
    if len(xs) * len(ys) > 50_000_000:
        raise InputError(
            f"{len(xs)} x {len(ys)} tiles are too many for one slide; take larger tiles"
        )
    gx, gy = np.meshgrid(xs, ys)
    return np.stack([gx.ravel(), gy.ravel()], axis=1)


def covered(mask: BoolArray, corners: I64, size: float, scale: float) -> F64:
    """(n,) fraction of each square that a mask covers; outside the mask counts as uncovered."""
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
