"""Geometry, stains, focus, distances: hand-worked values, second libraries, properties."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from skimage.filters import threshold_otsu

from mcp_servers.formats.geojson import feature, read_polygons, square, write_geojson
from mcp_servers.pathology.compute.distance import Border
from mcp_servers.pathology.compute.kernels import cell_layers
from mcp_servers.pathology.compute.survey import CELL_UM
from mcp_servers.pathology.compute.tissue import find_pen, find_tissue, otsu
from mcp_servers.pathology.compute.tumor import HOLE_UM2, clean_mask, zones
from mcp_servers.pathology.surroundings import coherence
from mcp_servers.slides.geometry import Polygon, make_grid, measure_coverage, rasterize
from sage.core.errors import InputError

masks = arrays(bool, st.tuples(st.integers(1, 24), st.integers(1, 24)))


@pytest.mark.parametrize("far", [1e5, 1e10, 1e300])
def test_outlines_far_beyond_the_slide_cover_what_they_cover_of_it(far: float) -> None:
    around = np.array([[-far, -far], [far, -far], [far, far], [-far, far]])
    assert rasterize([Polygon(around)], 4.0, (30, 40)).all()
    hole = np.array([[40.0, 40], [80, 40], [80, 80], [40, 80]])
    holed = rasterize([Polygon(around, (hole,))], 4.0, (30, 40))
    assert not holed[10:20, 10:20].any() and holed.sum() == 30 * 40 - 100
    assert not rasterize([Polygon(around + np.array([3 * far, 0]))], 4.0, (30, 40)).any()
    # a border that crosses the slide aslant stays where it is, x = y
    below = np.array([[-far, -far], [far, far], [-far, far]])
    mask = rasterize([Polygon(below)], 4.0, (40, 40))
    rows, columns = np.indices(mask.shape)
    assert mask[columns < rows - 1].all() and not mask[columns > rows + 1].any()


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 4000), height=st.integers(1, 4000), size=st.integers(16, 600),
    overlap=st.integers(0, 15),
)  # fmt: skip
def test_grid_tiles_lie_inside_and_never_twice(
    width: int, height: int, size: int, overlap: int
) -> None:
    corners = make_grid(width, height, size, size - overlap)
    assert len({tuple(c) for c in corners.tolist()}) == len(corners)
    if len(corners):
        assert (corners >= 0).all()
        assert (corners + size <= [width, height]).all()


def test_coverage_counts_mask_pixels_under_a_square() -> None:
    mask = np.zeros((10, 10), bool)
    mask[:, :5] = True
    corners = np.array([[0, 0], [40, 0], [80, 80]])
    assert measure_coverage(mask, corners, 20, 10).tolist() == [1.0, 0.5, 0.0]


@settings(max_examples=60, deadline=None)
@given(mask=masks, rows=st.integers(1, 24), um=st.sampled_from([1.0, 8.0]))
def test_signed_distance_by_rows_is_that_of_the_whole_by_opencv(
    mask: np.ndarray, rows: int, um: float
) -> None:
    border = Border(mask, cell_um=um)
    if mask.all() or not mask.any():
        assert (border.distance() == (-np.inf if mask.any() else np.inf)).all()
    found = np.concatenate([border.distance(slice(y, y + rows)) for y in range(0, len(mask), rows)])
    for inside in (False, True):
        kind = mask if inside else ~mask
        if kind.all():
            continue  # OpenCV knows no infinity
        expected = cv2.distanceTransform(kind.astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
        sign = -1 if inside else 1
        assert found[kind] == pytest.approx(sign * um * (expected[kind] - 0.5), abs=1e-4)
    (rows_, columns), own = np.s_[1:9, 2:7], np.ones_like(mask)[1:9, 2:7]
    if own.size:
        (there,) = border.measure_places([((slice(1, min(9, len(mask))), columns), own)])
        assert np.array_equal(there, found[rows_, columns].ravel())


@settings(max_examples=40, deadline=None)
@given(data=st.data(), band=st.floats(1, 200))
def test_zones_split_the_tissue_without_rest(data: st.DataObject, band: float) -> None:
    shape = (12, 12)
    tissue = data.draw(arrays(bool, shape))
    tumor = data.draw(arrays(bool, shape)) & tissue
    parts = zones(tumor, tissue, band)
    assert np.array_equal(sum(p.astype(int) for p in parts.values()), tissue.astype(int))
    assert np.array_equal(parts["Tumor"], tumor)


def test_only_gaps_that_tumor_encloses_are_filled() -> None:
    side = int((HOLE_UM2 / CELL_UM**2) ** 0.5)
    mask = np.ones((6 * side, 8 * side), bool)
    gaps = {
        "hole": np.s_[side : 2 * side - 2, side : 2 * side - 2],
        "large": np.s_[side : 2 * side + 2, 4 * side : 5 * side + 2],
        "notch": np.s_[-10:, side : side + 10],
        "corner": np.s_[:10, -10:],
    }
    for place in gaps.values():
        mask[place] = False
    for least in (0.0, HOLE_UM2, 3 * HOLE_UM2):  # how large a patch must be says nothing of holes
        filled = clean_mask(mask, least)
        assert filled[gaps["hole"]].all()
        assert [filled[gaps[name]].mean() < 0.2 for name in ("large", "notch", "corner")] == [
            True
        ] * 3  # smoothing rounds their corners
    assert not clean_mask(np.zeros((17, 17), bool), HOLE_UM2).any()
    speck = np.zeros((17, 17), bool)
    speck[4:12, 4:12] = True
    assert not clean_mask(speck, HOLE_UM2).any()


def test_otsu_agrees_with_scikit_image() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0.2, 0.05, 4000), rng.normal(0.8, 0.1, 2000)])
    assert otsu(values, 0, 1.5) == pytest.approx(threshold_otsu(values), abs=0.02)


def test_parallel_stripes_are_coherent_and_noise_is_not() -> None:
    stripes = np.zeros((200, 200, 3), np.uint8) + 240
    stripes[:, np.arange(200) % 12 < 6] = (200, 120, 170)
    noise = np.random.default_rng(0).integers(80, 240, (200, 200, 3)).astype(np.uint8)
    aligned, random = coherence(stripes, 0.5), coherence(noise, 0.5)
    assert aligned is not None and random is not None
    assert aligned > 0.9 > 0.4 > random
    assert coherence(np.full((50, 50, 3), 244, np.uint8), 0.5) is None


@pytest.mark.parametrize(
    ("color", "kept"),
    [((30, 120, 60), False), ((40, 60, 170), False), ((60, 160, 220), False), ((20, 20, 22), False),
     ((200, 30, 40), False), ((250, 235, 60), False), ((200, 90, 150), True)],
)  # fmt: skip
def test_ink_is_taken_off_and_tissue_is_not(color: tuple[int, int, int], kept: bool) -> None:
    image = np.full((200, 200, 3), 244, np.uint8)
    image[50:150, 50:150] = color
    assert find_tissue(image, 8.0).mask[100, 100] == kept


def test_geojson_rings_are_closed_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    hole = np.array([[4.0, 4.0], [6, 4], [6, 6], [4, 6]])
    outline = Polygon(square(0, 0, 10).exterior, (hole,), "Tumor")
    write_geojson(path, [feature(outline, measurements={"Area": float("nan")})])

    one = json.loads(path.read_text())["features"][0]
    for ring in one["geometry"]["coordinates"]:
        assert ring[0] == ring[-1] and len(ring) >= 4
    assert one["properties"]["objectType"] == "annotation"
    assert one["properties"]["classification"] == {"name": "Tumor", "color": [200, 0, 0]}
    ((back,), _) = read_polygons(path)
    assert (back.area, back.label) == (96.0, "Tumor")


@pytest.mark.parametrize(
    "text",
    [
        "no json", "[]", "3", '{"type":"Feature","geometry":{"type":"Point","coordinates":[1,2]}}',
        '{"type":"Polygon","coordinates":[[[0,0],[1,1]]]}',
        '{"type":"Polygon","coordinates":[[["a",0],[1,1],[2,2],[0,0]]]}',
        '{"type":"Polygon","coordinates":[[[0,0],[1e308,0],[1e308,1e308],[0,0]]]}',
    ],
)  # fmt: skip
def test_broken_geojson_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "roi.geojson"
    path.write_text(text)
    with pytest.raises(InputError, match=r"roi\.geojson"):
        read_polygons(path)


@settings(max_examples=40, deadline=None)
@given(
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    cells=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    seed=st.integers(0, 99),
)
def test_layers_of_cells_are_averages_by_area(
    size: tuple[int, int], cells: tuple[int, int], seed: int
) -> None:
    rows, columns = min(cells[0], size[0]), min(cells[1], size[1])
    rng = np.random.default_rng(seed)
    red, green, blue = rng.random((3, *size), dtype=np.float32)
    labels = rng.integers(0, 4, size, dtype=np.int32)
    tissue = rng.random(size) < 0.8
    found = cell_layers(red, green, blue, green, labels, tissue, 0.3, rows, columns)
    nuclear = (labels > 0) & tissue
    blood = (blue > 0.55 * green) & (green > 0.5) & (red < 0.2 * green)
    pink = (green > 0.12) & (red < 0.5 * green) & (labels == 0) & ~blood & tissue
    parts = [tissue, nuclear, red * nuclear, green * nuclear]
    parts += [red * tissue, green * tissue, (green < 0.3) & tissue, pink]
    # each pixel cut into rows x columns parts, so that every cell holds whole ones
    for layer, part in zip(found, parts, strict=True):
        fine = np.kron(np.asarray(part, dtype=float), np.ones((rows, columns)))
        wanted = fine.reshape(rows, size[0], columns, size[1]).mean(axis=(1, 3))
        assert layer == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("densities", "found"),
    [
        ((0.61, 0.61, 0.61), True),
        ((0.59, 0.59, 0.59), False),  # gray: too weak for ink
        ((0.70, 0.70, 0.94), True),
        ((0.70, 0.70, 0.95), False),  # one dye above the others: more than 1.35 times
        ((0.99, 0.70, 0.70), True),  # green ink: red 1.25 times green
    ],
)
def test_black_ink_is_strong_and_absorbs_all_colors_alike(
    densities: tuple[float, float, float], found: bool
) -> None:
    red, green, blue = (np.full((1, 1), value, np.float32) for value in densities)
    assert bool(find_pen(red, green, blue)[0, 0]) is found
