"""Compiled loops: per-nucleus sums, flooding and distances."""

from __future__ import annotations

import numpy as np
from numba import njit

from mcp_servers.slides.arrays import F64, AnyArray

COLUMNS = ("n", "sx", "sy", "sxx", "syy", "sxy", "sv", "svv", "edge", "se")


@njit(cache=True, nogil=True)
def label_sums(labels: AnyArray, values: AnyArray, other: AnyArray, count: int) -> F64:
    """Compute sums per label (see `COLUMNS`); labels below 1 are background.

    `edge` counts pixel sides that border another label; `sv` sums `values` and `se` sums `other`.

    Parameters
    ----------
    labels : (height, width) integers
    values, other : (height, width)
    count : number of labels, including the background

    Returns
    -------
    Array of shape (count + 1, 10), with one column for each of `COLUMNS`.
    """
    out = np.zeros((count + 1, 10))
    height, width = labels.shape
    for y in range(height):
        for x in range(width):
            k = labels[y, x]
            if k < 1 or k > count:
                continue
            v = values[y, x]
            out[k, 0] += 1
            out[k, 1] += x
            out[k, 2] += y
            out[k, 3] += x * x
            out[k, 4] += y * y
            out[k, 5] += x * y
            out[k, 6] += v
            out[k, 7] += v * v
            out[k, 9] += other[y, x]
            if x == 0 or labels[y, x - 1] != k:
                out[k, 8] += 1
            if x == width - 1 or labels[y, x + 1] != k:
                out[k, 8] += 1
            if y == 0 or labels[y - 1, x] != k:
                out[k, 8] += 1
            if y == height - 1 or labels[y + 1, x] != k:
                out[k, 8] += 1
    return out


@njit(cache=True, nogil=True)
def grow(labels: AnyArray, allowed: AnyArray, order: AnyArray, steps: int) -> None:
    """Flood labels into `allowed` pixels in place, highest `order` first.

    This is a marker-based watershed over integer priorities 0..255 with one bucket queue per
    priority; each pixel is visited once, in O(pixels).

    Parameters
    ----------
    labels : (height, width) markers, 0 for none; modified
    allowed : (height, width) mask of pixels that labels may enter
    order : (height, width) priorities, 0 to 255
    steps : maximum growth of a label, in pixels
    """
    height, width = labels.shape
    head = np.full(256, -1, np.int32)
    tail = np.full(256, -1, np.int32)
    follow = np.full(height * width, -1, np.int32)
    for y in range(height):
        for x in range(width):
            if labels[y, x] > 0:
                p = y * width + x
                q = order[y, x]
                if head[q] < 0:
                    head[q] = p
                else:
                    follow[tail[q]] = p
                tail[q] = p
    level = 255
    while level >= 0:
        p = head[level]
        if p < 0:
            level -= 1
            continue
        head[level] = follow[p]
        if head[level] < 0:
            tail[level] = -1
        follow[p] = -1
        y = p // width
        x = p - y * width
        k = labels[y, x]
        for step in range(4):
            ny = y + (step == 1) - (step == 0)
            nx = x + (step == 3) - (step == 2)
            if ny < 0 or nx < 0 or ny >= height or nx >= width:
                continue
            if labels[ny, nx] != 0 or not allowed[ny, nx]:
                continue
            labels[ny, nx] = k
            q = min(order[ny, nx], level)
            n = ny * width + nx
            if head[q] < 0:
                head[q] = n
            else:
                follow[tail[q]] = n
            tail[q] = n
    return


FAR = 65535
"""Value used instead of a distance in a column without cells of the other kind."""


@njit(cache=True, nogil=True)
def column_distances(mask: AnyArray) -> AnyArray:
    """Compute each cell's distance along its column to the next cell of the other kind."""
    height, width = mask.shape
    out = np.empty((height, width), np.uint16)
    count = np.full(width, FAR, np.int32)
    for y in range(height):
        for x in range(width):
            if y > 0 and mask[y, x] != mask[y - 1, x]:
                count[x] = 1
            elif count[x] < FAR:
                count[x] += 1
            out[y, x] = count[x]
    count[:] = FAR
    for y in range(height - 2, -1, -1):
        for x in range(width):
            if mask[y, x] != mask[y + 1, x]:
                count[x] = 1
            elif count[x] < FAR:
                count[x] += 1
            if count[x] < out[y, x]:
                out[y, x] = count[x]
    return out


@njit(cache=True, nogil=True)
def row_distances(mask: AnyArray, beside: AnyArray) -> AnyArray:
    """Compute each cell's squared distance to the nearest of the other kind; -1 if none.

    `beside` contains rows of `column_distances`. The lower envelope of one parabola per column is
    found in each row, in integers (Meijster, Roerdink and Hesselink 2000), once for each kind of
    cell.
    """
    height, width = mask.shape
    out = np.full((height, width), -1, np.int64)
    place = np.empty(width, np.int64)
    start = np.empty(width, np.int64)
    base = np.empty(width, np.int64)
    for y in range(height):
        for kind in range(2):
            wanted = kind == 1
            count = 0
            needed = False
            for x in range(width):
                if mask[y, x] == wanted:
                    needed = True
                    break
            if not needed:
                continue
            for x in range(width):
                far = np.int64(0)
                if mask[y, x] == wanted:
                    far = np.int64(beside[y, x])
                    if far == FAR:
                        continue
                here = far * far
                begin = np.int64(0)
                while count > 0:
                    other = place[count - 1]
                    begin = 1 + (x * x - other * other + here - base[count - 1]) // (
                        2 * (x - other)
                    )
                    if begin > start[count - 1]:
                        break
                    count -= 1
                if count == 0:
                    begin = np.int64(0)
                if begin < width:
                    place[count], start[count], base[count] = x, begin, here
                    count += 1
            if count == 0:
                continue
            k = count - 1
            for x in range(width - 1, -1, -1):
                while start[k] > x:
                    k -= 1
                if mask[y, x] == wanted:
                    out[y, x] = (x - place[k]) ** 2 + base[k]
    return out
