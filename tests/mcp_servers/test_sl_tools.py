"""The pathology tools as users call them: through the registry, on painted slides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import tifffile
from PIL import Image
from scipy.spatial import cKDTree

from mcp_servers.formats.geojson import feature, square, write_geojson
from mcp_servers.measures.compute import compute
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import read_maps
from mcp_servers.pathology import surveying
from mcp_servers.registry import load
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import blobs, context, run
from validation.simulate.slide import SlideTruth, render_slide

Results = dict[str, Any]
Painted = tuple[Path, SlideTruth]


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> Painted:
    """A painted slide of 0.7 x 0.7 mm with two aggregates, and its truth."""
    folder = tmp_path_factory.mktemp("painted")
    return folder, render_slide(folder / "s.tif", seed=6, size_px=1400, mpp=0.5, aggregates=2)


@pytest.fixture(scope="module")
def results(painted: Painted) -> Results:
    """The tools without weights, run once on the painted slide in one worker."""
    folder, truth = painted
    ctx = context(folder)
    out: dict[str, Any] = {"folder": folder / "out", "ctx": ctx}
    names = ("tissue_mask", "nuclei", "tls", "tumor", "region_patches", "til")
    for name in (*names, "stroma", "stain_separate"):
        more: dict[str, Any] = {}
        if name == "region_patches":
            more = {"tile_px": 64, "at_mpp": 1.0}
        if name in ("region_patches", "til", "stroma"):
            more |= {"tumor_regions": f"out/{out['tumor']['geojson']}"}
        if name == "tumor":
            more = {"tumor_regions": str(truth.write_outlines(folder / "drawn.geojson"))}
        if name == "til":
            more |= {"cells": str(truth.write_cells(folder / "cells.csv"))}
        out[name] = run(ctx, name, slide="s.tif", **more)
    return out


def test_every_pathology_tool_is_registered_with_its_card() -> None:
    tools = {spec.name: spec for spec in load("pathology")}
    assert len(tools) >= 22
    for name in ("tissue_mask", "nuclei", "tls", "tumor", "region_patches", "til", "stroma", "ihc"):
        card = tools[name].validity
        assert card is not None and card.mpp and card.stain and card.known_failures
        assert card.accuracy, name
        assert tools[name].resources.seconds_per_item


def test_tissue_area_is_that_of_the_painted_tissue(painted: Painted, results: Results) -> None:
    assert results["tissue_mask"]["tissue_mm2"] == pytest.approx(painted[1].tissue_mm2, rel=0.04)


def test_every_aggregate_is_found_once_with_its_area(painted: Painted, results: Results) -> None:
    truth, found = painted[1].aggregates, results["tls"]["aggregates"]
    assert results["tls"]["count"] == len(truth)
    for item in truth:
        near = [f for f in found if np.hypot(f["x"] - item.x, f["y"] - item.y) < item.radius]
        assert len(near) == 1
        assert near[0]["area_um2"] == pytest.approx(np.pi * (item.radius * 0.5) ** 2, rel=0.2)


def test_aggregates_are_placed_by_a_given_tumor_outline(painted: Painted) -> None:
    folder, truth = painted
    first = truth.aggregates[0]
    r = first.radius * 1.5
    outline = folder / "tumor.geojson"
    around = feature(square(first.x - r, first.y - r, 2 * r, "Tumor"))
    write_geojson(outline, [around])
    got = run(context(folder), "tls", slide="s.tif", tumor_regions="tumor.geojson", band_um=60)
    nearest = min(got["aggregates"], key=lambda f: np.hypot(f["x"] - first.x, f["y"] - first.y))
    assert nearest["location"] == "intratumoral" and nearest["tumor_distance_um"] < 0
    assert got["intratumoral"] == 1
    assert not any("classical method" in note for note in got["warnings"])


def test_without_tumor_the_place_of_an_aggregate_is_unknown_not_zero(painted: Painted) -> None:
    folder, _ = painted
    corner = folder / "glass.geojson"
    write_geojson(corner, [feature(square(0, 0, 20, "Tumor"))])
    got = run(context(folder), "tls", slide="s.tif", tumor_regions="glass.geojson")
    assert got["unknown"] == got["count"] > 0
    assert got["intratumoral"] == got["peritumoral"] == got["distant"] == 0
    drawn = json.loads((folder / "out" / got["geojson"]).read_text())["features"]
    assert len(drawn) == got["count"] + got["rejected"]
    for item in drawn:
        assert "Tumor distance µm" not in item["properties"]["measurements"]
    table = pd.read_csv(folder / "out" / got["table"])
    assert table["tumor_distance_um"].isna().all() and set(table["location"]) == {"unknown"}


def test_only_outlines_of_tumor_are_tumor(painted: Painted) -> None:
    folder, truth = painted
    given = {"slide": "s.tif", "tumor_regions": "named.geojson", "band_um": 60}

    def outline(labels: list[str]) -> None:
        sides = [(item, item.radius * 1.5) for item in truth.aggregates]
        outlines = [
            feature(square(item.x - r, item.y - r, 2 * r, label))
            for label, (item, r) in zip(labels, sides, strict=False)
        ]
        write_geojson(folder / "named.geojson", outlines)

    outline(["Tumor: Positive", ""])
    got = run(context(folder), "tls", **given)
    assert got["intratumoral"] == 1
    assert any("outlines" in warning for warning in got["warnings"])
    outline(["Stroma", "Tumor bed"])
    with pytest.raises(InputError, match=r"named\.geojson.*Stroma"):
        run(context(folder), "tls", **given)


def test_nuclei_lie_on_painted_nuclei(painted: Painted, results: Results) -> None:
    truth = painted[1]
    every = np.concatenate([truth.tumor_nuclei, truth.stroma_nuclei, truth.lymphocytes])
    table = pd.read_csv(results["folder"] / results["nuclei"]["table"])
    away, _ = cKDTree(every).query(table[["x", "y"]].to_numpy())
    assert (away < 8).mean() > 0.95  # 4 µm
    assert len(table) == pytest.approx(len(every), rel=0.2)
    assert results["nuclei"]["nuclei"] == len(table)


def test_outlined_tumor_holds_tumor_and_not_lymphocytes(painted: Painted, results: Results) -> None:
    mask = np.asarray(Image.open(results["folder"] / results["tumor"]["mask"])) > 0

    def share(points: Any) -> float:
        cells = np.minimum((points * 0.5 / 8).astype(int), np.array(mask.shape)[::-1] - 1)
        return float(mask[cells[:, 1], cells[:, 0]].mean())

    truth = painted[1]
    assert share(truth.tumor_nuclei) > 0.95
    assert share(truth.lymphocytes) < 0.15
    assert share(truth.stroma_nuclei) < 0.15
    found = results["tumor"]
    assert (found["tumor_source"], found["score"], found["threshold"]) == ("outlines", None, None)
    assert found["tumor_fraction"] == pytest.approx(truth.tumor_fraction, abs=0.05)


def test_without_outlines_or_a_model_tumor_has_no_value_anywhere(painted: Painted) -> None:
    folder, truth = painted
    (folder / "drawn").mkdir()
    truth.write_outlines(folder / "drawn" / "other.geojson")
    for given in ({}, {"tumor_regions": "drawn"}):
        for name in ("tumor", "stroma", "region_patches"):
            with pytest.raises(InputError, match="needs tumor"):
                run(context(folder), name, slide="s.tif", **given)
        cells = str(truth.write_cells(folder / "cells.csv"))
        zones = run(context(folder), "til", slide="s.tif", cells=cells, **given)
        assert zones["tumor_source"] == "none"
        assert zones["tumor"] is zones["center"] is zones["margin"] is zones["peritumoral"] is None
        made = run(context(folder), "slide_maps", slide="s.tif", cells=cells, **given)
        assert made["regions"] == {} and {"tumor", "rest"} <= set(made["withheld"])
        maps = read_maps((folder / "out" / made["maps"]).parent)
        for formula in ("area(regions.tumor)", "density(cells, within=regions.rest)"):
            value = compute(parse(f"pooled({formula})"), maps)
            assert value.value is None and "needs tumor" in value.why_not
    truth.write_outlines(folder / "drawn" / "s.tif.geojson")
    made = run(context(folder), "slide_maps", slide="s.tif", tumor_regions="drawn", cells=cells)
    assert made["withheld"] == {}
    maps = read_maps((folder / "out" / made["maps"]).parent)
    share = compute(parse("mean(area(regions.tumor) / area(regions.rest))"), maps).value
    assert share == pytest.approx(truth.tumor_fraction / (1 - truth.tumor_fraction), rel=0.1)


def test_lymphocytes_have_one_count_by_typed_cells_and_none_without(
    painted: Painted, results: Results
) -> None:
    folder, truth = painted
    with pytest.raises(InputError, match="needs lymphocytes"):
        run(context(folder), "til", slide="s.tif", tumor_regions="drawn.geojson")
    assert results["nuclei"]["types"] == {} and results["nuclei"]["lymphocytes"] is None
    counted = results["til"]["tissue"]["lymphocytes"]
    assert counted == pytest.approx(len(truth.lymphocytes), rel=0.02)
    formula = parse("pooled(count(cells.lymphoid))")
    made = run(context(folder), "slide_maps", slide="s.tif")
    assert set(made["cells"]) == {"unclassified"} and made["cells"]["unclassified"] > 1000
    value = compute(formula, read_maps((folder / "out" / made["maps"]).parent))
    assert value.value is None and "typing" in value.why_not
    (folder / "typed" / "s").mkdir(parents=True)
    truth.write_cells(folder / "typed" / "s" / "s.nuclei.csv")
    made = run(context(folder), "slide_maps", slide="s.tif", cells="typed")
    assert made["cells"]["lymphoid"] == len(truth.lymphocytes)
    value = compute(formula, read_maps((folder / "out" / made["maps"]).parent))
    assert value.value == pytest.approx(counted, rel=0.02)
    zones = run(context(folder), "til", slide="s.tif", cells="typed")
    assert zones["tissue"] == results["til"]["tissue"]


def test_region_patches_partition_the_tiles_and_color_them(results: Results) -> None:
    got = results["region_patches"]
    with h5py.File(results["folder"] / got["coords"]) as file:
        regions = file["region"][()].astype(str)
        coords = file["coords"][()]
        assert file["coords"].attrs["patch_size_level0"] == 128
    assert len(coords) == got["tumor"] + got["peritumoral"] + got["rest"] == len(regions)
    assert {"Tumor", "Peritumoral"} <= set(regions)
    picture = np.asarray(Image.open(results["folder"] / got["overlay"])).astype(int)
    ratio = 1400 / picture.shape[1]

    def mean(region: str) -> Any:
        at = coords[regions == region][:40] + 64
        return np.mean([picture[int(y / ratio), int(x / ratio)] for x, y in at], axis=0)

    assert mean("Tumor")[0] > mean("Peritumoral")[0]
    assert mean("Peritumoral")[1] > mean("Tumor")[1]


@pytest.mark.parametrize("at_mpp", [1.0, 0.8])
def test_coordinates_mean_the_same_tissue_to_trident_and_to_clam(
    tmp_path: Path, at_mpp: float
) -> None:
    image = blobs(800, 800)
    path = tmp_path / "s.tif"
    with tifffile.TiffWriter(path) as writer:  # two stored levels: 0.5 and 1 µm per pixel
        whole = {"resolution": (20_000, 20_000), "resolutionunit": "CENTIMETER"}
        writer.write(image, tile=(256, 256), photometric="rgb", **whole)
        writer.write(image[::2, ::2], tile=(256, 256), photometric="rgb", subfiletype=1)
    got = run(context(tmp_path), "tile_slide", slide="s.tif", at_mpp=at_mpp, tile_px=64)
    with h5py.File(tmp_path / "out" / got["coords"]) as file:
        attrs, coords = dict(file["coords"].attrs), file["coords"][()]
    # Trident: WSIPatcher reads patch_size_level0 pixels of level 0 for one patch of patch_size
    ratio = attrs["level0_magnification"] / attrs["target_magnification"]
    assert attrs["patch_size_level0"] == pytest.approx(attrs["patch_size"] * ratio, abs=1)
    if at_mpp == 0.8:
        assert "patch_level" not in attrs
        assert any("CLAM" in note for note in got["warnings"])
        return
    # CLAM: Whole_Slide_Bag reads wsi.read_region(coord, patch_level, (patch_size, patch_size))
    with Slide.open(path) as slide:
        level = slide.levels[attrs["patch_level"]]
        assert attrs["patch_size"] * level.downsample == attrs["patch_size_level0"]
        assert list(attrs["level_dim"]) == [level.width, level.height]
        x, y = (int(value) for value in coords[0] / level.downsample)
        side = int(attrs["patch_size"])
        clam = slide.source.read(int(attrs["patch_level"]), x, y, side, side)
        wide = int(attrs["patch_size_level0"])
        factor = wide // side
        trident = slide.read(*map(int, coords[0]), wide, wide)[::factor, ::factor]
    assert np.abs(clam.astype(int) - trident).mean() < 12


def test_the_same_survey_serves_all_tools_of_a_worker(
    painted: Painted, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, seen = [], []
    real = surveying.walk
    monkeypatch.setattr(surveying, "walk", lambda *a, **k: passes.append(1) or real(*a, **k))
    ctx = context(painted[0], on_progress=lambda fraction, _: seen.append(fraction))
    run(ctx, "tls", slide="s.tif")
    assert seen == sorted(seen) and seen[-1] > 0.9 and len(seen) >= 2
    outlines = str(painted[1].write_outlines(painted[0] / "drawn.geojson"))
    for name in ("tumor", "til"):
        cells = {"cells": str(painted[1].write_cells(painted[0] / "cells.csv"))}
        own = cells if name == "til" else {}
        run(ctx, name, slide="s.tif", tumor_regions=outlines, **own)
    assert len(passes) == 1
