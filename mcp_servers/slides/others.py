"""Readers for files that are not decoded directly, with OpenSlide or in memory."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from pathlib import Path

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.slides.arrays import U8, AnyArray
from mcp_servers.slides.layout import Colors, Layout, UnsupportedError, open_layout
from mcp_servers.slides.source import Level, blank, crop_padded, shrink
from sage.core.errors import InputError

MAX_IMAGE_PIXELS = 200_000_000
"""Maximum size of in-memory images without a pyramid; larger ones must be converted first."""
READ_PIXELS = 4_000_000
"""Maximum number of pixels per OpenSlide read, at 20 bytes per pixel."""
LONGEST_INDEX = 1 << 20
"""Maximum index size, in bytes, of a multi-file slide that OpenSlide reads."""


class OpenSlideSource:
    """Reader for any format that OpenSlide supports."""

    name = "openslide"
    format = "dicom"
    notes: tuple[str, ...] = ()

    def __init__(self, path: Path) -> None:
        import openslide

        _refuse_elsewhere(path)
        _refuse_views(path)
        try:
            self._slide = openslide.OpenSlide(str(path))
        except openslide.OpenSlideError as error:
            raise InputError(f"{path}: OpenSlide cannot open it: {error}") from error
        self._path = path
        self.properties: dict[str, str] = dict(self._slide.properties)
        levels = []
        for number, (width, height) in enumerate(self._slide.level_dimensions):
            tile_width = int(self.properties.get(f"openslide.level[{number}].tile-width", 256))
            tile_height = int(self.properties.get(f"openslide.level[{number}].tile-height", 256))
            downsample = float(self._slide.level_downsamples[number])
            levels.append(Level(width, height, downsample, tile_width, tile_height))
        self.levels = tuple(levels)
        color = self.properties.get("openslide.background-color", "ffffff")
        self._background = np.array([int(color[i : i + 2], 16) for i in (0, 2, 4)], dtype=np.uint16)

    @property
    def is_generic(self) -> bool:
        """True for a TIFF that is not from a known scanner."""
        return self.properties.get("openslide.vendor") == "generic-tiff"

    @property
    def associated(self) -> tuple[str, ...]:
        """Names of the label, macro and thumbnail images."""
        return tuple(self._slide.associated_images)

    def read(self, level: int, x: int, y: int, width: int, height: int, reduce: int = 1) -> U8:
        """Read a rectangle (see `Source.read`); transparent pixels get the background color."""
        rows = max(1, READ_PIXELS // (width * reduce)) * reduce
        if height <= rows:
            return shrink(self._read_region(level, x, y, width, height), reduce)
        out = blank(math.ceil(height / reduce), math.ceil(width / reduce))
        for top in range(0, height, rows):
            part = self._read_region(level, x, y + top, width, min(rows, height - top))
            out[top // reduce : (top + rows) // reduce] = shrink(part, reduce)
        return out

    def _read_region(self, level: int, x: int, y: int, width: int, height: int) -> U8:
        import openslide

        stored = self.levels[level]
        at = (math.ceil(x * stored.downsample - 1e-6), math.ceil(y * stored.downsample - 1e-6))
        try:
            image = self._slide.read_region(at, level, (width, height))
        except openslide.OpenSlideError as error:
            raise InputError(
                f"{self._path}: pixels at {at} on level {level} cannot be read: {error}. "
                "The file is damaged or truncated; copy it again."
            ) from error
        rgba = np.asarray(image)
        rgb = rgba[:, :, :3]
        alpha = rgba[:, :, 3:]
        if (alpha == 255).all():
            return np.ascontiguousarray(rgb, dtype=np.uint8)
        mixed = rgb.astype(np.uint16) * alpha + self._background * (255 - alpha.astype(np.uint16))
        return np.asarray(mixed // 255, dtype=np.uint8)

    def close(self) -> None:
        self._slide.close()


def _refuse_elsewhere(path: Path) -> None:
    """Refuse a multi-file slide whose index names a file outside the slide's folder.

    OpenSlide would read such a file from anywhere on this machine, because it joins each name
    to the folder. Raises `InputError` if a MIRAX or Hamamatsu index names such a file.
    """
    mirax = Path(str(path).removesuffix(".mrxs")) / "Slidedat.ini"
    for index, mark in ((path, b"Virtual Microscope Specimen]"), (mirax, b"")):
        if index.is_file():
            with index.open("rb") as stream:
                text = stream.read(LONGEST_INDEX)
            if mark in text and (b"../" in text or b"..\\" in text):
                raise InputError(f"{path}: its index refers to a file outside its own folder")


def _refuse_views(path: Path) -> None:
    """Refuse a slide stored as a database (Sakura) that contains anything but tables.

    OpenSlide queries the file's tables even to detect its format, and a view in place of a
    table could make the query run forever. Raises `InputError` if the file contains anything
    but tables, or cannot be read as a database.
    """
    with path.open("rb") as stream:
        if not stream.read(16).startswith(b"SQLite format 3"):
            return
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as base:
            held = [str(sql or "") for (sql,) in base.execute("SELECT sql FROM sqlite_master")]
    except sqlite3.Error as error:
        raise InputError(f"{path}: unreadable database: {error}") from error
    plain = ("create table", "create index", "create unique index")
    if not all(sql.lower().startswith(plain) for sql in held if sql):
        raise InputError(
            f"{path}: the database contains more than tables; scanners write only tables"
        )


class ImageSource:
    """Reader for a plain image in memory: PNG, JPEG or TIFF without tiles."""

    name = "image"

    def __init__(self, path: Path) -> None:
        self.layout: Layout | None = None
        tiff = path.suffix.lower() in {".tif", ".tiff", ".btf"} or _is_tiff(path)
        try:
            pixels, self.colors, notes = self._load_tiff(path) if tiff else _load(path)
        except UnsupportedError:  # YCbCr, one bit per pixel
            pixels, self.colors, notes = _load(path)
        self._pixels = self.colors.to_rgb(pixels)
        if self.colors.alpha and (pixels[:, :, -1] < self.colors.white).any():
            notes.append("transparent pixels were rendered on white")
        self.warnings: tuple[str, ...] = (*notes, *filter(None, [self.colors.note]))
        height, width = self._pixels.shape[:2]
        self.levels: tuple[Level, ...] = (Level(width, height, 1.0, 512, 512),)

    def _load_tiff(self, path: Path) -> tuple[AnyArray, Colors, list[str]]:
        try:
            with open_layout(path) as layout:
                self.layout = layout
                pixels = _read_pages(path, layout)
        except (InputError, UnsupportedError):
            raise
        except Exception as error:  # tifffile raises many kinds on damaged files
            raise InputError(f"{path}: not a readable TIFF: {error}") from error
        largest = float(pixels.max()) if pixels.size else 1.0
        colors = layout.colors.scale_white(pixels.dtype, layout.bits, largest)
        notes = list(layout.notes)
        if layout.orientation != 1:
            pixels = _turn(pixels, layout.orientation)
            notes.append(ROTATED)
        return pixels, colors, notes

    def read(self, level: int, x: int, y: int, width: int, height: int, reduce: int = 1) -> U8:
        """Read a rectangle; see `Source.read`."""
        return shrink(crop_padded(self._pixels, x, y, width, height), reduce)

    def close(self) -> None:
        self._pixels = blank(1, 1)


ROTATED = "turned upright as its orientation (EXIF) demands"


def _is_tiff(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def _turn(pixels: AnyArray, orientation: int) -> AnyArray:
    """Apply an EXIF orientation of 2 to 8 to (height, width, samples) values."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels[::-1] if orientation in (3, 4, 7, 8) else pixels


