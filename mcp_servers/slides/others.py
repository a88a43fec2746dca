"""Readers for files that are not decoded directly: OpenSlide, and images held in memory."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from pathlib import Path

import numpy as np

from mcp_servers.slides.arrays import U8, AnyArray
from mcp_servers.slides.metadata import open_tiff
from mcp_servers.slides.source import Level, blank, crop_padded, shrink
from sage.core.errors import InputError

MAX_IMAGE_PIXELS = 200_000_000
"""Maximum size of images without a pyramid, held in memory; larger ones must be converted first."""
READ_PIXELS = 4_000_000
"""Maximum number of pixels read from OpenSlide at once, at 20 bytes per pixel."""
LONGEST_INDEX = 1 << 20
"""Maximum length of the index of a multi-file slide that OpenSlide reads, in bytes."""
GRAY = "grayscale image: stain tools assume an RGB bright-field image"
"""Warning for images without color."""


class OpenSlideSource:
    """Reader for any format that OpenSlide supports."""

    name = "openslide"

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
                f"{self._path}: pixels at {at} of level {level} cannot be read: {error}. "
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

    OpenSlide would read such a file from anywhere on this machine, because it joins each name to
    the folder. Raises `InputError` if a MIRAX or Hamamatsu index names such a file.
    """
    mirax = Path(str(path).removesuffix(".mrxs")) / "Slidedat.ini"
    for index, mark in ((path, b"Virtual Microscope Specimen]"), (mirax, b"")):
        if index.is_file():
            with index.open("rb") as stream:
                text = stream.read(LONGEST_INDEX)
            if mark in text and (b"../" in text or b"..\\" in text):
                raise InputError(f"{path}: its index refers to a file outside its own folder")


def _refuse_views(path: Path) -> None:
    """Refuse a slide that is a database (Sakura) containing anything but tables.

    OpenSlide queries the file's tables even to detect its format, and a view in place of a table
    could make the query run forever. Raises `InputError` if the file contains anything but tables,
    or cannot be read as a database.
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
        raise InputError(f"{path}: an unreadable database: {error}") from error
    plain = ("create table", "create index", "create unique index")
    if not all(sql.lower().startswith(plain) for sql in held if sql):
        raise InputError(f"{path}: the database contains more than tables, which no scanner writes")


class ImageSource:
    """Reader for a plain image in memory: PNG, JPEG, TIFF without tiles, OME-TIFF planes."""

    name = "image"

    def __init__(self, path: Path) -> None:
        pixels, self.warnings = as_rgb8(_load(path), path)
        self._pixels = pixels
        height, width = pixels.shape[:2]
        self.levels: tuple[Level, ...] = (Level(width, height, 1.0, 512, 512),)

    def read(self, level: int, x: int, y: int, width: int, height: int, reduce: int = 1) -> U8:
        """Read a rectangle; see `Source.read`."""
        return shrink(crop_padded(self._pixels, x, y, width, height), reduce)

    def close(self) -> None:
        self._pixels = blank(1, 1)


def _load(path: Path) -> AnyArray:
    if path.suffix.lower() in {".tif", ".tiff", ".btf"}:
        return _load_tiff(path)
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            _refuse_large(path, image.width, image.height)
            if image.mode in {"I;16", "I;16B", "I;16L", "I", "F"}:
                return np.asarray(image)
            if image.mode == "LA" or (image.mode in {"L", "1"} and "transparency" in image.info):
                return np.asarray(image.convert("LA"))
            if image.mode in {"L", "1"}:
                return np.asarray(image.convert("L"))
            if image.mode in {"RGBA", "PA"} or "transparency" in image.info:
                return np.asarray(image.convert("RGBA"))
            return np.asarray(image.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(
            f"{path}: not a readable slide or image ({error}). Provide an SVS, a tiled TIFF, "
            "OME-TIFF, PNG or JPEG."
        ) from error


def _load_tiff(path: Path) -> AnyArray:
    try:
        with open_tiff(path) as file:
            level = file.series[0]
            axes, shape = level.axes, level.shape
            sizes = dict(zip(axes, shape, strict=True))
            _refuse_large(path, sizes.get("X", 0), sizes.get("Y", 0))
            end = max(
                (int(o) + int(c) for page in level.pages if page is not None
                 for o, c in zip(page.dataoffsets, page.databytecounts, strict=True)),
                default=0,
            )  # fmt: skip
            if end > path.stat().st_size:
                raise InputError(
                    f"{path}: truncated: its data end at byte {end}, but the file ends at "
                    f"{path.stat().st_size}. Copy it again."
                )
            pixels = level.asarray()
    except InputError:
        raise
    except Exception as error:  # tifffile raises many kinds on damaged files
        raise InputError(f"{path}: not a readable TIFF: {error}") from error
    for axis in [a for a in axes if a not in "YXSC"]:
        index = axes.index(axis)
        pixels = pixels.take(0, axis=index)
        axes = axes.replace(axis, "", 1)
    channel = "S" if "S" in axes else "C" if "C" in axes else ""
    if channel:
        pixels = np.moveaxis(pixels, axes.index(channel), -1)
    return np.asarray(pixels)


def _refuse_large(path: Path, width: int, height: int) -> None:
    if width * height > MAX_IMAGE_PIXELS:
        raise InputError(
            f"{path}: {width} x {height} px without a tile pyramid would not fit into memory. "
            "Convert it to a tiled pyramid first, e.g. `vips tiffsave IN OUT.tif --tile "
            "--pyramid --compression jpeg`."
        )


def as_rgb8(pixels: AnyArray, path: Path) -> tuple[U8, tuple[str, ...]]:
    """Convert an image of any depth and channel count to 8-bit RGB, and describe the conversion.

    Transparent pixels are blended with white; 16-bit and float data are scaled by their range.
    """
    notes: list[str] = []
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
        notes.append(GRAY)
    if pixels.ndim != 3 or pixels.shape[2] not in (2, 3, 4):
        raise InputError(
            f"{path}: an image of shape {pixels.shape} is not RGB; fluorescence and multi-channel "
            "images are not supported."
        )
    if pixels.dtype != np.uint8:
        top = float(pixels.max()) if pixels.size else 1.0
        scale = 65535.0 if pixels.dtype == np.uint16 and top > 4095 else max(top, 1e-9)
        pixels = np.clip(pixels.astype(np.float32) * (255.0 / scale), 0, 255).astype(np.uint8)
        notes.append(f"values scaled from 0-{scale:g} to 0-255")
    if pixels.shape[2] == 2:
        pixels = np.concatenate([np.repeat(pixels[:, :, :1], 3, axis=2), pixels[:, :, 1:]], axis=2)
        notes.append(GRAY)
    if pixels.shape[2] == 4:
        alpha = pixels[:, :, 3:].astype(np.uint16)
        if (alpha < 255).any():
            mixed = pixels[:, :, :3].astype(np.uint16) * alpha + 255 * (255 - alpha)
            pixels = (mixed // 255).astype(np.uint8)
            notes.append("transparent pixels were rendered on white")
        else:
            pixels = pixels[:, :, :3]
    return np.ascontiguousarray(pixels), tuple(notes)
