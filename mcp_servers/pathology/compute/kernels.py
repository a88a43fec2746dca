"""Compiled loops: per-nucleus sums in one pass over a label image."""

from __future__ import annotations

import numpy as np
from numba import njit

from mcp_servers.slides.arrays import F64, AnyArray

COLUMNS = ("n", "sx", "sy", "sxx", "syy", "sxy", "sv", "svv", "edge", "se")


@njit(cache=True, nogil=True)
def label_sums(labels: AnyArray, values: AnyArray, other: AnyArray, count: int) -> F64:
    """Sums per label (see `COLUMNS`); labels below 1 are background.

    `edge` counts sides of pixels that border another label; `sv` sums `values`, `se` `other`.
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
    """Flood labels into `allowed` pixels, deepest `order` first, in place.

    A marker-based watershed over integer priorities 0..255 with one bucket queue per priority:
    each pixel is visited once, in O(pixels).
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
