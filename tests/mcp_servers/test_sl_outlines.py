"""Outlines of masks: exact, one per region, with all holes; and what is spooled beside them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.path import Path as Drawn
from scipy import ndimage

from mcp_servers.formats.spool import TileSpool
from mcp_servers.slides.arrays import median_of
from mcp_servers.slides.geometry import Polygon, mask_polygons, rasterize, ring_area
from mcp_servers.slides.outlines import outlines

masks = st.tuples(st.integers(1, 12), st.integers(1, 12)).flatmap(lambda s: arrays(bool, s))


@settings(max_examples=150, deadline=None)
@given(mask=masks)
def test_each_region_has_one_outline_that_holds_its_cells_exactly(mask: np.ndarray) -> None:
    labels, count = ndimage.label(mask, np.ones((3, 3)))
    found = list(outlines(mask))
    assert len(found) == count
    gaps = ndimage.label(~np.pad(mask, 1))[1] - 1  # but for what surrounds the mask
    assert sum(len(item.holes) for item in found) == gaps
    for number, entry in enumerate(found, start=1):
        area = ring_area(entry.exterior) - sum(ring_area(hole) for hole in entry.holes)
        assert area == (labels == number).sum()
        for ring in (entry.exterior, *entry.holes):
            steps = np.diff(np.vstack([ring, ring[:1]]), axis=0) != 0
            assert (steps.sum(axis=1) == 1).all()  # along the edges of cells
            assert (steps[:, 0] != steps[:, 1]).all() and (steps[0] != steps[-1]).all()  # corners


@settings(max_examples=100, deadline=None)
@given(mask=masks, scale=st.sampled_from([1.0, 3.5, 16.0]))
def test_outlines_drawn_again_are_the_mask(mask: np.ndarray, scale: float) -> None:
    assert (rasterize(mask_polygons(mask, scale), scale, mask.shape) == mask).all()


@settings(max_examples=100, deadline=None)
@given(
    points=st.lists(
        st.tuples(*[st.floats(-30, 30).map(lambda v: round(v, 2))] * 2), min_size=3, max_size=9
    )
)
@example(points=[(2.0, 2.0), (2.0, 1.0), (1.0, 1.0)])
@example(points=[(0.0, 0.0), (0.0, 0.0), (3.0, 3.0)])
def test_a_ring_is_drawn_by_the_centers_it_holds(points: list[tuple[float, float]]) -> None:
    ring = np.array(points)
    drawn = rasterize([Polygon(ring)], 2.0, (12, 14))
    y, x = np.indices(drawn.shape)
    centers = np.stack([x, y], axis=-1).reshape(-1, 2) * 2.0 + 1.0
    # matplotlib's rule is even-odd too, but it decides points on an edge in its own way
    closed = np.vstack([ring, ring[:1]])
    sure = shapely.distance(shapely.points(centers), shapely.LineString(closed)) > 1e-6
    assert (drawn.reshape(-1) == Drawn(closed).contains_points(centers))[sure].all()


def test_regions_in_the_holes_of_others_keep_their_own_holes() -> None:
    mask = np.zeros((21, 21), bool)
    for inset in range(0, 10, 2):
        mask[inset : 21 - inset, inset : 21 - inset] = True
        mask[inset + 1 : 20 - inset, inset + 1 : 20 - inset] = False
    found = mask_polygons(mask, 2.0, origin=(5.0, 7.0), label="ring")
    assert len(found) == 5 and all(len(item.holes) == 1 for item in found)
    assert [item.exterior.min(axis=0).tolist() for item in found[:2]] == [[5, 7], [9, 11]]
    assert sum(item.area for item in found) == 4 * mask.sum()


def test_an_outline_as_wide_as_the_mask_takes_no_image_of_it() -> None:
    mask = np.ones((3000, 3000), bool)
    mask[1000:1100, 200:2900] = False
    tracemalloc.start()
    (only,) = outlines(mask)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(only.holes) == 1
    assert peak < 0.6 * mask.size


@settings(max_examples=100, deadline=None)
@given(
    values=arrays(
        np.float32, st.integers(1, 60), elements=st.floats(0, 1000, width=32).map(abs)
    ),
    at=st.integers(0, 60),
)  # fmt: skip
def test_the_median_in_two_passes_is_the_median(values: np.ndarray, at: int) -> None:
    parts = [values[:at], values[at:]]
    assert median_of(lambda: iter(parts), -1.0) == float(np.median(values))
    assert median_of(lambda: iter(()), -1.0) == -1.0


@settings(max_examples=50, deadline=None)
@given(
    edits=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1), st.integers(1, 255)),
        max_size=40,
    ),
    held=st.integers(1, 5),
)
def test_tiles_come_back_from_the_file(edits: list[tuple[int, ...]], held: int) -> None:
    spool, known = TileSpool(2, 4, held=held), np.zeros((4, 3, 2, 4, 4), np.uint8)
    for row, column, layer, value in edits:
        spool.edit((row, column))[layer, row] += np.uint8(value)
        known[row, column, layer, row] += np.uint8(value)
        assert spool.nbytes <= held * 32
    written = {edit[:2] for edit in edits}
    assert set(spool) == written and len(spool) == len(written)
    for row in range(4):
        for column in range(3):
            for layer in range(2):
                found = spool.read((row, column), layer, 1, 4)
                if (row, column) not in written:
                    assert found is None
                else:
                    assert (found == known[row, column, layer, 1:4]).all()


def test_the_file_of_the_tiles_has_no_name_and_comes_only_when_needed(tmp_path: Path) -> None:
    spool = TileSpool(1, 2, held=2, folder=tmp_path / "new")
    for column in range(2):
        spool.edit((0, column))[:] = 1
    assert not (tmp_path / "new").exists()
    spool.edit((0, 2))[:] = 1
    assert (tmp_path / "new").is_dir() and not list((tmp_path / "new").iterdir())
    with pytest.raises(ValueError, match="read-only"):
        spool.read((0, 0), 0, 0, 2)[:] = 2  # type: ignore[index]