def _load(path: Path) -> tuple[AnyArray, Colors, list[str]]:
    """Load a PNG, JPEG or BMP in upright orientation."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    notes = []
    try:
        with Image.open(path) as image:
            _refuse_large(path, image.width, image.height)
            if image.getexif().get(274, 1) != 1:
                notes.append(ROTATED)
            upright = ImageOps.exif_transpose(image)
            bare = "transparency" not in upright.info
            deep = image.format == "PNG" and _png_depth(path) == 16
            if deep and image.mode in {"RGB", "RGBA"}:  # of which Pillow keeps the high bytes
                pixels: AnyArray = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
                pixels = pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]]
            elif upright.mode in {"I;16", "I;16B", "I;16L", "I", "F"}:
                pixels = np.asarray(upright)
            elif upright.mode in {"L", "1"} and bare:
                pixels = np.asarray(upright.convert("L"))
            elif upright.mode in {"L", "1", "LA"}:
                pixels = np.asarray(upright.convert("LA"))
            elif upright.mode in {"RGBA", "PA"} or not bare:
                pixels = np.asarray(upright.convert("RGBA"))
            else:
                pixels = np.asarray(upright.convert("RGB"))
    except (
        UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError,
    ) as error:  # fmt: skip
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: not a readable slide or image ({error}). Provide an SVS, a tiled TIFF, "
            "OME-TIFF, PNG or JPEG."
        ) from error
    pixels = pixels if pixels.ndim == 3 else pixels[:, :, None]
    if pixels.dtype == np.int32:
        pixels = np.clip(pixels, 0, 65535).astype(np.uint16)
    samples = pixels.shape[2]
    colors = Colors("gray" if samples < 3 else "rgb", samples, alpha=samples in (2, 4))
    return pixels, colors.scale_white(pixels.dtype, None, float(pixels.max())), notes


def _png_depth(path: Path) -> int:
    with path.open("rb") as stream:
        return (stream.read(25) + bytes(25))[24]


def _read_pages(path: Path, layout: Layout) -> AnyArray:
    """Read the chosen plane of a TIFF in full, as (height, width, samples) values."""
    pages = layout.levels[0]
    base = pages[0]
    _refuse_large(path, int(base.imagewidth), int(base.imagelength) * len(pages))
    series = layout.series
    listed = [page for page in ([*series.levels[0].pages] if series else pages) if page is not None]
    end = max(
        (int(o) + int(c) for page in listed
         for o, c in zip(page.dataoffsets, page.databytecounts, strict=True)),
        default=0,
    )  # fmt: skip
    if end > path.stat().st_size:
        raise InputError(
            f"{path}: truncated: the image data extend to byte {end}, but the file ends at byte "
            f"{path.stat().st_size}. Copy it again."
        )
    axes = series.levels[0].axes if series else base.axes
    if series and len(listed) == 1:
        _refuse_large(path, int(np.prod(series.levels[0].shape)), 1)
        pixels, axes = series.levels[0].asarray(), series.levels[0].axes
        for axis, place in layout.index.items():
            pixels = pixels.take(place, axis=axes.index(axis))
            axes = axes.replace(axis, "", 1)
    else:
        pixels, axes = np.stack([page.asarray() for page in pages]), "C" + base.axes
        if len(pages) == 1:
            pixels, axes = pixels[0], base.axes
    channel = next((axes.index(axis) for axis in "SC" if axis in axes), None)
    return pixels[:, :, None] if channel is None else np.moveaxis(pixels, channel, -1)


def _refuse_large(path: Path, width: int, height: int) -> None:
    if width * height > MAX_IMAGE_PIXELS:
        raise InputError(
            f"{path}: {width} x {height} px without a tile pyramid would not fit into memory. "
            "Convert it to a tiled pyramid first, e.g. `vips tiffsave IN OUT.tif --tile "
            "--pyramid --compression jpeg`."
        )
