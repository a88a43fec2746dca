"""Compiled loops over labels and pixels, with a single pass instead of one per array operation.

Pixel values are float32 throughout, so that results equal those of the array expressions.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mcp_servers.slides.arrays import F32, F64, AnyArray

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
    """Compute each cell's squared distance to the nearest cell of the other kind; -1 if none.

    `beside` contains rows of `column_distances`. The lower envelope of a parabola per column
    is found in each row, in integers (Meijster, Roerdink and Hesselink 2000), once for each
    kind of cell.
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


@njit(cache=True, nogil=True)
def upper_part(density: AnyArray, start: float) -> tuple[AnyArray, AnyArray]:
    """Return a map of 1 where the density exceeds `start`, and a map of the density there.

    Both maps are 0 elsewhere.
    """
    height, width = density.shape
    limit = np.float32(start)
    above = np.zeros((height, width), np.float32)
    product = np.zeros((height, width), np.float32)
    for y in range(height):
        for x in range(width):
            if density[y, x] > limit:
                above[y, x] = 1
                product[y, x] = density[y, x]
    return above, product


@njit(cache=True, nogil=True)
def half_way(share: AnyArray, upper: AnyArray, every: AnyArray, start: float) -> F32:
    """Compute a threshold halfway between the means above and below `start`.

    The threshold is kept within 0.75 and 1.6 times `start`. `share` is the local mean of the
    first map from `upper_part`, `upper` of the second, and `every` of the density itself. If
    almost nothing is above `start`, the mean above it is assumed to be 1.5 times `start`.

    Parameters
    ----------
    share, upper, every : (height, width)
    start : a threshold for the whole image, in optical density

    Returns
    -------
    (height, width) thresholds.
    """
    height, width = share.shape
    out = np.empty((height, width), np.float32)
    unit, two = np.float32(1), np.float32(2)
    least, few, some = np.float32(0.02), np.float32(1e-6), np.float32(0.01)
    usual = np.float32(start * 1.5)
    low, high = np.float32(0.75 * start), np.float32(1.6 * start)
    for y in range(height):
        for x in range(width):
            part = share[y, x]
            below = (every[y, x] - upper[y, x]) / max(unit - part, least)
            top = upper[y, x] / max(part, few) if part > some else usual
            out[y, x] = min(max((top + below) / two, low), high)
    return out


@njit(cache=True, nogil=True)
def renumbered(labels: AnyArray, number: AnyArray, values: AnyArray) -> tuple[AnyArray, float]:
    """Renumber labels (0 drops a label), and return the contrast of the remaining labels.

    The contrast is the mean of `values` on the remaining labels minus that elsewhere, or 0 if
    either set is empty.
    """
    height, width = labels.shape
    out = np.empty((height, width), np.int32)
    inside, outside = 0.0, 0.0
    count = 0
    for y in range(height):
        for x in range(width):
            k = number[labels[y, x]]
            out[y, x] = k
            if k > 0:
                inside += values[y, x]
                count += 1
            else:
                outside += values[y, x]
    rest = height * width - count
    if count == 0 or rest == 0:
        return out, 0.0
    return out, inside / count - outside / rest


@njit(cache=True, nogil=True)
def cell_layers(
    red: AnyArray,
    green: AnyArray,
    blue: AnyArray,
    near: AnyArray,
    labels: AnyArray,
    tissue: AnyArray,
    gap_density: float,
    rows: int,
    columns: int,
) -> F32:
    """Average layers over the tissue pixels of each cell; the result is (8, rows, columns).

    The layers are tissue, nuclear, nuclear red, nuclear green, red, green, gap, pink. `red`,
    `green` and `blue` are optical densities, and `near` is green averaged over neighbors. Pink
    is tissue that looks like collagen: eosinophilic, neither nuclear nor blood. A pixel on a
    border between cells counts toward each by its share in that cell.

    Parameters
    ----------
    red, green, blue, near : (height, width)
    labels : (height, width), 0 outside nuclei
    tissue : (height, width)
    gap_density : optical density below which tissue is a gap
    """
    height, width = labels.shape
    limit = np.float32(gap_density)
    bluish, reddish, reddish_blood = np.float32(0.55), np.float32(0.5), np.float32(0.2)
    dense, dyed = np.float32(0.5), np.float32(0.12)
    out = np.zeros((8, rows + 1, columns + 1))
    line = np.zeros((columns + 1, 8))
    cells, shares = np.empty(width, np.int64), np.empty(width)
    for x in range(width):
        cells[x], shares[x] = _cell(x, columns, width)
    for y in range(height):
        line[:] = 0
        for x in range(width):
            if not tissue[y, x]:
                continue
            r, g, b = red[y, x], green[y, x], blue[y, x]
            k = labels[y, x]
            gap = near[y, x] < limit
            pink = False
            if k <= 0 and g > dyed and r < reddish * g:
                pink = not (b > bluish * g and g > dense and r < reddish_blood * g)
            for step in range(2):
                part = shares[x] if step == 0 else 1.0 - shares[x]
                if part <= 0:
                    break
                at = cells[x] + step
                line[at, 0] += part
                line[at, 4] += part * r
                line[at, 5] += part * g
                if k > 0:
                    line[at, 1] += part
                    line[at, 2] += part * r
                    line[at, 3] += part * g
                if gap:
                    line[at, 6] += part
                if pink:
                    line[at, 7] += part
        cell, share = _cell(y, rows, height)
        for layer in range(8):
            for c in range(columns):
                out[layer, cell, c] += share * line[c, layer]
                out[layer, cell + 1, c] += (1.0 - share) * line[c, layer]
    pixels = (height / rows) * (width / columns)
    averages: F32 = (out[:, :rows, :columns] / pixels).astype(np.float32)
    return averages


@njit(cache=True, nogil=True)
def _cell(at: int, cells: int, length: int) -> tuple[int, float]:
    """Return the cell in which pixel `at` of `length` begins, and the pixel's share in it."""
    cell = at * cells // length
    over = (at + 1) * cells - (cell + 1) * length  # of the pixel's `cells` parts
    return cell, 1.0 if over <= 0 else 1.0 - over / cells
