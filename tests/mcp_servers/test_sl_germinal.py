"""Germinal centers: the rule, planted ones found, what is merely pale not counted, abstention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tifffile

from benchmarks.simulate.scenes import render_scene
from mcp_servers.formats.geojson import feature, read_objects, square, write_geojson
from mcp_servers.measures.compute import compute
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import read_maps
from mcp_servers.pathology.compute.germinal import LIMITS, judge
from tests.mcp_servers.slide_tools import context, pyramid, run
from validation.simulate.slide import SlideTruth

MPP = 0.5

Painted = tuple[Path, SlideTruth]


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> Painted:
    """A painted slide with three aggregates, two with a germinal center; a seed of its own."""
    folder = tmp_path_factory.mktemp("germinal")
    places = [(240.0, 250.0, 130.0), (560.0, 260.0, 120.0), (400.0, 560.0, 110.0)]
    return folder, render_scene(
        folder / "P1.s1.tif", seed=411, size_px=1600, aggregates=places, germinal_centers=2
    )


SURE = {name: limit.sure for name, limit in LIMITS.items()}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_missed_by_little_is_doubtful_and_by_much_no_germinal_center(name: str) -> None:
    limit = LIMITS[name]
    step = 1e-6 if limit.higher else -1e-6
    assert judge(SURE) == ("lymphoid", "")
    assert judge(SURE | {name: limit.sure - step})[0] == "doubtful"
    assert judge(SURE | {name: limit.least})[0] == "doubtful"
    assert judge(SURE | {name: limit.least - step})[0] == "rejected"
    assert judge(SURE | {name: float("nan")})[0] == "rejected"


def test_planted_germinal_centers_are_found_with_their_size(painted: Painted) -> None:
    folder, truth = painted
    found = run(context(folder), "tls", slide="P1.s1.tif")
    planted = [aggregate for aggregate in truth.aggregates if aggregate.core]
    assert len(planted) == found["germinal_centers"] == 2
    assert found["count"] == 3
    assert found["doubtful_germinal_centers"] == 0
    by_place = {
        min(truth.aggregates, key=lambda a: np.hypot(a.x - row["x"], a.y - row["y"])): row
        for row in found["aggregates"]
    }
    for aggregate, row in by_place.items():
        assert row["germinal_centers"] == (1 if aggregate.core else 0)
        whole = np.pi * (aggregate.radius * MPP) ** 2
        assert row["area_um2"] == pytest.approx(whole, rel=0.15)
    area = sum(np.pi * (aggregate.core * MPP) ** 2 for aggregate in planted) / 1e6
    assert found["germinal_center_mm2"] == pytest.approx(area, rel=0.25)
    outlines = [
        thing
        for thing in read_objects(folder / "out" / found["geojson"]).objects
        if thing.label == "Germinal center"
    ]
    assert len(outlines) == 2
    for thing in outlines:
        x, y = thing.polygons[0].centroid
        assert min(np.hypot(x - a.x, y - a.y) for a in planted) < 30 / MPP


def test_they_are_objects_of_the_maps_and_of_the_language(painted: Painted) -> None:
    folder, truth = painted
    cells = str(truth.write_cells(folder / "cells.csv"))
    found = run(context(folder), "slide_maps", slide="P1.s1.tif", cells=cells)
    assert found["objects"] == {"tls": 3, "germinal_center": 2}
    maps = read_maps((folder / "out" / found["maps"]).parent)
    ratio = parse("pooled(ratio(objects.germinal_center, objects.tls, at_least=1))")
    assert compute(ratio, maps).value == pytest.approx(2 / 3)
    size = compute(parse("mean(size(objects.germinal_center, total))"), maps)
    planted = sum(np.pi * (aggregate.core * MPP) ** 2 for aggregate in truth.aggregates) / 1e6
    assert size.value == pytest.approx(planted, rel=0.25)


def test_what_is_merely_pale_is_no_germinal_center(painted: Painted, tmp_path: Path) -> None:
    """A lumen, a matrix without cells and a nest of tumor in the middle of the aggregates."""
    folder, truth = painted
    image = tifffile.imread(folder / "P1.s1.tif", level=0).copy()
    rng = np.random.default_rng(3)
    pale = ((243,) * 3, (214, 165, 205), (214, 165, 205))
    for aggregate, color in zip(truth.aggregates, pale, strict=True):
        core, center = 0.55 * aggregate.radius, (round(aggregate.x), round(aggregate.y))
        cv2.circle(image, center, round(core), color, -1)
    for x, y in np.argwhere(np.ones((40, 40))) * 38.0 - 780:
        if np.hypot(x, y) < core - 8:
            size = round(float(rng.normal(12, 1.2)))
            at = (round(aggregate.x + x), round(aggregate.y + y))
            cv2.circle(image, at, size, (120, 95, 165), -1, cv2.LINE_AA)
    pyramid(tmp_path / "s.tif", image)
    found = run(context(tmp_path), "tls", slide="s.tif")
    assert found["count"] >= 2
    assert found["germinal_centers"] == 0


def test_within_an_outlined_tumor_a_core_is_doubtful(painted: Painted) -> None:
    folder, truth = painted
    ctx = context(folder)
    write_geojson(folder / "tumor.geojson", [feature(square(0, 0, truth.width, "Tumor"))])
    found = run(ctx, "tls", slide="P1.s1.tif", tumor_regions="tumor.geojson")
    assert (found["germinal_centers"], found["doubtful_germinal_centers"]) == (0, 2)


def test_too_coarse_a_scan_is_not_searched_and_says_so(painted: Painted) -> None:
    folder, _ = painted
    found: dict[str, Any] = run(context(folder), "tls", slide="P1.s1.tif", at_mpp=1.2)
    assert found["germinal_centers"] is None
    assert found["germinal_center_mm2"] is None
    assert any("germinal centers" in warning for warning in found["warnings"])
    assert all(row["germinal_centers"] is None for row in found["aggregates"])
