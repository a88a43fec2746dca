"""Direct decoding of tiled TIFF and SVS, with tifffile for directories and imagecodecs for tiles.

Only encodings whose pixels equal OpenSlide's are supported (8-bit RGB, JPEG, JPEG 2000 with RGB
data, deflate, LZW, none); everything else raises `UnsupportedError` and is left to OpenSlide.
"""

from __future__ import annotations

import logging
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
from mcp_servers.slides.arrays import I64, U8
from mcp_servers.slides.metadata import open_tiff
from mcp_servers.slides.source import WHITE, Level, blank, shrink
from sage.core.errors import InputError

CACHE_BYTES = 48 * 2**20
UNREADABLE = "it has no readable directory"
"""Beginning of the reason given if a file is not a complete TIFF."""
_JPEG, _JPEG2000_RGB, _JPEG2000_YCBCR = 7, 33005, 33003
_PLAIN = {1: "none", 5: "lzw", 8: "deflate", 32946: "deflate"}


_SILENT = logging.NullHandler()
"""Handler that silences tifffile, whose findings appear in SAGE's own errors."""


class UnsupportedError(Exception):
    """The file needs another reader; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class _Directory:
    """A tiled image of the file."""

    level: Level
    offsets: I64
    counts: I64
    compression: int
    jpeg_colorspace: str
    tables: bytes | None
    predictor: int
    mislabeled: bool
    """Whether the color space of the JPEG streams differs from the TIFF tag."""

    @property
    def columns(self) -> int:
        return math.ceil(self.level.width / self.level.tile_width)


class TiffSource:
    """Reader that decodes tiles directly from the file; thread-safe."""

    name = "direct"

    def __init__(self, path: Path, pool: Callable[[], ThreadPoolExecutor]) -> None:
        self._path = path
        self._pool = pool
        self._directories, self.description, self.tags = _parse(path)
        self.levels = tuple(d.level for d in self._directories)
        self._check_extent()
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self._cache: OrderedDict[tuple[int, int], U8] = OrderedDict()
        self._cached = 0
        self._lock = threading.Lock()

    def _check_extent(self) -> None:
        """Refuse a file that declares tiles it does not contain."""
        size = self._path.stat().st_size
        for number, directory in enumerate(self._directories):
            present = directory.counts > 0
            if not present.any():
                raise InputError(
                    f"{self._path}: level {number} ({directory.level.width} x "
                    f"{directory.level.height} px) has no image data; the file contains only a "
                    "header. Copy or export it again."
                )
            cut = int((present & (directory.offsets + directory.counts > size)).sum())
            if cut:
                raise InputError(
                    f"{self._path}: truncated: {cut} of {directory.counts.size} tiles of level "
                    f"{number} are beyond the end of the file ({size} bytes). Copy it again."
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
        """Return the rectangle (x, y, width, height) of a tile with data near the middle."""
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
        """True if a level's JPEG streams contradict the TIFF tag about their color space."""
        return any(directory.mislabeled for directory in self._directories)

    def has_gaps(self) -> bool:
        """Check whether any tile has no bytes (OpenSlide fills such tiles in its own way)."""
        return any(bool((d.counts == 0).any()) for d in self._directories)

    def tile(self, level: int, index: int) -> U8:
        """Decode a stored tile to RGB, uncropped; white if the tile is absent."""
        directory = self._directories[level]
        count = int(directory.counts[index])
        if count == 0:
            return blank(directory.level.tile_height, directory.level.tile_width)
        data = os.pread(self._fd, count, int(directory.offsets[index]))
        try:
            return _decode(data, directory)
        except (ValueError, RuntimeError, TypeError) as error:
            raise InputError(
                f"{self._path}: tile {index} of level {level} cannot be decoded: {error}. "
                "The file is damaged; copy it again."
            ) from error

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
        """Read a tile at 1/2, 1/4 or 1/8; a JPEG tile is decoded with fewer coefficients."""
        directory = self._directories[level]
        if directory.compression != _JPEG or not directory.counts[index]:
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
    """Decode an encoded tile to RGB, padded with white to the full tile size."""
    import imagecodecs

    tile_width, tile_height = directory.level.tile_width, directory.level.tile_height
    if directory.compression == _JPEG:
        image = imagecodecs.jpeg8_decode(
            data, tables=directory.tables, colorspace=directory.jpeg_colorspace, outcolorspace="RGB"
        )
    elif directory.compression == _JPEG2000_RGB:
        image = imagecodecs.jpeg2k_decode(data)
    else:
        kind = _PLAIN[directory.compression]
        if kind == "deflate":
            data = bytes(imagecodecs.zlib_decode(data))
        elif kind == "lzw":
            data = bytes(imagecodecs.lzw_decode(data))
        image = np.frombuffer(data, dtype=np.uint8)[: tile_width * tile_height * 3]
        image = image.reshape(tile_height, tile_width, 3)
        if directory.predictor == 2:
            image = np.cumsum(image, axis=1, dtype=np.uint8)
    image = np.asarray(image)
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"decoded to shape {image.shape} of {image.dtype}, not 8-bit RGB")
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


