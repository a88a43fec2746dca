"""A part of a slide, and values on a grid: against counting by hand, and what must not change."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from mcp_servers.measures.compute import compute
from mcp_servers.measures.edit import area_of, part_of, read_area
from mcp_servers.measures.formula import parse
from mcp_servers.measures.heat import Quantity, heat
from mcp_servers.measures.maps import (
    CellMap,
    ObjectMap,
    RegionMap,
    SlideMaps,
    multipolygon,
    shape_map,
    write_maps,
)
from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import context, run

SIDE = 2000.0
DENSITY = parse("pooled(density(cells.lymphoid))")


def slide(seed: int = 1, count: int = 4000, window: Any = None) -> SlideMaps:
    rng = np.random.default_rng(seed)
    cells = CellMap(rng.uniform(0, SIDE, count), rng.uniform(0, SIDE, count),
                    ("lymphoid", "other"), rng.integers(-1, 2, count))  # fmt: skip
    tumor = shapely.box(0, 0, SIDE / 2, SIDE)
    return SlideMaps(
        slide="s", patient="p", cells=cells, mpp=0.5,
        window=multipolygon([shapely.box(0, 0, SIDE, SIDE)]) if window is None else window,
        regions=shape_map(RegionMap, [tumor], ["tumor"], ["tumor", "rest"]),
        objects=shape_map(ObjectMap, [shapely.Point(10, 10), shapely.Point(1500.123, 1500.123)],
                          ["tls", "tls"]),
    )  # fmt: skip


def test_what_lies_in_a_part_is_what_is_counted_in_it() -> None:
    maps = slide()
    assert maps.cells is not None
    part = part_of(maps, area_of([np.array([[0, 0], [2000, 0], [2000, 1000], [0, 1000]])], 0.5))
    inside = (maps.cells.x_um < 1000) & (maps.cells.y_um < 500)
    assert part.cells is not None and len(part.cells) == inside.sum()
    assert part.area_um2 == pytest.approx(1000 * 500)
    assert part.objects is not None and len(part.objects) == 1
    assert part.regions is not None and part.regions.kinds == ("tumor", "rest")
    assert shapely.area(part.regions.of_kind("tumor")).sum() == pytest.approx(1000 * 500)
    own = (inside & (maps.cells.codes == 0)).sum() / 0.5
    assert compute(DENSITY, part).value == pytest.approx(own)


@given(st.integers(0, 50), st.floats(600, 1400), st.floats(600, 1400))  # none too small to count in
def test_parts_of_a_slide_add_up_to_it(seed: int, x: float, y: float) -> None:
    maps = slide(seed, 300)
    boxes = [shapely.box(0, 0, x, y), shapely.box(x, 0, SIDE, y),
             shapely.box(0, y, x, SIDE), shapely.box(x, y, SIDE, SIDE)]  # fmt: skip
    parts = [part_of(maps, multipolygon([box])) for box in boxes]
    assert maps.cells is not None
    assert sum(len(part.cells or ()) for part in parts) == len(maps.cells)
    assert sum(part.area_um2 or 0 for part in parts) == pytest.approx(maps.area_um2)
    counts = [compute(parse("pooled(count(objects.tls))"), part).value for part in parts]
    assert sum(value or 0 for value in counts) == 2


def test_a_part_without_tissue_is_refused() -> None:
    with pytest.raises(InputError):
        part_of(slide(), multipolygon([shapely.box(5000, 5000, 6000, 6000)]))


def test_the_tool_measures_within_a_file_of_regions(tmp_path: Path) -> None:
    write_maps(slide(), tmp_path / "maps")
    ring = [[0, 0], [2000, 0], [2000, 1000], [0, 1000], [0, 0]]
    region = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]},
              "properties": {}}  # fmt: skip
    (tmp_path / "drawn.geojson").write_text(json.dumps([region]))
    (tmp_path / "define.txt").write_text(DENSITY.formula + "\n")
    run(context(tmp_path), "measure_maps", maps="maps", definitions="define.txt",
        within="drawn.geojson")  # fmt: skip
    (values,) = (tmp_path / "out").rglob("values.jsonl")
    area, _ = read_area(tmp_path / "drawn.geojson", 0.5)
    expected = compute(DENSITY, part_of(slide(), area)).value
    assert json.loads(values.read_text())["value"] == pytest.approx(expected)
    with pytest.raises(InputError, match="pixel"):
        read_area(tmp_path / "drawn.geojson", None)


def test_values_on_the_grid_are_those_counted_by_hand() -> None:
    maps = slide()
    assert maps.cells is not None
    quantities: tuple[Quantity, ...] = ("density", "share")
    for quantity in quantities:
        found = heat(maps, quantity, "lymphoid", 250.0)
        assert len(found.values) == 64
        for (x, y), value in zip(found.corners, found.values, strict=True):
            near = (maps.cells.x_um >= x) & (maps.cells.x_um < x + 250)
            near &= (maps.cells.y_um >= y) & (maps.cells.y_um < y + 250)
            own = (near & (maps.cells.codes == 0)).sum()
            of = near.sum() if quantity == "share" else 0.25**2
            assert value == pytest.approx(own / of)
    few = heat(slide(count=60), "share", "lymphoid", 250.0)  # of few cells there is no share
    assert np.isnan(few.values).any()


@pytest.mark.parametrize(
    ("change", "asked", "said"),
    [
        ({"cells": None}, ("density", ""), "cells"),
        ({}, ("density", "nk_cell"), "nk_cell.*lymphoid"),
        ({}, ("share", ""), "type"),
        ({"window": None}, ("density", ""), "outline"),
        ({}, ("density", "", 1.0), "small"),
    ],
)
def test_a_map_of_values_that_cannot_be_made_says_why(
    change: dict[str, Any], asked: Any, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        heat(dataclasses.replace(slide(), **change), *asked)
