"""Direct decoding of tiled TIFF and SVS files with tifffile, except for RGB JPEG streams.

RGB JPEG streams are decoded here, so that their pixels equal OpenSlide's. Anything that
tifffile cannot decode raises `UnsupportedError` and is left to OpenSlide.
"""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.slides.arrays import I64, U8, AnyArray
from mcp_servers.slides.layout import Layout, UnsupportedError, open_layout
from mcp_servers.slides.source import WHITE, Level, blank, shrink
from sage.core.errors import InputError

CACHE_BYTES = 48 * 2**20
_JPEG, _JPEG2000_RGB, _JPEG2000_YCBCR = 7, 33005, 33003
_KNOWN = frozenset(
    (1, 5, _JPEG, 8, 32773, 32946, _JPEG2000_RGB, 34712, 34892, 34925, 50000, 50001, 50002)
)
"""Compressions that tifffile can decode tile by tile."""


@dataclass(frozen=True, slots=True)
class _Plane:
    """Tiles for one channel, or for all channels if pixels are interleaved.

    `first` is the number of the first tile in `decode`'s page.
    """

    decode: Callable[..., Any]
    first: int
    offsets: I64
    counts: I64
    tables: bytes | None


@dataclass(frozen=True, slots=True)
class _Directory:
    """A tiled image in the file."""

    level: Level
    planes: tuple[_Plane, ...]
    jpeg_colorspace: str | None
    """Color space of RGB JPEG streams, which are decoded directly; None for anything else."""
    mislabeled: bool
    """True if the color space of the JPEG streams differs from the TIFF tag."""

    @property
    def offsets(self) -> I64:
        return self.planes[0].offsets

    @property
    def counts(self) -> I64:
        return self.planes[0].counts

    @property
    def tables(self) -> bytes | None:
        return self.planes[0].tables

    @property
    def columns(self) -> int:
        return math.ceil(self.level.width / self.level.tile_width)


