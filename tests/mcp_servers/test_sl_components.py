"""Regions of a mask as runs are those of OpenCV's label image."""

from __future__ import annotations

import tracemalloc

import cv2
import numpy as np
import pytest

from mcp_servers.slides import arrays
from mcp_servers.slides.arrays import I32, BoolArray
from mcp_servers.slides.components import components

pytest.importorskip("cv2")


def masks() -> list[BoolArray]:
    """Noise of several densities, smooth shapes, a spiral, all, nothing, one row, one column."""
    rng = np.random.default_rng(3)
    noise = [rng.random((67, 91)) < share for share in (0.02, 0.3, 0.5, 0.59, 0.7, 0.97)]
    smooth = [
        np.asarray(cv2.GaussianBlur(rng.standard_normal((120, 80)), (0, 0), sigma) > 0)
        for sigma in (1.0, 2.5, 6.0)
    ]
    spiral = np.zeros((41, 41), dtype=bool)
    for k in range(0, 20, 4):  # arms that only meet far away from where they start
        spiral[k : 41 - k, k] = spiral[40 - k, k : 41 - k] = spiral[k : 41 - k, 40 - k] = True
        spiral[k, k + 2 : 41 - k] = True
        spiral[k + 2, k + 2 : k + 5] = True
    odd = [np.zeros((5, 7), bool), np.ones((9, 4), bool), rng.random((1, 50)) < 0.5]
    return [*noise, *smooth, spiral, *odd, rng.random((50, 1)) < 0.5, np.eye(30, dtype=bool)]


def by_first_cell(labels: I32) -> I32:
    """A label image numbered in the order of first cells."""
    values, first = np.unique(labels.ravel(), return_index=True)
    order = [v for _, v in sorted(zip(first, values, strict=True)) if v]
    number = np.zeros(int(labels.max()) + 1, dtype=np.int32)
    number[order] = np.arange(1, len(order) + 1)
    return np.asarray(number[labels], dtype=np.int32)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("band", [1, 256])
def test_regions_are_those_of_the_label_image_of_the_whole(
    diagonal: bool, value: bool, band: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "BAND", band)
    for mask in masks():
        own = (mask == value).astype(np.uint8)
        count, labels = cv2.connectedComponents(own, connectivity=8 if diagonal else 4)
        expected = by_first_cell(labels)
        found = components(mask, diagonal=diagonal, value=value)
        assert found.count == count - 1
        assert np.array_equal(found.of_cells(), expected[own > 0])
        assert np.array_equal(found.areas()[1:], np.bincount(expected.ravel())[1:])
        for top in range(0, len(mask), 13):
            rows = slice(top, top + 13)
            assert np.array_equal(found.of_cells(rows), expected[rows][own[rows] > 0])
        pieces = found.pieces()
        rim = [expected[0], expected[-1], expected[:, 0], expected[:, -1]]
        touching = np.isin(np.arange(count), np.concatenate(rim)) & (np.arange(count) > 0)
        assert np.array_equal(found.on_border(), touching)
        for label in range(1, count):
            rows, columns = pieces.box(label)
            cells = expected == label
            assert np.array_equal(pieces.cells(label), cells[rows, columns])
            assert cells.sum() == cells[rows, columns].sum()
            assert cells.any(axis=1)[[rows.start, rows.stop - 1]].all()
            assert cells.any(axis=0)[[columns.start, columns.stop - 1]].all()


def test_chosen_regions_are_filled_kept_and_measured() -> None:
    rng = np.random.default_rng(8)
    mask = np.asarray(cv2.GaussianBlur(rng.standard_normal((90, 70)), (0, 0), 1.5) > 0.02)
    values = rng.random(mask.shape).astype(np.float32)
    found = components(mask)
    labels = np.zeros(mask.shape, dtype=np.int32)
    labels[mask] = found.of_cells()
    largest = [0.0] + [float(values[labels == k].max()) for k in range(1, found.count + 1)]
    assert found.largest(values[mask]).tolist() == largest
    chosen = np.asarray(found.areas() >= 20)
    assert np.array_equal(found.mask(chosen), chosen[labels])
    erased = mask.copy()
    found.fill(erased, chosen, False)
    assert np.array_equal(erased, mask & ~chosen[labels])
    again, direct = found.keep_regions(chosen), components(chosen[labels])
    assert again.count == direct.count == int(chosen.sum())
    assert np.array_equal(again.of_cells(), direct.of_cells())


def test_memory_follows_the_runs_not_the_area() -> None:
    mask = np.zeros((4000, 4000), dtype=bool)
    mask[100:3900, 200:3000] = True
    mask[1000:1200, 500:900] = False
    components(mask[:8, :8])  # compiled before memory is counted
    tracemalloc.start()
    found = components(mask)
    assert found.count == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < mask.size  # a label image has four bytes for each cell
