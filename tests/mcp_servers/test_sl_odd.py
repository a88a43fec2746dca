"""Odd slides, wrong arguments, failures: a clear refusal, and nothing half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from mcp_servers.formats.geojson import feature, square, write_geojson
from mcp_servers.pathology.compute.tumor import clean_mask
from mcp_servers.pathology.tissue import slide_tissue
from mcp_servers.slides.slide import Slide
from mcp_servers.slides.source import Level
from sage.core.errors import Cancelled, InputError
from tests.mcp_servers.slide_tools import GLASS, blobs, context, damage_tile, png, pyramid, run


def flat(color: tuple[int, int, int], side: int = 400) -> Any:
    """An image of one color."""
    return np.full((side, side, 3), color, np.uint8)


def test_a_slide_without_tissue_gives_zero_and_says_so(tmp_path: Path) -> None:
    png(tmp_path / "g.png", flat(GLASS, 600))
    png(tmp_path / "large.png", flat(GLASS, 2100))  # a small image is searched everywhere
    two = flat((255, 255, 255), 600)
    two[:, :300] = 0
    png(tmp_path / "two.png", two)
    png(tmp_path / "one.png", flat((200, 100, 150), 1))
    ctx = context(tmp_path)
    (tmp_path / "cells.csv").write_text("x,y,type\n")
    for name in ("tissue_mask", "nuclei", "tls", "til"):
        own = {"cells": "cells.csv"} if name == "til" else {}
        got = run(ctx, name, slide="large.png" if name == "nuclei" else "g.png", mpp=0.5, **own)
        assert any("no tissue" in note for note in got["warnings"])
        for value in got.values():
            assert not (isinstance(value, float) and np.isnan(value))
        assert run(ctx, name, slide="one.png", mpp=0.5, **own)["method"]  # one pixel does no harm
    assert run(ctx, "tissue_mask", slide="two.png", mpp=4.0)["tissue_fraction"] < 0.02


def test_a_field_without_tumor_does_not_become_all_tumor(tmp_path: Path) -> None:
    # tissue of 120 µm on a side: less than the area below which gaps in tumor are filled
    png(tmp_path / "a.png", blobs(700, 700)[230:470, 230:470])
    ctx = context(tmp_path)
    write_geojson(tmp_path / "a.geojson", [feature(square(500, 500, 20, "Tumor"))])
    got = run(ctx, "tumor", slide="a.png", mpp=0.5, tumor_regions="a.geojson")
    assert any("whole image" in note for note in got["warnings"])
    assert not any(got[key] for key in ("tumor_fraction", "tumor_mm2", "regions"))
    assert not clean_mask(np.zeros((15, 15), dtype=bool), 0.0).any()
    mask = run(ctx, "tissue_mask", slide="a.png", mpp=0.5)
    assert mask["tissue_fraction"] > 0.95
    whole = 0.12**2 * mask["tissue_fraction"]
    assert mask["tissue_mm2"] == pytest.approx(whole, rel=5e-2)


@pytest.mark.parametrize(
    ("tag", "value"),
    [("ImageWidth", 0), ("ImageLength", 0), ("TileWidth", 0), ("TileLength", 0),
     ("XResolution", (0, 0))],
)  # fmt: skip
def test_a_damaged_directory_is_refused_in_words(tmp_path: Path, tag: str, value: Any) -> None:
    path = tmp_path / "a.tiff"
    tifffile.imwrite(path, blobs(400, 400), photometric="rgb", tile=(128, 128),
                     resolution=(20000, 20000), resolutionunit="CENTIMETER")  # fmt: skip
    with tifffile.TiffFile(path, mode="r+") as file:
        file.pages.first.tags[tag].overwrite(value)
    with pytest.raises(InputError, match=r"a\.tiff"), Slide.open(path) as slide:
        slide.need_mpp()


def test_an_overview_that_would_decode_terabytes_is_refused(tmp_path: Path) -> None:
    png(tmp_path / "a.png", blobs(700, 700))
    with Slide.open(tmp_path / "a.png", mpp=0.5) as slide:
        slide.source.levels = (Level(400_000, 400_000, 1.0, 256, 256),)  # type: ignore[misc]
        with pytest.raises(InputError, match="pyramid"):
            slide_tissue(slide)


@pytest.mark.parametrize("mode", ["L", "1", "I;16", "tiff"])
def test_a_gray_image_is_flagged_and_refused_where_color_is_needed(
    tmp_path: Path, mode: str
) -> None:
    gray = Image.fromarray(blobs(400, 400)).convert("L")
    pixels = np.asarray(gray)
    path = tmp_path / ("a.tif" if mode == "tiff" else "a.png")
    if mode == "I;16":
        Image.fromarray(pixels.astype(np.uint16) * 257).save(path)
    else:
        gray.convert("L" if mode == "tiff" else mode).save(path)
    ctx = context(tmp_path)
    got = run(ctx, "tissue_mask", slide=path.name, mpp=0.5)
    assert any("grayscale" in note for note in got["warnings"])
    with pytest.raises(InputError, match=r"a\.(png|tif)"):
        run(ctx, "ihc", slide=path.name, mpp=0.5)
    if mode == "L":
        gray.convert("RGB").save(tmp_path / "rgb.png")
        plain = run(ctx, "tissue_mask", slide="rgb.png", mpp=0.5)
        assert not any("gray" in note for note in plain["warnings"])
        with Slide.open(path) as slide:
            assert np.array_equal(slide.read(0, 0, 400, 400), np.asarray(gray.convert("RGB")))


def test_specks_are_dropped_or_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    image = flat(GLASS, 900)
    for x, y in rng.integers(5, 890, (1500, 2)):
        image[y : y + 6, x : x + 6] = (200, 90, 150)
    png(tmp_path / "a.png", image)
    ctx = context(tmp_path)
    assert run(ctx, "tissue_mask", slide="a.png", mpp=8.0)["pieces"] == 0
    got = run(ctx, "tissue_mask", slide="a.png", mpp=8.0, min_area_um2=0, focus="off")
    assert got["pieces"] > 300
    assert any("separate pieces" in note for note in got["warnings"])


def test_pixel_sizes_that_a_tool_cannot_use_are_refused(tmp_path: Path) -> None:
    png(tmp_path / "a.png", blobs(300, 300))
    for name in ("nuclei", "tls", "ihc"):
        with pytest.raises(InputError, match="µm"):
            run(context(tmp_path), name, slide="a.png", mpp=4.0)
    with pytest.raises(InputError, match="finer"):
        run(context(tmp_path), "tile_slide", slide="a.png", mpp=1.0, at_mpp=0.25)
    with pytest.raises(InputError, match="mpp="):
        run(context(tmp_path), "tissue_mask", slide="a.png")
    got = run(context(tmp_path), "tissue_mask", slide="a.png", mpp=2.0)
    assert (got["mpp"], got["mpp_source"]) == (2.0, "override")


def test_a_failure_leaves_nothing_half_written(tmp_path: Path) -> None:
    path = pyramid(tmp_path / "a.svs", blobs(1500, 1500), levels=1)
    damage_tile(path, 20)  # not one that is compared with OpenSlide on opening
    with pytest.raises(InputError, match=r"a\.svs"):
        run(context(tmp_path), "nuclei", slide="a.svs")
    assert list((tmp_path / "out").iterdir()) == []


def test_cancelling_stops_a_tool_and_leaves_nothing(tmp_path: Path) -> None:
    pyramid(tmp_path / "a.svs", blobs(600, 600))
    ctx = context(tmp_path, cancelled=lambda: True)
    with pytest.raises(Cancelled):
        run(ctx, "nuclei", slide="a.svs")
    assert list((tmp_path / "out").iterdir()) == []
