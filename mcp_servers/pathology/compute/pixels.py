"""Compiled loops over pixels: one pass instead of one per array operation.

Values are float32 throughout, so that results equal those of the array expressions.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mcp_servers.slides.arrays import F32, AnyArray


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

    The threshold is kept within 0.75 and 1.6 times `start`. `share` is the local mean of
    `upper_part`'s first map, `upper` of its second, and `every` of the density itself. If hardly
    anything is above `start`, the mean above it is assumed to be 1.5 times `start`.

    Parameters
    ----------
    share, upper, every : (height, width)
    start : a threshold of the whole image, in optical density

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
    epithelial: AnyArray,
    tissue: AnyArray,
    gap_density: float,
    rows: int,
    columns: int,
) -> F32:
    """Average layers over the tissue pixels of each cell; the result is (9, rows, columns).

    The layers are tissue, nuclear, epithelial, nuclear red, nuclear green, red, green, gap, pink.
    `red`, `green` and `blue` are optical densities, `near` is green averaged over neighbors, and
    `epithelial` flags labels. Pink is tissue that looks like collagen: eosinophilic, neither
    nuclear nor blood. A pixel on a border between cells counts toward each by the share of it in
    that cell.

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
    out = np.zeros((9, rows + 1, columns + 1))
    line = np.zeros((columns + 1, 9))
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
                line[at, 5] += part * r
                line[at, 6] += part * g
                if k > 0:
                    line[at, 1] += part
                    line[at, 3] += part * r
                    line[at, 4] += part * g
                    if epithelial[k]:
                        line[at, 2] += part
                if gap:
                    line[at, 7] += part
                if pink:
                    line[at, 8] += part
        cell, share = _cell(y, rows, height)
        for layer in range(9):
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
