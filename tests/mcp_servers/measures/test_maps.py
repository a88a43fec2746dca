"""Maps of a slide: what is written is read again, and what is broken is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_servers.measures.maps import (
    CellMap,
    Column,
    MapsOnDisk,
    ObjectMap,
    RegionMap,
    SlideMaps,
    list_maps,
    multipolygon,
    read_maps,
    shape_map,
    write_maps,
)
from mcp_servers.pathology.measure import _regions
from sage.core.errors import InputError


def some_maps(cells: int = 50, seed: int = 0) -> SlideMaps:
    rng = np.random.default_rng(seed)
    ring = shapely.Point(500, 500).buffer(200) - shapely.Point(500, 500).buffer(50)
    two = shapely.MultiPolygon([shapely.box(0, 0, 90, 100), shapely.box(900, 0, 990, 100)])
    return SlideMaps(
        slide="S1",
        patient="P1",
        window=multipolygon([shapely.box(0, 0, 1000, 1000)]),
        cells=CellMap(
            *rng.uniform(0, 1000, (2, cells)),
            ("lymphoid", "tumor", "never_seen"),
            rng.integers(-1, 2, cells),
            rng.dirichlet(np.ones(3), cells),
            {"area_um2": Column(rng.normal(40, 5, cells), "µm²")},
        ),
        objects=shape_map(
            ObjectMap,
            [shapely.Point(3.123456789, 4), shapely.box(1, 1, 9, 9)],
            ["tls", "germinal_center"],
            ["gland"],
        ),
        regions=shape_map(RegionMap, [ring, two], ["tumor", "stroma"]),
        mpp=0.2525,
        provenance={"cells": "nuclei 2.0.0"},
        outside_card=("stain outside the card",),
    )


@pytest.mark.parametrize("far", [1e308, -2e6, float("inf"), float("nan")])
def test_coordinates_that_no_slide_has_are_refused(far: float) -> None:
    at, none = np.array([far, 1.0]), np.zeros(2, dtype=np.int64)
    with pytest.raises(InputError, match="coordinate"):
        CellMap(at, np.ones(2), ("a",), none)
    if np.isfinite(far):
        with pytest.raises(InputError, match="coordinate"):
            shape_map(ObjectMap, [shapely.Point(far, 1), shapely.Point()], ["tls", "tls"], [])


def test_slides_are_chosen_over_the_whole_cohort_by_the_seed(tmp_path: Path) -> None:
    for n in range(40):
        maps = replace(some_maps(3), slide=f"S{n:02d}", patient=f"P{n:02d}")
        write_maps(maps, tmp_path / f"S{n:02d}")
    held = MapsOnDisk(tmp_path)
    chosen = [[int(maps.slide[1:]) for maps in held.spread(8, seed)] for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
    for slides in chosen:
        assert [slide // 5 for slide in slides] == list(range(8))
    assert len(held.spread(99, 0)) == len(held) == 40


def same(one: SlideMaps, other: SlideMaps) -> None:
    assert (one.slide, one.patient, one.mpp) == (other.slide, other.patient, other.mpp)
    assert one.outside_card == other.outside_card and one.provenance == other.provenance
    assert one.cells is not None and other.cells is not None
    np.testing.assert_array_equal(one.cells.points, other.cells.points)
    np.testing.assert_array_equal(one.cells.codes, other.cells.codes)
    np.testing.assert_array_equal(one.cells.probabilities, other.cells.probabilities)
    assert one.cells.types == other.cells.types
    for name, column in one.cells.columns.items():
        np.testing.assert_array_equal(column.values, other.cells.columns[name].values)
        assert column.unit == other.cells.columns[name].unit
    for mine, theirs in ((one.objects, other.objects), (one.regions, other.regions)):
        assert mine is not None and theirs is not None
        assert mine.kinds == theirs.kinds
        np.testing.assert_array_equal(mine.codes, theirs.codes)
        assert shapely.equals(mine.shapes, theirs.shapes).all()
    assert one.window.equals(other.window)


@settings(max_examples=8, deadline=None)
@given(cells=st.integers(0, 200), seed=st.integers(0, 10_000))
def test_maps_are_read_as_they_were_written(
    cells: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    maps = some_maps(cells, seed)
    same(maps, read_maps(write_maps(maps, tmp_path_factory.mktemp("maps"))))


def test_a_map_that_was_not_made_differs_from_an_empty_one(tmp_path: Path) -> None:
    none = read_maps(write_maps(SlideMaps("S", "P"), tmp_path / "none"))
    assert none.cells is None and none.objects is None and none.area_um2 is None
    empty = CellMap(np.zeros(0), np.zeros(0), ("b_cell",), np.zeros(0, np.int64))
    found = read_maps(write_maps(SlideMaps("S", "P", cells=empty), tmp_path / "empty"))
    assert found.cells is not None and found.cells.types == ("b_cell",) and len(found.cells) == 0


@pytest.mark.parametrize("name", ["cells.parquet", "objects.geojson", "window.geojson"])
def test_maps_that_were_tampered_with_are_refused(tmp_path: Path, name: str) -> None:
    folder = write_maps(some_maps(), tmp_path / "maps")
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises(InputError, match=name):
        read_maps(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=name):
        read_maps(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 2, "format"),
        ("unit", "px", "unit"),
        ("files", {"../../etc/passwd": "0"}, "file"),
        ("surprise", 1, "surprise"),
        ("mpp", -1, "mpp"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    folder = write_maps(some_maps(), tmp_path / "maps")
    manifest = json.loads((folder / "maps.json").read_text())
    (folder / "maps.json").write_text(json.dumps(manifest | {key: value}))
    with pytest.raises(InputError, match=message):
        read_maps(folder)


def test_an_interrupted_writing_leaves_no_maps(tmp_path: Path) -> None:
    cells = CellMap(np.zeros(1), np.zeros(1), ("Not A Name",), np.zeros(1, np.int64))
    with pytest.raises(InputError, match="types"):
        write_maps(SlideMaps("S", "P", cells=cells), tmp_path / "maps")
    with pytest.raises(InputError):
        list_maps(tmp_path)


def test_crossing_outlines_and_broken_numbers_are_refused() -> None:
    bow = shapely.Polygon([(0, 0), (10, 10), (10, 0), (0, 10)])
    with pytest.raises(InputError):
        shape_map(RegionMap, [bow], ["tumor"])
    assert multipolygon([bow]).area == pytest.approx(50)
    with pytest.raises(InputError):
        shape_map(RegionMap, [shapely.Point(1, 1)], ["tumor"])
    with pytest.raises(InputError, match="finite"):
        CellMap(np.array([np.nan]), np.zeros(1), ("a",), np.zeros(1, np.int64))
    with pytest.raises(InputError):
        CellMap(np.zeros(1), np.zeros(1), ("a",), np.ones(1, np.int64))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_slide_without_tumor_or_all_tumor_is_read_back(tmp_path: Path, share: float) -> None:
    window = shapely.MultiPolygon([shapely.box(0, 0, 100, 100)])
    tumor = [shapely.box(-1, -1, 101, 101)] if share else []
    regions = _regions(tumor, window)
    back = read_maps(write_maps(SlideMaps("s", "p", window, regions=regions), tmp_path / "s"))
    assert back.regions is not None
    assert back.regions.kinds == ("tumor", "rest")
    assert sum(shape.area for shape in back.regions.of_kind("tumor")) == 1e4 * share
    assert sum(shape.area for shape in back.regions.of_kind("rest")) == 1e4 * (1 - share)
