"""Array types shared between modules, and helpers for large arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

U8: TypeAlias = NDArray[np.uint8]
"""RGB (H, W, 3) or gray (H, W) image, 0-255."""
F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]


BAND = 128
"""Number of rows to process at a time in a grid as wide as a slide."""


def bands(rows: int) -> Iterator[slice]:
    """Iterate over all grid rows in slices of `BAND` rows."""
    return (slice(top, min(top + BAND, rows)) for top in range(0, rows, BAND))


def spread_over(mask: BoolArray, count: int, ends: bool = True) -> list[tuple[int, int]]:
    """Choose up to `count` evenly spaced True cells of a mask, and return their rows and columns.

    Cells are spaced in the mask's order; `ends` includes the first and the last cell.
    """
    passed = np.cumsum([np.count_nonzero(row) for row in mask], dtype=np.int64)
    total = int(passed[-1]) if len(passed) else 0
    if not total:
        return []
    count = min(count, total)
    picks = np.linspace(0, total - 1, count if ends else count + 2).astype(int)
    rows = np.searchsorted(passed, picks, side="right")
    out = []
    for pick, row in zip(picks, rows, strict=True):
        before = passed[row - 1] if row else 0
        out.append((int(row), int(np.flatnonzero(mask[row])[pick - before])))
    return out if ends else out[1:-1]


def median_of(parts: Callable[[], Iterable[F32]], empty: float) -> float:
    """Compute the median of non-negative float32 values that exceed memory; `empty` if none.

    `parts` is called twice and must return the same values each time. Non-negative floats
    sort in the order of their bits, so the first pass counts values by their upper 16 bits
    and the second keeps only the middle ones.
    """
    counts = np.zeros(1 << 16, dtype=np.int64)
    for part in parts():
        counts += np.bincount(_upper(part), minlength=1 << 16)
    total = int(counts.sum())
    if not total:
        return empty
    passed = np.cumsum(counts)
    low, high = np.searchsorted(passed, ((total - 1) // 2, total // 2), side="right")
    near = []
    for part in parts():
        upper = _upper(part)
        near.append(part[(upper >= low) & (upper <= high)])
    values = np.sort(np.concatenate(near))
    before = int(passed[low] - counts[low])
    return float(values[[(total - 1) // 2 - before, total // 2 - before]].mean(dtype=np.float32))


def _upper(values: F32) -> AnyArray:
    """Return the upper 16 bits of each number; -0.0 counts as 0."""
    return (np.ascontiguousarray(values) + np.float32(0)).view(np.uint32) >> 16
