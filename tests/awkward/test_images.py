"""Images as other programs and scanners write them: read right, or refused by name."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image as Pil

from mcp_servers.pathology.common import SlideInput, open_slide
from mcp_servers.slides.slide import Slide
from mcp_servers.workers.cohort import find_slides
from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import blobs, context, run

RGB = blobs(192, 256)
TOP = RGB.max(axis=2, keepdims=True).astype(float)
CMYK = np.concatenate([255 - RGB / TOP * 255, 255 - TOP], axis=2).round().astype(np.uint8)
TILED: dict[str, Any] = {"tile": (64, 64), "metadata": None}
SIZE = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}


def ome(path: Path, data: Any, axes: str, photometric: str = "minisblack", **more: Any) -> Path:
    """A tiled OME-TIFF with one coarser level in a sub-directory."""
    names = more.pop("names", None)
    meta = {"axes": axes, **SIZE, **({"Channel": {"Name": names}} if names else {}), **more}
    options: dict[str, Any] = {"photometric": photometric, "tile": (64, 64)}
    coarse = [slice(None, None, 2 if axis in "YX" else 1) for axis in axes]
    with tifffile.TiffWriter(path, ome=True) as writer:
        writer.write(data, subifds=1, metadata=meta, **options)
        writer.write(np.ascontiguousarray(data[tuple(coarse)]), subfiletype=1, **options)
    return path


def planes(path: Path) -> Path:
    return ome(path, np.moveaxis(RGB, -1, 0), "CYX")


def planes_by_name(path: Path) -> Path:
    return ome(path, np.moveaxis(RGB[:, :, ::-1], -1, 0), "CYX", names=["Blue", "Green", "Red"])


def planes_apart(path: Path) -> Path:
    tifffile.imwrite(path, np.moveaxis(RGB, -1, 0), photometric="rgb", planarconfig="separate",
                     **TILED)  # fmt: skip
    return path


def label_and_macro_first(path: Path) -> Path:
    with tifffile.TiffWriter(path, ome=True) as writer:
        for name, side in (("label", 80), ("macro image", 400)):
            writer.write(np.zeros((side, side, 3), np.uint8), photometric="rgb",
                         metadata={"axes": "YXS", "Name": name})  # fmt: skip
        writer.write(RGB, photometric="rgb", tile=(64, 64),
                     metadata={"axes": "YXS", "Name": "scan", **SIZE})  # fmt: skip
    return path


def indexed_tiles(path: Path) -> Path:
    image = Pil.fromarray(RGB).quantize(256)
    colors = np.zeros((256, 3), np.uint16)
    given = np.array(image.getpalette()).reshape(-1, 3)
    colors[: len(given)] = given * 257
    tifffile.imwrite(path, np.asarray(image), photometric="palette", colormap=colors.T, **TILED)
    return path


def inks_tiles(path: Path) -> Path:
    tifffile.imwrite(path, CMYK, photometric="separated", **TILED)
    return path


def inks_jpeg(path: Path) -> Path:
    Pil.fromarray(RGB).convert("CMYK").save(path.with_suffix(".jpg"), quality=95)
    return path.with_suffix(".jpg")


def twelve_bits_png(path: Path) -> Path:
    import cv2

    path = path.with_suffix(".png")
    cv2.imwrite(str(path), RGB[:, :, ::-1].astype(np.uint16) * 16)
    return path


def significant_bits(path: Path) -> Path:
    return ome(path, np.moveaxis(RGB.astype(np.uint16) * 4, -1, 0), "CYX", SignificantBits=10)


def sixteen_bits(path: Path) -> Path:
    tifffile.imwrite(path, RGB.astype(np.uint16) * 257, photometric="rgb", **TILED)
    return path


def floats(path: Path) -> Path:
    tifffile.imwrite(path, RGB.astype(np.float32) / 255, photometric="rgb", **TILED)
    return path


def luminance(path: Path) -> Path:
    path = path.with_suffix(".tif")
    Pil.fromarray(RGB).convert("YCbCr").save(path, compression="tiff_lzw")
    return path


def imagej_stack(path: Path) -> Path:
    stack = np.stack([RGB // 2, RGB, RGB // 3])
    tifffile.imwrite(path, stack, imagej=True, resolution=(2.0, 2.0),
                     metadata={"unit": "um", "axes": "ZYXS"})  # fmt: skip
    return path


def turned_jpeg(path: Path) -> Path:
    path = path.with_suffix(".jpg")
    exif = Pil.Exif()
    exif[274] = 6  # to be turned right by a quarter
    Pil.fromarray(np.rot90(RGB)).save(path, exif=exif, quality=98, subsampling=0)
    return path


def turned_tiff(path: Path) -> Path:
    tifffile.imwrite(path, RGB[::-1, ::-1], photometric="rgb", extratags=[(274, 3, 1, 3, True)],
                     **TILED)  # fmt: skip
    return path


def rows_apart(path: Path) -> Path:
    tifffile.imwrite(path, np.moveaxis(RGB, -1, 1), photometric="minisblack")
    return path


def zarr_image(path: Path, version: int) -> Path:
    zarr = pytest.importorskip("zarr")
    folder = path.parent / "a.ome.zarr"
    axes = [{"name": "c", "type": "channel"}, *({"name": n, "unit": "micrometer"} for n in "yx")]
    datasets = []
    group = zarr.open_group(str(folder), mode="w", zarr_format=version)
    for number, step in enumerate((1, 2)):
        data = np.moveaxis(RGB[::step, ::step], -1, 0)
        array = group.create_array(str(number), shape=data.shape, chunks=(1, 64, 64), dtype="uint8")
        array[:] = data
        scale = {"type": "scale", "scale": [1.0, 0.5 * step, 0.5 * step]}
        datasets.append({"path": str(number), "coordinateTransformations": [scale]})
    about = {"multiscales": [{"version": "0.4", "axes": axes, "datasets": datasets}]}
    group.attrs.update(about if version == 2 else {"ome": about})
    return folder


READ: dict[str, tuple[Callable[[Path], Path], float | None, str]] = {
    # input: (builder, µm per pixel, word of a note)
    "github.com/labsyspharm/minerva-author/issues/66 (planar configuration 2)": (
        planes_apart, None, "",
    ),
    "github.com/glencoesoftware/raw2ometiff/pull/20 (planes named, blue first)": (
        planes_by_name, 0.5, "",
    ),
    "github.com/hms-dbmi/viv/issues/831 (several images, label and macro first)": (
        label_and_macro_first, 0.5, '"scan" (256 x 192 px); not read: "label"',
    ),
    "own: palette, tiles": (indexed_tiles, None, ""),
    "own: CMYK, tiles": (inks_tiles, None, ""),
    "own: CMYK, JPEG": (inks_jpeg, None, ""),
    "own: 12 bits in 16, PNG": (twelve_bits_png, None, "12 bits"),
    "own: 10 bits by OME's significant bits": (significant_bits, 0.5, "10 bits"),
    "own: 16 bits": (sixteen_bits, None, "16 bits"),
    "own: floating point": (floats, None, ""),
    "own: YCbCr without JPEG": (luminance, None, ""),
    "own: ImageJ's focus stack": (imagej_stack, 0.5, "plane 2 of 3 focus planes"),
    "own: JPEG turned by EXIF": (turned_jpeg, None, "upright"),
    "own: tiles turned by orientation": (turned_tiff, None, "upright"),
    "own: OME-Zarr 0.5": (lambda path: zarr_image(path, 3), 0.5, ""),
}  # fmt: skip


@pytest.mark.parametrize("source", READ)
def test_an_image_is_read_in_its_colors(source: str, tmp_path: Path) -> None:
    build, mpp, word = READ[source]
    with Slide.open(build(tmp_path / "a.ome.tif")) as slide:
        found = slide.read(0, 0, 256, 192).astype(int)
        lossy = 12 if "palette" in source or "JPEG" in source else 1
        assert (slide.width, slide.height) == (256, 192)
        assert np.abs(found - RGB).mean() < lossy
        if len(slide.levels) > 1:
            small = slide.read(0, 0, 128, 96, 1).astype(int)
            assert np.abs(small - RGB[::2, ::2]).mean() < lossy
        assert slide.mpp == mpp
        assert word in "; ".join(slide.warnings)
        assert not slide.unlike_stain()


def fluorescence(path: Path) -> Path:
    rng = np.random.default_rng(0)
    data = (rng.gamma(0.4, 300, (5, 192, 256))).astype(np.uint16)
    return ome(path, data, "CYX", names=["DAPI", "CD3", "CD8", "CD20", "PanCK"])


def dark_planes(path: Path) -> Path:
    """Three planes without names, which only a look tells from RGB."""
    rng = np.random.default_rng(0)
    return ome(path, rng.gamma(0.3, 30, (3, 192, 256)).clip(0, 255).astype(np.uint8), "CYX")


def gray_ome(path: Path) -> Path:
    return ome(path, RGB.mean(axis=2).astype(np.uint8), "YX")


def gray_as_rgb(path: Path) -> Path:
    Pil.fromarray(RGB).convert("L").convert("RGB").save(path.with_suffix(".png"))
    return path.with_suffix(".png")


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "github.com/TissueImageAnalytics/tiatoolbox/pull/471 (multiplex)": (
        fluorescence, "5 channels (DAPI, CD3, CD8",
    ),
    "own: fluorescence in three planes without names": (dark_planes, "dark ground"),
    "github.com/TissueImageAnalytics/tiatoolbox/issues/509 (OME-TIFF of axes YX)": (
        gray_ome, "grayscale",
    ),
    "github.com/TissueImageAnalytics/tiatoolbox/issues/804 (axes YSX)": (
        rows_apart, "192 channels",
    ),
    "own: gray stored as RGB": (gray_as_rgb, "without color"),
}  # fmt: skip


@pytest.mark.parametrize("source", REFUSED)
def test_an_image_of_another_kind_is_shown_but_not_measured(source: str, tmp_path: Path) -> None:
    build, word = REFUSED[source]
    path = build(tmp_path / "a.ome.tif")
    ctx = context(tmp_path)
    about = run(ctx, "slide_properties", slide=path.name)
    assert word in about["unlike_stain"]
    assert run(ctx, "slide_thumbnail", slide=path.name, max_px=64)["width_px"] == 64
    with pytest.raises(InputError, match=path.name) as refused:
        open_slide(SlideInput(slide=path.name, mpp=0.5), ctx)
    assert word in str(refused.value)


def tagged(mpp: float, power: float | None = None) -> Callable[[Path], Path]:
    def build(path: Path) -> Path:
        words = f"Aperio x |AppMag = {power:g}|MPP = {mpp}" if power else None
        tifffile.imwrite(path, RGB, photometric="rgb", resolution=(1e4 / mpp, 1e4 / mpp),
                         resolutionunit="CENTIMETER", description=words, **TILED)  # fmt: skip
        return path

    return build


def ome_objective(path: Path) -> Path:
    tifffile.imwrite(
        path, RGB, photometric="rgb", tile=(64, 64), metadata=None,
        description='<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/'
        '2016-06"><Instrument ID="Instrument:0"><Objective ID="Objective:0" '
        'NominalMagnification="40"/></Instrument><Image ID="Image:0"><Pixels ID="Pixels:0" '
        'DimensionOrder="XYCZT" Type="uint8" SizeX="256" SizeY="192" SizeC="3" SizeZ="1" SizeT="1" '
        'PhysicalSizeX="1" PhysicalSizeY="1"><Channel ID="Channel:0:0" SamplesPerPixel="3"/>'
        '<TiffData IFD="0" PlaneCount="1"/></Pixels></Image></OME>',
    )  # fmt: skip
    return path


def described(words: str | bytes) -> Callable[[Path], Path]:
    def build(path: Path) -> Path:
        tifffile.imwrite(path, RGB, photometric="rgb", description=words, **TILED)
        return path

    return build


def no_unit(path: Path) -> Path:
    tifffile.imwrite(path, RGB, photometric="rgb", resolution=(20000, 20000),
                     resolutionunit="NONE", **TILED)  # fmt: skip
    return path


SIZES: dict[str, tuple[Callable[[Path], Path], float | None, str]] = {
    # input: (builder, µm per pixel that is taken from the file, word of the question)
    "github.com/openslide/openslide/issues/228 (Motic's description)": (
        described("Motic V1.0.0 256x192 [64x64] JPEG/RGB Q = 75|AppMag = 40|MPP = 0.257290"),
        0.25729, "",
    ),
    "github.com/TissueImageAnalytics/tiatoolbox/issues/279 (20x with 0.234)": (
        tagged(0.234, 20), None, "objective of 20x",
    ),
    "github.com/TissueImageAnalytics/tiatoolbox/pull/53 (tags without a unit)": (
        no_unit, None, "does not state",
    ),
    "own: thumbnail's size": (tagged(8.0), None, "8 µm"),
    "own: at the lower end": (tagged(0.081), 0.081, ""),
    "own: at the upper end": (tagged(3.99), 3.99, ""),
    "own: 40x with 0.34": (tagged(0.34, 40), 0.34, ""),
    "own: 40x with 0.5": (tagged(0.5, 40), None, "objective of 40x"),
    "github.com/NKI-AI/dlup/issues/108 (OME: 40x with 1 µm)": (ome_objective, None, "of 40x"),
}  # fmt: skip


@pytest.mark.parametrize("source", SIZES)
def test_a_doubtful_pixel_size_is_asked(source: str, tmp_path: Path) -> None:
    build, mpp, word = SIZES[source]
    path = build(tmp_path / "a.tif")
    with Slide.open(path) as slide:
        assert slide.mpp == (None if mpp is None else pytest.approx(mpp, rel=1e-4))
        if mpp is None:
            with pytest.raises(InputError, match="mpp=") as asked:
                slide.need_mpp()
            assert word in str(asked.value)
    with Slide.open(path, mpp=0.5) as slide:
        assert (slide.need_mpp(), slide.mpp_source) == (0.5, "override")
        assert bool(slide.mpp_conflict) == (mpp is not None and abs(mpp - 0.5) > 0.025)


def element(group: int, tag: int, kind: str, value: Any) -> bytes:
    """An element of DICOM in explicit little-endian form."""
    data = value if isinstance(value, bytes) else str(value).encode()
    data += (b"\0" if kind in ("UI", "OB") else b" ") * (len(data) % 2)
    head = struct.pack("<HH", group, tag) + kind.encode()
    if kind in ("OB", "SQ"):
        return head + struct.pack("<HI", 0, len(data)) + data
    return head + struct.pack("<H", len(data)) + data


def item(*elements: bytes) -> bytes:
    data = b"".join(elements)
    return struct.pack("<HHI", 0xFFFE, 0xE000, len(data)) + data


def dicom(path: Path, image: Any, mpp: float, series: str, instance: str) -> None:
    """A level of a whole slide image of one frame, uncompressed."""
    height, width = image.shape[:2]
    short = struct.Struct("<H").pack
    spacing = element(0x28, 0x30, "DS", f"{mpp / 1000}\\{mpp / 1000}")
    shared_groups = item(element(0x28, 0x9110, "SQ", item(spacing)))
    kind = "1.2.840.10008.5.1.4.1.1.77.1.6"
    meta = element(2, 2, "UI", kind) + element(2, 3, "UI", instance)
    meta += element(2, 0x10, "UI", "1.2.840.10008.1.2.1") + element(2, 0x12, "UI", "1.2.3")
    body = [
        element(8, 8, "CS", "ORIGINAL\\PRIMARY\\VOLUME\\NONE"), element(8, 0x16, "UI", kind),
        element(8, 0x18, "UI", instance), element(8, 0x60, "CS", "SM"),
        element(0x20, 0xD, "UI", "1.2.3.1"), element(0x20, 0xE, "UI", series),
        element(0x20, 0x52, "UI", "1.2.3.9"), element(0x20, 0x9311, "CS", "TILED_FULL"),
        element(0x28, 2, "US", short(3)), element(0x28, 4, "CS", "RGB"),
        element(0x28, 6, "US", short(0)), element(0x28, 8, "IS", 1),
        element(0x28, 0x10, "US", short(height)), element(0x28, 0x11, "US", short(width)),
        element(0x28, 0x100, "US", short(8)), element(0x28, 0x101, "US", short(8)),
        element(0x28, 0x102, "US", short(7)), element(0x28, 0x103, "US", short(0)),
        element(0x48, 6, "UL", struct.pack("<I", width)),
        element(0x48, 7, "UL", struct.pack("<I", height)),
        element(0x5200, 0x9229, "SQ", shared_groups),
        element(0x7FE0, 0x10, "OB", np.ascontiguousarray(image).tobytes()),
    ]  # fmt: skip
    size = element(2, 0, "UL", struct.pack("<I", len(meta)))
    path.write_bytes(bytes(128) + b"DICM" + size + meta + b"".join(body))


def test_a_dicom_folder_is_one_slide(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    folder.mkdir()
    dicom(folder / "1.dcm", RGB, 0.5, "1.2.3.4", "1.2.3.4.1")
    with Slide.open(folder) as slide:
        assert (slide.format, slide.width) == ("dicom", 256)
        assert slide.mpp == pytest.approx(0.5)
        assert np.array_equal(slide.read(0, 0, 256, 192), RGB)
    listed = run(context(tmp_path), "list_slides")
    assert [row["slide"] for row in listed["slides"]] == ["case"]
    dicom(folder / "2.dcm", RGB, 0.5, "1.2.3.5", "1.2.3.5.1")
    with pytest.raises(InputError, match="2 DICOM slides"):
        Slide.open(folder)


def test_only_images_that_can_be_slides_are_listed(tmp_path: Path) -> None:
    Pil.fromarray(RGB).save(tmp_path / "scan.png")
    Pil.fromarray(RGB).convert("L").point(lambda v: 255 * (v > 200)).save(tmp_path / "mask.png")
    Pil.fromarray(RGB[:40, :40]).save(tmp_path / "icon.png")
    Pil.fromarray(RGB).convert("1").save(tmp_path / "mask.tif")
    planes(tmp_path / "b.ome.tif")
    zarr_image(tmp_path / "x", 2)
    found = run(context(tmp_path), "list_slides")
    names = [row["slide"] for row in found["slides"]]
    assert names == ["a.ome.zarr", "b.ome.tif", "scan.png"]
    assert sum(found["left_out"].values()) == 3
    paths, left = find_slides(tmp_path)
    assert ([path.name for path in paths], left) == (names, found["left_out"])
    for name in names:
        assert run(context(tmp_path), "slide_thumbnail", slide=name, max_px=32)["width_px"] == 32
