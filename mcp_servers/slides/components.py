"""Connected regions of a mask as runs along its rows, without a label image.

A label image takes four bytes per cell of the mask, whatever its content; runs take sixteen bytes
for each stretch of True cells in a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcp_servers.slides.arrays import F64, I32, I64, AnyArray, BoolArray, bands


@dataclass(frozen=True, slots=True)
class Components:
    """Regions 1 to `count`, numbered by their first cell in row order.

    Run k covers cells `starts[k]` to `stops[k]` (exclusive) of row `rows[k]` and belongs to
    region `labels[k]`. The runs are in the order of the mask's cells.
    """

    shape: tuple[int, int]
    rows: I32
    starts: I32
    stops: I32
    labels: I32
    count: int

    def areas(self) -> I64:
        """Count the cells in each region, with shape (count + 1,); 0 for the background."""
        lengths = self.stops - self.starts
        return np.bincount(self.labels, lengths, self.count + 1).astype(np.int64)

    def on_border(self) -> BoolArray:
        """Return a (count + 1,) mask of the regions that touch the mask's border."""
        height, width = self.shape
        at = (self.rows == 0) | (self.rows == height - 1) | (self.starts == 0)
        at |= self.stops == width
        out = np.zeros(self.count + 1, dtype=bool)
        out[self.labels[at]] = True
        return out

    def of_cells(self, rows: slice = slice(None)) -> I32:
        """Return the region of each True cell in some mask rows, in the order of `mask[rows]`."""
        own = self._select_runs(rows)
        return np.repeat(self.labels[own], (self.stops - self.starts)[own])

    def labels_at(self, rows: AnyArray, columns: AnyArray) -> I32:
        """Return the region of each True cell at the given rows and columns."""
        step = np.int64(self.shape[1] + 1)
        begin = self.rows * step + self.starts
        return self.labels[np.searchsorted(begin, rows * step + columns, side="right") - 1]

    def largest(self, values: AnyArray, rows: slice = slice(None)) -> F64:
        """Compute the maximum of `values` per region, with shape (count + 1,); 0 if there is none.

        `values` has one entry for each True cell in some rows of the mask.
        """
        out = np.zeros(self.count + 1)
        own = self._select_runs(rows)
        lengths = (self.stops - self.starts)[own].astype(np.int64)
        if len(lengths):
            first = np.cumsum(lengths) - lengths
            np.maximum.at(out, self.labels[own], np.maximum.reduceat(values, first))
        return out

    def fill(self, mask: AnyArray, chosen: BoolArray, value: bool) -> None:
        """Set the cells of the `chosen` regions in a C-contiguous mask, in place.

        `chosen` is a mask of shape (count + 1,).
        """
        wanted = np.flatnonzero(chosen[self.labels])
        width = self.shape[1]
        for part in np.array_split(wanted, len(wanted) // 100_000 + 1):
            start = self.rows[part].astype(np.int64) * width + self.starts[part]
            mask.reshape(-1)[spread(start, self.stops[part] - self.starts[part])] = value

    def mask(self, chosen: BoolArray) -> BoolArray:
        """Return a mask with the cells of the `chosen` regions, a mask of shape (count + 1,)."""
        out = np.zeros(self.shape, dtype=bool)
        self.fill(out, chosen, True)
        return out

    def keep_regions(self, chosen: BoolArray) -> Components:
        """Keep only the `chosen` regions, a mask of shape (count + 1,), renumbered in order."""
        number = np.zeros(self.count + 1, dtype=np.int32)
        number[chosen] = np.arange(1, int(chosen.sum()) + 1)
        own = number[self.labels] > 0
        return Components(
            self.shape,
            self.rows[own],
            self.starts[own],
            self.stops[own],
            number[self.labels[own]],
            int(chosen.sum()),
        )

    def pieces(self) -> Pieces:
        """Return the regions with their bounding boxes."""
        return Pieces(self)

    def _select_runs(self, rows: slice) -> slice:
        top, bottom, _ = rows.indices(self.shape[0])
        return slice(*np.searchsorted(self.rows, (top, bottom)).tolist())


class Pieces:
    """Regions of a `Components` object, each in its own bounding box."""

    def __init__(self, of: Components) -> None:
        self._of = of
        self._order = np.argsort(of.labels, kind="stable")
        self._first = np.searchsorted(of.labels[self._order], np.arange(1, of.count + 2))
        begin = self._first[:-1]
        if of.count:
            self._left = np.minimum.reduceat(of.starts[self._order], begin)
            self._right = np.maximum.reduceat(of.stops[self._order], begin)
            self._top = of.rows[self._order][begin]
            self._bottom = of.rows[self._order][self._first[1:] - 1] + 1

    def box(self, label: int) -> tuple[slice, slice]:
        """Return the rows and columns of region `label`'s bounding box."""
        k = label - 1
        return (
            slice(int(self._top[k]), int(self._bottom[k])),
            slice(int(self._left[k]), int(self._right[k])),
        )

    def cells(self, label: int) -> BoolArray:
        """Return a mask of the region's own cells within its bounding box."""
        rows, columns = self.box(label)
        own = self._order[self._first[label - 1] : self._first[label]]
        of, width = self._of, columns.stop - columns.start
        out = np.zeros((rows.stop - rows.start, width), dtype=bool)
        start = (of.rows[own] - rows.start).astype(np.int64) * width + of.starts[own]
        out.reshape(-1)[spread(start - columns.start, of.stops[own] - of.starts[own])] = True
        return out


def components(mask: AnyArray, *, diagonal: bool = False, value: bool = True) -> Components:
    """Find the connected regions of mask cells that equal `value`.

    With `diagonal`, cells that touch at a corner are connected (8 neighbors, else 4).
    """
    found = [_runs(mask[part], part.start, value) for part in bands(len(mask))]
    rows, starts, stops = (np.concatenate([part[i] for part in found]) for i in range(3))
    del found
    first = _join_runs(rows, starts, stops, mask.shape[1], int(diagonal))
    known, labels = np.unique(first, return_inverse=True)
    shape = (mask.shape[0], mask.shape[1])
    return Components(shape, rows, starts, stops, (labels + 1).astype(np.int32), len(known))


def _runs(band: AnyArray, top: int, value: bool) -> tuple[I32, I32, I32]:
    """Find the row, start and stop of each run in a band of mask rows."""
    height, width = band.shape
    padded = np.zeros((height, width + 2), dtype=bool)
    padded[:, 1:-1] = band if value else np.logical_not(band)
    at = np.flatnonzero(padded[:, 1:] != padded[:, :-1])  # in and out in turn, all out at row ends
    row, column = np.divmod(at, width + 1)
    rows, starts, stops = row[::2] + top, column[::2], column[1::2]
    return rows.astype(np.int32), starts.astype(np.int32), stops.astype(np.int32)


def _join_runs(rows: I32, starts: I32, stops: I32, width: int, reach: int) -> I32:
    """Find the first run to which each run is connected, through runs in neighboring rows."""
    begin = rows.astype(np.int64) * (width + 3) + starts
    end = rows.astype(np.int64) * (width + 3) + stops
    # runs of the previous row that end after this run begins and begin before it ends
    low = np.searchsorted(end, begin - (width + 3) - reach, side="right")
    high = np.searchsorted(begin, end - (width + 3) + reach, side="left")
    del begin, end
    beside = np.maximum(high - low, 0)
    above = spread(low, beside).astype(np.int32)
    below = np.repeat(np.arange(len(rows), dtype=np.int32), beside)
    first = np.arange(len(rows), dtype=np.int32)
    while True:  # each group joins the earliest beside it; few rounds, as groups at least halve
        group, other = first[above], first[below]
        apart = group != other
        if not apart.any():
            return first
        above, below, group, other = above[apart], below[apart], group[apart], other[apart]
        np.minimum.at(first, np.maximum(group, other), np.minimum(group, other))
        while not np.array_equal(further := first[first], first):
            first = further


def spread(starts: I64, lengths: AnyArray) -> I64:
    """Concatenate ranges of integers, given the start and length of each."""
    ends = np.cumsum(lengths, dtype=np.int64)
    offset = np.repeat(starts - (ends - lengths), lengths)
    return np.asarray(offset + np.arange(len(offset)), dtype=np.int64)