class TiffSource:
    """Reader that decodes tiles directly from the file; thread-safe."""

    name = "direct"

    def __init__(self, path: Path, pool: Callable[[], ThreadPoolExecutor]) -> None:
        self._path = path
        self._pool = pool
        with open_layout(path) as layout:
            if layout.orientation != 1:
                raise UnsupportedError("not upright")
            self.layout, base = layout, layout.levels[0][0]
            self._colors, dtype = layout.colors, base.dtype
            self._directories = [_directory(pages, base, layout) for pages in layout.levels]
        self.levels = tuple(d.level for d in self._directories)
        self._check_extent()
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._cache: OrderedDict[tuple[int, int], U8] = OrderedDict()
        self._cached = 0
        self._lock = threading.Lock()
        if dtype != np.uint8:
            largest = self._largest() if layout.bits is None or dtype.kind == "f" else 0.0
            self._colors = self._colors.scale_white(dtype, layout.bits, largest)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the chosen image and on its conversion to RGB."""
        return (*self.layout.notes, *filter(None, [self._colors.note]))

    def _largest(self) -> float:
        """Return the largest value in the coarsest level, or in tiles spread over it."""
        directory = self._directories[-1]
        stored = np.flatnonzero(directory.counts > 0)
        chosen = stored[:: max(1, len(stored) // _LOOKED_AT)]
        try:
            return max(float(self._samples(directory, int(n)).max()) for n in chosen)
        except (ValueError, RuntimeError, TypeError) as error:
            raise InputError(f"{self._path}: the tiles cannot be decoded: {error}") from error

    def _check_extent(self) -> None:
        """Refuse a file that declares tiles it does not contain."""
        size = self._path.stat().st_size
        for number, directory in enumerate(self._directories):
            counts = np.concatenate([plane.counts for plane in directory.planes])
            ends = np.concatenate([plane.offsets + plane.counts for plane in directory.planes])
            present = counts > 0
            if not present.any():
                raise InputError(
                    f"{self._path}: level {number} ({directory.level.width} x "
                    f"{directory.level.height} px) has no image data; the file contains only a "
                    "header. Copy or export it again."
                )
            cut = int((present & (ends > size)).sum())
            if cut:
                raise InputError(
                    f"{self._path}: truncated: {cut} of {counts.size} tiles on level "
                    f"{number} are beyond the end of the file ({size} bytes). Copy it "
                    "again."
                )

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._cache.clear()

    def forget(self) -> None:
        """Drop the decoded tiles that are cached for the next read."""
        with self._lock:
            self._cache.clear()
            self._cached = 0

    def first_tile(self, level: int) -> tuple[int, int, int, int] | None:
        """Return the rectangle (x, y, width, height) of a tile with data near the center."""
        directory = self._directories[level]
        present = np.flatnonzero(directory.counts > 0)
        index = int(present[len(present) // 2])
        row, column = divmod(index, directory.columns)
        x, y = column * directory.level.tile_width, row * directory.level.tile_height
        width = min(directory.level.tile_width, directory.level.width - x)
        height = min(directory.level.tile_height, directory.level.height - y)
        return (x, y, width, height) if width > 0 and height > 0 else None

    @property
    def mislabeled(self) -> bool:
        """True if a level's JPEG streams contradict the color space in the TIFF tag."""
        return any(directory.mislabeled for directory in self._directories)

    def has_gaps(self) -> bool:
        """Check whether any tile is empty (OpenSlide fills such tiles in its own way)."""
        return any(bool((d.counts == 0).any()) for d in self._directories)

    def tile(self, level: int, index: int) -> U8:
        """Decode a stored tile to RGB, uncropped; white if the tile is absent."""
        directory = self._directories[level]
        count = int(directory.counts[index])
        if count == 0:
            return blank(directory.level.tile_height, directory.level.tile_width)
        try:
            if directory.jpeg_colorspace is None:
                return _fill(self._colors.to_rgb(self._samples(directory, index)), directory)
            data = os.pread(self._fd, count, int(directory.offsets[index]))
            return _decode(data, directory)
        except (ValueError, RuntimeError, TypeError) as error:
            raise InputError(
                f"{self._path}: tile {index} on level {level} cannot be decoded: {error}. "
                "The file is damaged; copy it again."
            ) from error

    def _samples(self, directory: _Directory, index: int) -> AnyArray:
        """Decode the (height, width, samples) values of a tile."""
        parts = []
        for plane in directory.planes:
            count = int(plane.counts[index])
            data = os.pread(self._fd, count, int(plane.offsets[index])) if count else None
            found = plane.decode(data, plane.first + index, jpegtables=plane.tables, _fullsize=True)
            shape = (directory.level.tile_height, directory.level.tile_width, 1)
            parts.append(np.zeros(shape, np.uint8) if found[0] is None else found[0][0])
        return np.concatenate(parts, axis=2) if len(parts) > 1 else np.asarray(parts[0])

    def _cached_tile(self, level: int, index: int) -> U8:
        key = (level, index)
        with self._lock:
            found = self._cache.get(key)
            if found is not None:
                self._cache.move_to_end(key)
                return found
        tile = self.tile(level, index)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = tile
                self._cached += tile.nbytes
                while self._cached > CACHE_BYTES and len(self._cache) > 1:
                    self._cached -= self._cache.popitem(last=False)[1].nbytes
        return tile

    def _reduced_tile(self, level: int, index: int, reduce: int) -> U8:
        """Read a tile at 1/2, 1/4 or 1/8 size; JPEG tiles are decoded with fewer coefficients."""
        directory = self._directories[level]
        if directory.jpeg_colorspace is None or not directory.counts[index]:
            return shrink(self.tile(level, index), reduce)

        flags = {
            2: cv2.IMREAD_REDUCED_COLOR_2,
            4: cv2.IMREAD_REDUCED_COLOR_4,
            8: cv2.IMREAD_REDUCED_COLOR_8,
        }
        data = os.pread(self._fd, int(directory.counts[index]), int(directory.offsets[index]))
        whole = np.frombuffer(_self_contained(data, directory), dtype=np.uint8)
        image = cv2.imdecode(whole, flags[reduce])
        if image is None:
            return shrink(self.tile(level, index), reduce)
        return np.asarray(image[:, :, ::-1], dtype=np.uint8)

    def read(self, level: int, x: int, y: int, width: int, height: int, reduce: int = 1) -> U8:
        """Read a rectangle; see `Source.read`."""
        directory = self._directories[level]
        tw, th = directory.level.tile_width, directory.level.tile_height
        if reduce > 1 and (tw % reduce or th % reduce or x % reduce or y % reduce):
            return shrink(self.read(level, x, y, width, height), reduce)
        inside = x >= 0 and y >= 0 and x + width <= directory.level.width
        inside = inside and y + height <= directory.level.height
        if inside and reduce == 1 and x % tw == 0 and y % th == 0 and (width, height) == (tw, th):
            return self.tile(level, y // th * directory.columns + x // tw)
        out = blank(math.ceil(height / reduce), math.ceil(width / reduce))
        jobs = list(self._overlapping(directory, x, y, width, height))

        def paste(job: tuple[int, int, int]) -> None:
            index, tile_x, tile_y = job
            if reduce > 1:
                tile = self._reduced_tile(level, index, reduce)
            else:
                tile = self._cached_tile(level, index)
            # the part of the tile inside both the image and the rectangle, in reduced pixels
            limit_x = math.ceil(min(directory.level.width, x + width) / reduce)
            limit_y = math.ceil(min(directory.level.height, y + height) / reduce)
            x0, y0 = max(tile_x, x, 0) // reduce, max(tile_y, y, 0) // reduce
            x1 = min(limit_x, tile_x // reduce + tile.shape[1])
            y1 = min(limit_y, tile_y // reduce + tile.shape[0])
            if x1 <= x0 or y1 <= y0:
                return
            ox, oy = x // reduce, y // reduce
            x1, y1 = min(x1, ox + out.shape[1]), min(y1, oy + out.shape[0])
            left, top = tile_x // reduce, tile_y // reduce
            out[y0 - oy : y1 - oy, x0 - ox : x1 - ox] = tile[
                y0 - top : y1 - top, x0 - left : x1 - left
            ]

        def paste_all(part: list[tuple[int, int, int]]) -> None:
            for job in part:
                paste(job)

        if len(jobs) < 4:
            paste_all(jobs)
        else:
            chunk = max(1, len(jobs) // 16)
            parts = [jobs[i : i + chunk] for i in range(0, len(jobs), chunk)]
            list(self._pool().map(paste_all, parts))
        return out

    @staticmethod
    def _overlapping(
        directory: _Directory, x: int, y: int, width: int, height: int
    ) -> Iterator[tuple[int, int, int]]:
        tw, th = directory.level.tile_width, directory.level.tile_height
        rows = math.ceil(directory.level.height / th)
        for row in range(max(0, y // th), min(rows, math.ceil((y + height) / th))):
            for column in range(
                max(0, x // tw), min(directory.columns, math.ceil((x + width) / tw))
            ):
                yield row * directory.columns + column, column * tw, row * th


def _decode(data: bytes, directory: _Directory) -> U8:
    """Decode a JPEG tile to RGB, padded with white to the full tile size."""
    import imagecodecs

    image = imagecodecs.jpeg8_decode(
        data, tables=directory.tables, colorspace=directory.jpeg_colorspace, outcolorspace="RGB"
    )
    return _fill(np.asarray(image), directory)


def _fill(image: AnyArray, directory: _Directory) -> U8:
    """Pad an RGB tile with white to the full tile size."""
    tile_width, tile_height = directory.level.tile_width, directory.level.tile_height
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(
            f"decoded to shape {image.shape} and type {image.dtype}, expected 8-bit RGB"
        )
    if image.shape[:2] != (tile_height, tile_width):
        padded = np.full((tile_height, tile_width, 3), WHITE, dtype=np.uint8)
        height, width = min(image.shape[0], tile_height), min(image.shape[1], tile_width)
        padded[:height, :width] = image[:height, :width]
        return padded
    return image


def _self_contained(data: bytes, directory: _Directory) -> bytes:
    """Join an abbreviated JPEG stream with its tables, and mark RGB data as such."""
    adobe = b""
    if directory.jpeg_colorspace == "RGB":  # APP14 with transform 0: the components are RGB
        adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
    tables = directory.tables[2:-2] if directory.tables else b""
    return b"\xff\xd8" + adobe + tables + data[2:]


_LOOKED_AT = 16
"""Number of tiles decoded to find the largest sample value."""


def _directory(pages: list[Any], base: Any, layout: Layout) -> _Directory:
    page = pages[0]
    if not page.is_tiled:
        raise UnsupportedError("not tiled")
    photometric, compression = int(page.photometric), int(page.compression)
    if compression not in _KNOWN or (photometric == 6 and compression != _JPEG):
        raise UnsupportedError(f"compression {compression} with photometric {photometric}")
    direct = compression == _JPEG and page.samplesperpixel == 3 and page.bitspersample == 8
    direct = direct and page.planarconfig == 1 and photometric in (2, 6)
    tagged = {2: "RGB", 6: "YCBCR"}.get(photometric)
    colorspace = (_stream_color(page) or tagged) if direct else None
    width, height = int(page.imagewidth), int(page.imagelength)
    ratio = (base.imagewidth / width + base.imagelength / height) / 2
    level = Level(width, height, ratio, int(page.tilewidth), int(page.tilelength))
    tiles = math.ceil(width / level.tile_width) * math.ceil(height / level.tile_height)
    planes = [part for page in pages for part in _planes(page, tiles)]
    return _Directory(level, tuple(planes), colorspace, direct and colorspace != tagged)


def _planes(page: Any, tiles: int) -> Iterator[_Plane]:
    """Yield the planes of a page, one for each sample if they are stored separately."""
    offsets = np.asarray(page.dataoffsets, dtype=np.int64)
    counts = np.asarray(page.databytecounts, dtype=np.int64)
    apart = int(page.samplesperpixel) if int(page.planarconfig) == 2 else 1
    listed, expected = min(offsets.size, counts.size), tiles * apart
    if listed < expected:
        raise InputError(
            f"{page.parent.filehandle.path}: {page.imagewidth} x {page.imagelength} px require "
            f"{expected} tiles, but the file lists {listed}; it is damaged. Copy or export it "
            "again."
        )
    if max(offsets.size, counts.size) > expected:
        raise UnsupportedError("more tiles than fit in a plane of its size")
    decode = page.decode
    for first in range(0, expected, tiles):
        own = slice(first, first + tiles)
        yield _Plane(decode, first, offsets[own], counts[own], page.jpegtables)


def _stream_color(page: Any) -> str | None:
    """Return the color space that the markers in a page's JPEG streams declare, or None.

    Markers are interpreted as decoders do (libjpeg, `default_decompress_parms`): a JFIF
    marker means YCbCr, Adobe's marker names its transform, and components may be called R, G,
    B. Exporters that use Bio-Formats write YCbCr streams under an RGB tag, so the tag decides
    only if the stream declares nothing.
    """
    handle = page.parent.filehandle
    present = next((at for at, count in enumerate(page.databytecounts) if count), None)
    if present is None:
        return None
    handle.seek(page.dataoffsets[present])
    head = handle.read(min(int(page.databytecounts[present]), _LONGEST_HEAD))
    return _marked_color(page.jpegtables or b"") or _marked_color(head)


_LONGEST_HEAD = 1 << 17
"""Maximum number of bytes before a JPEG stream's first scan.

This is two segments of 64 kB, more than any stream has.
"""


def _marked_color(stream: bytes) -> str | None:
    """Return the color space that a JPEG stream's markers declare, or None."""
    at = 2
    while at + 4 <= len(stream) and stream[at] == 0xFF:
        marker, size = stream[at + 1], int.from_bytes(stream[at + 2 : at + 4], "big")
        body = stream[at + 4 : at + 2 + size]
        if marker == 0xE0 and body.startswith(b"JFIF\0"):
            return "YCBCR"
        if marker == 0xEE and body.startswith(b"Adobe") and len(body) >= 12:
            return "YCBCR" if body[11] else "RGB"
        if marker in (0xC0, 0xC1, 0xC2):
            return "RGB" if body[6::3][:3] == b"RGB" else None
        if marker == 0xDA or size < 2:
            return None
        at += 2 + size
    return None
