"""Germinal centers: the rule, planted ones found, what is merely pale not counted, abstention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from benchmarks.simulate.scenes import render_scene
from mcp_servers.formats.geojson import read_objects
from mcp_servers.measures.compute import compute
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import read_maps
from mcp_servers.pathology.compute.germinal import LIMITS, judge
from tests.mcp_servers.slide_tools import context, pyramid, run, shared
from validation.simulate.slide import SlideTruth

MPP = 0.5


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SlideTruth]:
    """A painted slide with four aggregates, two with a germinal center; a seed of its own."""
    folder = tmp_path_factory.mktemp("germinal")
    path = folder / "P1.s1.tif"
    return folder, render_scene(path, seed=411, size_px=2600, aggregates=4, germinal_centers=2)


SURE = {name: limit.sure for name, limit in LIMITS.items()}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_missed_by_little_is_doubtful_and_by_much_no_germinal_center(name: str) -> None:
    limit = LIMITS[name]
    step = 1e-6 if limit.higher else -1e-6
    assert judge(SURE) == ("lymphoid", "")
    assert judge(SURE | {name: limit.sure - step})[0] == "doubtful"
    assert judge(SURE | {name: limit.least})[0] == "doubtful"
    call, reason = judge(SURE | {name: limit.least - step})
    assert call == "rejected"
    assert limit.what in reason


def test_what_could_not_be_measured_is_no_germinal_center() -> None:
    assert judge(SURE | {"paleness": float("nan")})[0] == "rejected"


def test_planted_germinal_centers_are_found_with_their_size(
    painted: tuple[Path, SlideTruth],
) -> None:
    folder, truth = painted
    found = run(context(folder), "tls", slide="P1.s1.tif")
    planted = [aggregate for aggregate in truth.aggregates if aggregate.core]
    assert len(planted) == found["germinal_centers"] == 2
    assert found["count"] == 4
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
        for thing in read_objects(folder / "out" / found["geojson"])
        if thing.label == "Germinal center"
    ]
    assert len(outlines) == 2
    for thing in outlines:
        x, y = thing.polygons[0].centroid
        assert min(np.hypot(x - a.x, y - a.y) for a in planted) < 30 / MPP


def test_they_are_objects_of_the_maps_and_of_the_language(painted: tuple[Path, SlideTruth]) -> None:
    folder, truth = painted
    found = run(context(folder), "slide_maps", slide="P1.s1.tif")
    assert found["objects"] == {"tls": 4, "germinal_center": 2}
    maps = read_maps((folder / "out" / found["maps"]).parent)
    ratio = parse("pooled(ratio(objects.germinal_center, objects.tls, at_least=1))")
    assert compute(ratio, maps).value == 0.5
    size = compute(parse("mean(size(objects.germinal_center, total))"), maps)
    planted = sum(np.pi * (aggregate.core * MPP) ** 2 for aggregate in truth.aggregates) / 1e6
    assert size.value == pytest.approx(planted, rel=0.25)


def turned(image: NDArray[np.uint8], how: str) -> NDArray[np.uint8]:
    """The image mirrored, turned or with glass around it."""
    if how == "glass":
        return np.pad(image, ((300, 172), (228, 420), (0, 0)), constant_values=244)
    return np.ascontiguousarray(image[:, ::-1] if how == "mirrored" else np.rot90(image))


@pytest.mark.parametrize("how", ["mirrored", "turned", "glass"])
def test_mirroring_turning_and_glass_change_no_count(
    painted: tuple[Path, SlideTruth], tmp_path: Path, how: str
) -> None:
    folder, _ = painted
    image = tifffile.imread(folder / "P1.s1.tif", level=0)
    pyramid(tmp_path / "s.tif", turned(image, how))
    found = run(context(tmp_path), "tls", slide="s.tif")
    assert (found["count"], found["germinal_centers"]) == (4, 2)


def with_cores(folder: Path, truth: SlideTruth, what: str) -> NDArray[np.uint8]:
    """The slide with something else in place of its germinal centers."""
    import cv2

    image = tifffile.imread(folder / "P1.s1.tif", level=0).copy()
    rng = np.random.default_rng(3)
    for aggregate in (a for a in truth.aggregates if a.core):
        center = (round(aggregate.x), round(aggregate.y))
        glass = what == "lumen"
        cv2.circle(
            image, center, round(aggregate.core), (243,) * 3 if glass else (214, 165, 205), -1
        )
        if what == "nest of tumor":
            for x in np.arange(-aggregate.core, aggregate.core, 19 / MPP):
                for y in np.arange(-aggregate.core, aggregate.core, 19 / MPP):
                    if np.hypot(x, y) < aggregate.core - 8:
                        at = (round(aggregate.x + x), round(aggregate.y + y))
                        size = round(float(rng.normal(6.0, 0.6)) / MPP)
                        cv2.circle(image, at, size, (120, 95, 165), -1, cv2.LINE_AA)
    return image


@pytest.mark.parametrize("what", ["lumen", "nest of tumor", "matrix without cells"])
def test_what_is_merely_pale_is_no_germinal_center(
    painted: tuple[Path, SlideTruth], tmp_path: Path, what: str
) -> None:
    folder, truth = painted
    pyramid(tmp_path / "s.tif", with_cores(folder, truth, what))
    assert run(context(tmp_path), "tls", slide="s.tif")["germinal_centers"] == 0


def test_within_an_outlined_tumor_a_core_is_doubtful(painted: tuple[Path, SlideTruth]) -> None:
    from mcp_servers.formats.geojson import feature, square, write_geojson

    folder, truth = painted
    ctx = context(folder)
    write_geojson(folder / "tumor.geojson", [feature(square(0, 0, truth.width, "Tumor"))])
    found = run(ctx, "tls", slide="P1.s1.tif", tumor_regions="tumor.geojson")
    assert (found["germinal_centers"], found["doubtful_germinal_centers"]) == (0, 2)


def test_too_coarse_a_scan_is_not_searched_and_says_so(painted: tuple[Path, SlideTruth]) -> None:
    folder, _ = painted
    found: dict[str, Any] = run(context(folder), "tls", slide="P1.s1.tif", at_mpp=1.2)
    assert found["germinal_centers"] is None
    assert found["germinal_center_mm2"] is None
    assert any("germinal centers were not sought" in warning for warning in found["warnings"])
    assert all(row["germinal_centers"] is None for row in found["aggregates"])


@pytest.mark.parametrize("mpp", [0.25, 0.5])
def test_a_real_dense_field_without_germinal_centers_has_none(tmp_path: Path, mpp: float) -> None:
    tile = np.asarray(Image.open(shared("tls_tile", "he_tls_tile.png")).convert("RGB"))
    side = len(tile)  # mirrored, for tissue enough to be judged: 0.25 mm²
    field = np.pad(tile, ((side, side), (side, side), (0, 0)), mode="symmetric")
    (tmp_path / "real").mkdir()
    Image.fromarray(field).save(tmp_path / "real" / "field.png")
    found = run(context(tmp_path, tmp_path / "real"), "tls", slide="field.png", mpp=mpp)
    assert (found["germinal_centers"], found["doubtful_germinal_centers"]) == (0, 0)
