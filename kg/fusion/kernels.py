"""Compiled inner loops (numba, cached on disk): block scans of the cosine search."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray


@numba.njit(cache=True, nogil=True)
def _count(block: Any, low: Any, top: int, start: int, triangle: bool) -> int:
    n = 0
    for a in range(block.shape[0]):
        for b in range(block.shape[1]):
            if block[a, b] >= low and (not triangle or start + b > top + a):
                n += 1
    return n


@numba.njit(cache=True, nogil=True)
def _fill(block: Any, low: Any, top: int, start: int, triangle: bool, i: Any, j: Any) -> None:
    n = 0
    for a in range(block.shape[0]):
        for b in range(block.shape[1]):
            if block[a, b] >= low and (not triangle or start + b > top + a):
                i[n] = top + a
                j[n] = start + b
                n += 1


def scan_block(
    block: NDArray[np.float32], low: np.float32, top: int, start: int, triangle: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Where a block of a cosine matrix reaches a bound, as rows and columns of the whole matrix.

    Parameters
    ----------
    block : (r, c) products of r rows with c columns, neither 0
    low : smallest product that is reported
    top, start : row and column of the whole matrix at which the block begins
    triangle : report only entries above the diagonal of the whole matrix (column > row)

    Returns
    -------
    (k,) rows and (k,) columns, in the block's row order.
    """
    if block.max() < low:  # vectorized, and true of most blocks
        empty = np.zeros(0, dtype=np.int32)
        return empty, empty
    n = _count(block, low, top, start, triangle)
    i = np.empty(n, dtype=np.int32)
    j = np.empty(n, dtype=np.int32)
    _fill(block, low, top, start, triangle, i, j)
    return i, j


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _dot32(a: Any, b: Any) -> Any:
    s = np.float32(0.0)
    for k in range(a.shape[0]):
        s += a[k] * b[k]
    return s


@numba.njit(cache=True, nogil=True)
def _dot64(a: Any, b: Any) -> float:
    s = 0.0
    for k in range(a.shape[0]):
        s += np.float64(a[k]) * np.float64(b[k])
    return s


@numba.njit(cache=True, nogil=True)
def _recheck(
    left: Any, right: Any, i: Any, j: Any, tau: float, close: float, keep: Any, out: Any
) -> None:
    for n in range(i.shape[0]):
        c = _dot32(left[i[n]], right[j[n]])
        if c < tau - close:
            keep[n] = False
            continue
        exact = _dot64(left[i[n]], right[j[n]])
        keep[n] = exact >= tau
        out[n] = exact


def recheck(
    left: NDArray[np.float32],
    right: NDArray[np.float32],
    i: NDArray[np.int32],
    j: NDArray[np.int32],
    tau: float,
    close: float,
) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
    """Which pairs reach tau, and their cosines, the close and the kept ones in float64.

    Parameters
    ----------
    left, right : (n, d) and (m, d) rows of unit length
    i, j : (k,) the pairs, as rows of `left` and of `right`
    tau : threshold in (0, 1]
    close : what float32 may be off by; a pair further than this below tau is refused without
        float64

    Returns
    -------
    (k,) whether the cosine in float64 is at least tau, and (k,) the cosines; those refused without
    float64 are 0.
    """
    keep = np.empty(len(i), dtype=np.bool_)
    out = np.zeros(len(i), dtype=np.float32)
    _recheck(left, right, i, j, tau, close, keep, out)
    return keep, out