def _parse(path: Path) -> tuple[list[_Directory], str, dict[str, Any]]:
    """Read the levels of the first series; raise `UnsupportedError` for other encodings."""
    import tifffile

    logging.getLogger("tifffile").addHandler(_SILENT)
    try:
        with open_tiff(path) as file:
            if not file.series:
                raise UnsupportedError(UNREADABLE)
            pages = _level_pages(file)
            base = pages[0]
            tags: dict[str, Any] = {"ome": file.ome_metadata if file.is_ome else None}
            for name in ("XResolution", "YResolution", "ResolutionUnit", "Software"):
                tag = base.tags.get(name)
                tags[name] = None if tag is None else tag.value
            directories = [_directory(page, base) for page in pages]
            return directories, str(base.description or ""), tags
    except InputError:  # is a ValueError too
        raise
    except (
        tifffile.TiffFileError, ValueError, IndexError, KeyError, TypeError, ZeroDivisionError,
    ) as error:  # fmt: skip
        raise UnsupportedError(f"{UNREADABLE} ({error})") from error


def _level_pages(file: Any) -> list[Any]:
    """Return the pages of the pyramid, finest first.

    OME-TIFF stores them in sub-directories, which tifffile resolves. In other files they are the
    tiled pages with the same aspect ratio as the first; tifffile alone would take the second page
    of any SVS for a thumbnail.
    """
    series = file.series[0]
    if file.is_ome or len(series.keyframe.pages or ()) > 0:
        for level in series.levels:
            if len(level.pages) != 1:
                raise UnsupportedError("several planes")
        return [level.keyframe for level in series.levels]
    base = file.pages[0]
    pages = [base]
    for page in list(file.pages)[1:]:
        page = page.aspage()
        if not page.is_tiled or page.imagewidth >= pages[-1].imagewidth:
            continue
        ratio = base.imagewidth / page.imagewidth
        expected = base.imagelength / ratio
        if abs(page.imagelength - expected) <= max(2.0, 0.02 * expected):
            pages.append(page)
    return pages


def _directory(page: Any, base: Any) -> _Directory:
    if not page.is_tiled:
        raise UnsupportedError("not tiled")
    if page.samplesperpixel != 3 or page.bitspersample != 8 or page.planarconfig != 1:
        raise UnsupportedError("not 8-bit RGB with interleaved samples")
    photometric, compression = int(page.photometric), int(page.compression)
    mislabeled = False
    if compression == _JPEG:
        tagged = {2: "RGB", 6: "YCBCR"}.get(photometric)
        colorspace = _stream_color(page) or tagged
        mislabeled = colorspace != tagged
    elif compression == _JPEG2000_RGB or compression in _PLAIN:
        colorspace = "RGB" if photometric == 2 or compression == _JPEG2000_RGB else None
    else:
        colorspace = None
    if colorspace is None:
        raise UnsupportedError(f"compression {compression} with photometric {photometric}")
    width, height = int(page.imagewidth), int(page.imagelength)
    ratio = (base.imagewidth / width + base.imagelength / height) / 2
    level = Level(width, height, ratio, int(page.tilewidth), int(page.tilelength))
    offsets = np.asarray(page.dataoffsets, dtype=np.int64)
    counts = np.asarray(page.databytecounts, dtype=np.int64)
    expected = math.ceil(width / level.tile_width) * math.ceil(height / level.tile_height)
    listed = min(offsets.size, counts.size)
    if listed < expected:
        raise InputError(
            f"{page.parent.filehandle.path}: {width} x {height} px require {expected} tiles, but "
            f"the file lists {listed}; it is damaged. Copy or export it again."
        )
    if max(offsets.size, counts.size) > expected:
        raise UnsupportedError("more tiles than a plane of its size has")
    predictor = int(page.predictor)
    if predictor not in (1, 2):
        raise UnsupportedError(f"predictor {predictor}")
    return _Directory(
        level, offsets, counts, compression, colorspace, page.jpegtables, predictor, mislabeled
    )


def _stream_color(page: Any) -> str | None:
    """Return the color space that a page's JPEG streams state in their markers, or None.

    Markers are interpreted as decoders do (libjpeg, `default_decompress_parms`): a JFIF marker
    means YCbCr, Adobe's marker names its transform, and components may be called R, G, B. Exporters
    that use Bio-Formats write YCbCr streams under the tag of RGB, so the tag decides only if the
    stream states nothing.
    """
    handle = page.parent.filehandle
    present = next((at for at, count in enumerate(page.databytecounts) if count), None)
    if present is None:
        return None
    handle.seek(page.dataoffsets[present])
    head = handle.read(min(int(page.databytecounts[present]), _LONGEST_HEAD))
    return _marked_color(page.jpegtables or b"") or _marked_color(head)


_LONGEST_HEAD = 1 << 17
"""Maximum number of bytes before the first scan of a JPEG stream.

This is two segments of 64 kB, more than any stream has.
"""


def _marked_color(stream: bytes) -> str | None:
    """Return the color space that the markers of a JPEG stream state, or None."""
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
