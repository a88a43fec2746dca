"""Borders of a mask as rings along cell edges, computed from only their corners.

A ring turns at corners: points between cells around which 1 or 3 of 4 cells are True, or
two True cells touch only at that point. Along each line of the lattice, the corners pair
up into edges; alternating between rows and columns gives the rings. Memory depends on the
number of corners, not on the length of a ring.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mcp_servers.slides.arrays import I32, U8, AnyArray, BoolArray, bands
from mcp_servers.slides.components import components


@dataclass(frozen=True, slots=True)
class Outline:
    """A region's outer ring and holes, each an unclosed (n, 2) array of x, y in cells."""

    exterior: I32
    holes: tuple[I32, ...]


def outlines(mask: BoolArray) -> Iterator[Outline]:
    """Outline the connected regions of a mask, in the order of their first cells.

    Cells that touch at a corner belong to the same region, whose ring then passes that corner
    twice. The area that an outline encloses is exactly that of its cells.
    """
    corners, crossing = _corners(mask)
    steps, ends = _walk_rings(_upright(corners[:, 0], crossing))
    del crossing
    starts = np.concatenate([[0], ends])[:-1].astype(np.int64)

    def ring(number: int) -> I32:
        left = steps[starts[number] : ends[number]]
        return np.asarray(corners[np.stack([left, left ^ 1], axis=1).reshape(-1)])

    x, y = corners[steps[starts]].T  # the upper left corner of each ring
    outer = _cells(mask, x, y)
    holes: dict[int, list[int]] = {}
    inner = np.flatnonzero(~outer)
    if len(inner):
        owners = components(mask, diagonal=True).labels_at(y[inner] - 1, x[inner])
        for number, owner in zip(inner.tolist(), owners.tolist(), strict=True):
            holes.setdefault(owner, []).append(number)
    for label, number in enumerate(np.flatnonzero(outer).tolist(), start=1):
        yield Outline(ring(number), tuple(ring(hole) for hole in holes.get(label, ())))


def _cells(mask: BoolArray, x: I32, y: I32) -> BoolArray:
    """Return the mask values at given cells, False outside the mask."""
    height, width = mask.shape
    out = (x < width) & (y < height)
    out[out] = mask[y[out], x[out]]
    return np.asarray(out)


def _corners(mask: BoolArray) -> tuple[I32, U8]:
    """Find the (n, 2) x, y of the corners, row by row, and mark points where cells only touch.

    Corners where two True cells only touch appear twice, marked 1 if the upper left cell is
    True and 2 if the upper right cell is; others are marked 0.
    """
    height, width = mask.shape
    found, marks = [np.zeros((0, 2), np.int32)], [np.zeros(0, np.uint8)]
    for lines in bands(height + 1):
        around = np.zeros((lines.stop - lines.start + 1, width + 2), dtype=np.uint8)
        low, high = max(0, lines.start - 1), min(height, lines.stop)
        around[low - lines.start + 1 : high - lines.start + 1, 1:-1] = mask[low:high]
        above, below = around[:-1], around[1:]
        total = above[:, :-1] + above[:, 1:] + below[:, :-1] + below[:, 1:]
        touching = (total == 2) & (above[:, :-1] == below[:, 1:])
        y, x = np.nonzero((total & 1).astype(bool) | touching)
        twice = touching[y, x]
        mark = np.where(twice, 2 - above[y, x], 0).astype(np.uint8)
        corners = np.stack([x, y + lines.start], axis=1).astype(np.int32)
        found.append(np.repeat(corners, 1 + twice, axis=0))
        marks.append(np.repeat(mark, 1 + twice))
    return np.concatenate(found), np.concatenate(marks)


def _upright(x: I32, crossing: U8) -> I32:
    """Find the other end of each corner's vertical edge.

    Where cells only touch, the ring turns around each of the False cells.
    """
    order = np.argsort(x, kind="stable").astype(np.int32)
    # of a corner that appears twice the first ends the edge above; in a row it ends the edge to the
    # left, so they change places where the ring turns from above to the right
    here = np.flatnonzero(crossing[order] == 1)[::2]
    order[here], order[here + 1] = order[here + 1], order[here]
    out = np.empty_like(order)
    out[order[::2]], out[order[1::2]] = order[1::2], order[::2]
    return out


def _walk_rings(upright: I32) -> tuple[I32, AnyArray]:
    """Return every other corner of each ring, ring by ring, and the end index of each ring.

    Corners 2 k and 2 k + 1 are the ends of a horizontal edge; the ring goes from the returned
    corner to the other end, then up or down.
    """
    follow = upright.data
    seen = bytearray(len(upright) // 2)
    steps, ends = array("i"), array("q")
    start = 0
    while (start := seen.find(0, start)) >= 0:
        at = 2 * start
        while not seen[at >> 1]:
            seen[at >> 1] = 1
            steps.append(at)
            at = follow[at ^ 1]
        ends.append(len(steps))
    return np.frombuffer(steps, dtype=np.int32), np.frombuffer(ends, dtype=np.int64)
