"""Contents of a TIFF file: the image used as the slide, and its conversion to RGB."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mcp_servers.slides.arrays import U8, AnyArray
from mcp_servers.slides.metadata import (
    find_channels,
    find_magnification,
    imagej_mpp,
    ome_mpp,
    open_tiff,
    resolution_mpp,
)
from sage.core.errors import InputError

ColorKind = Literal["rgb", "gray", "palette", "cmyk", "channels"]
UNREADABLE = "it has no readable directory"
"""Beginning of the reason reported when a file is not a complete TIFF."""
_RGB_WORDS = ("red", "green", "blue")
_RGB_STREAMS = frozenset((6, 7, 33003, 33004, 33005, 34712))
"""Compressions whose decoders convert YCbCr to RGB."""
_NO_NAME = re.compile(r"(c|ch|channel|image|plane|band)?[ :_-]*\d*(:\d+)*", re.IGNORECASE)
_BESIDE = re.compile(r"\b(label|macro|thumb(nail)?|overview|barcode)\b", re.IGNORECASE)
_SILENT = logging.NullHandler()
"""Handler that silences tifffile, since SAGE's own errors report its findings."""


class UnsupportedError(Exception):
    """The file needs another reader; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Colors:
    """Meaning of a pixel's samples.

    Parameters
    ----------
    white : the largest value of a sample
    palette : (n, 3) colors of the values
    order : samples that are red, green and blue
    names : of the channels
    alpha : the last sample is opacity
    inverted : zero is white
    """

    kind: ColorKind = "rgb"
    samples: int = 3
    white: float = 255.0
    palette: U8 | None = None
    order: tuple[int, ...] = (0, 1, 2)
    names: tuple[str, ...] = ()
    alpha: bool = False
    inverted: bool = False

    def to_rgb(self, pixels: AnyArray) -> U8:
        """Convert (height, width, samples) values to RGB; transparent pixels become white."""
        if self.palette is not None:
            return self.palette[np.minimum(pixels[:, :, 0], len(self.palette) - 1)]
        if pixels.dtype != np.uint8 or self.white != 255:
            scaled = pixels.astype(np.float32) * np.float32(255 / self.white)
            pixels = np.clip(scaled + 0.5, 0, 255).astype(np.uint8)
        if self.kind == "cmyk":
            ink = 255 - pixels[:, :, :4].astype(np.uint16)
            return (ink[:, :, :3] * ink[:, :, 3:] // 255).astype(np.uint8)
        if self.kind == "gray":
            shade = 255 - pixels[:, :, :1] if self.inverted else pixels[:, :, :1]
            rgb = np.repeat(shade, 3, axis=2)
        elif self.kind == "channels":  # the first, often of nuclei, is shown in blue
            rgb = np.zeros((*pixels.shape[:2], 3), dtype=np.uint8)
            for channel in range(min(3, pixels.shape[2])):
                rgb[:, :, 2 - channel] = pixels[:, :, channel]
        else:
            rgb = pixels[:, :, list(self.order)]
        if self.alpha:
            opacity = pixels[:, :, -1:].astype(np.uint16)
            rgb = ((rgb.astype(np.uint16) * opacity + 255 * (255 - opacity)) // 255).astype(
                np.uint8
            )
        return np.ascontiguousarray(rgb)

    def scale_white(self, dtype: Any, bits: int | None, largest: float) -> Colors:
        """Set the largest value from the significant bits, or else from the observed values."""
        if dtype == np.uint8 or self.kind == "palette":
            return self
        if dtype.kind == "f":
            return replace(self, white=max(largest, 1e-9) if largest > 1 else 1.0)
        if bits is None or largest >= 2**bits:
            whole = dtype.itemsize * 8 - (dtype.kind == "i")
            bits = next((b for b in (8, 10, 12, 14) if largest < 2**b), whole)
        return replace(self, white=float(2**bits - 1))

    @property
    def note(self) -> str:
        """Note on a color conversion, or an empty string."""
        if self.kind == "channels":
            named = f" ({', '.join(name for name in self.names if name)[:120]})"
            return (
                f"{self.samples} channels{named if any(self.names) else ''}, not a bright-field RGB"
                " image; the first three are shown in false color"
            )
        if self.kind == "gray":
            return GRAY
        if self.white not in (1.0, 255.0):
            bits = math.log2(self.white + 1)
            return f"values scaled from 0-{self.white:g} to 0-255 ({bits:.3g} bits)"
        return ""


GRAY = "grayscale image: stain tools assume an RGB bright-field image"
"""Note for images without color."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Image in a TIFF file that is used as the slide.

    Parameters
    ----------
    levels : the pages of each level, finest first: one, or one for each channel
    series : its tifffile series, or None for a page of a file without such structure
    index : position of the chosen plane on each axis of the series except Y, X, S and C
    bits : significant bits of a sample, if the file states them
    mpp : µm per pixel along x and y
    orientation : as in EXIF; 1 is upright
    converted : OpenSlide, which reads the first page as RGB, would show something else
    """

    levels: list[list[Any]]
    series: Any
    index: dict[str, int]
    colors: Colors
    bits: int | None
    mpp: tuple[float, float] | None
    power: float | None
    orientation: int
    description: str
    is_ome: bool
    notes: tuple[str, ...]
    converted: bool


@contextmanager
def open_layout(path: Path) -> Iterator[Layout]:
    """Open a TIFF file and describe its slide; raises `UnsupportedError` for other contents."""
    import tifffile

    logging.getLogger("tifffile").addHandler(_SILENT)
    try:
        with open_tiff(path) as file:
            if not file.series:
                raise UnsupportedError(UNREADABLE)
            yield read_layout(file)
    except InputError:  # is a ValueError too
        raise
    except (
        tifffile.TiffFileError, ValueError, IndexError, KeyError, TypeError, ZeroDivisionError,
    ) as error:  # fmt: skip
        raise UnsupportedError(f"{UNREADABLE} ({error})") from error


def read_layout(file: Any) -> Layout:
    """Choose the slide image, its plane, and the meaning of its samples."""
    series, page, notes = _choose_image(file)
    index: dict[str, int] = {}
    if series is None:
        levels = [[level] for level in _list_coarser_pages(file, page)]
    else:
        index, said = _choose_plane(series)
        notes += said
        levels = [_list_plane_pages(level, index) for level in series.levels]
    width, height = int(page.imagewidth), int(page.imagelength)
    xml = str(file.ome_metadata or "") if file.is_ome else ""
    names, bits = find_channels(xml, (width, height)) if xml else ((), None)
    tags = {tag.name: tag.value for tag in page.tags.values() if tag.name in _TAGS}
    planes = 1 if series is None else dict(zip(series.axes, series.shape, strict=True)).get("C", 1)
    if series is not None and "S" in series.axes:
        planes = 1
    colors = _read_colors(page, planes, names)
    first = levels[0][0].offset == file.pages[0].offset and planes == 1
    return Layout(
        levels=levels,
        series=series,
        index=index,
        colors=colors,
        bits=bits or _bits(tags.get("MaxSampleValue")),
        mpp=(
            ome_mpp(xml, (width, height))
            or imagej_mpp(file.imagej_metadata or {}, tags)
            or resolution_mpp(tags)
        ),
        power=find_magnification(xml) if xml else None,
        orientation=int(tags.get("Orientation") or 1),
        description=str(page.description or ""),
        is_ome=bool(xml),
        notes=tuple(notes),
        converted=not first or colors.kind != "rgb" or page.dtype != np.uint8,
    )


_TAGS = frozenset(
    ["XResolution", "YResolution", "ResolutionUnit", "MaxSampleValue", "Orientation", "Software"]
)


def _bits(largest: object) -> int | None:
    value = max(largest) if isinstance(largest, tuple) and largest else largest
    return int(value).bit_length() if isinstance(value, int) and value > 255 else None


def _choose_image(file: Any) -> tuple[Any, Any, list[str]]:
    """Choose the largest image that is not a label or macro; name it and the others.

    Files with OME-XML, sub-directories or several planes are described by tifffile's series;
    in others the largest page is the slide, because tifffile would mistake the second page of
    any SVS for a thumbnail.
    """
    found = [series for series in file.series if {"Y", "X"} <= set(series.axes)]
    if not found:
        raise UnsupportedError("no image")
    best = max(found, key=lambda s: (not _BESIDE.search(s.name), _area(s)))
    structured = file.is_ome or best.keyframe.pages or len(best.levels[0].pages) > 1
    if not structured:
        pages = [page.aspage() for page in file.pages]
        page = max(pages, key=lambda p: (p.imagewidth * p.imagelength, -p.index))
        small = [p for p in pages[: page.index] if p is not page]
        if not small:
            return None, page, []
        return None, page, [_name_images(page.index, len(pages), [_size(page)], map(_size, small))]
    others = [s for s in found if s is not best]
    if not others:
        return best, best.keyframe.aspage(), []
    summary = _name_images(found.index(best), len(found), [_title(best)], map(_title, others))
    return best, best.keyframe.aspage(), [summary]


def _name_images(index: int, total: int, own: Any, others: Any) -> str:
    listed = list(others)
    more = f" and {len(listed) - 5} more" if len(listed) > 5 else ""
    return (
        f"image {index + 1} of {total} is read as the slide: {', '.join(own)}; not read: "
        f"{', '.join(listed[:5])}{more}"
    )


def _area(series: Any) -> int:
    return int(series.keyframe.imagewidth) * int(series.keyframe.imagelength)


def _size(page: Any) -> str:
    return f"{page.imagewidth} x {page.imagelength} px"


def _title(series: Any) -> str:
    named = f'"{series.name[:60]}" ' if series.name else ""
    return f"{named}({_size(series.keyframe)})"


def _choose_plane(series: Any) -> tuple[dict[str, int], list[str]]:
    """Choose the middle of a focus stack and the first position on other axes except channels."""
    index, notes = {}, []
    for axis, count in zip(series.axes, series.shape, strict=True):
        if axis in "YXS" or (axis == "C" and "S" not in series.axes):
            continue
        index[axis] = count // 2 if axis == "Z" else 0
        if count > 1:
            what = {"Z": "focus planes", "T": "times"}.get(axis, "planes")
            notes.append(f"plane {index[axis] + 1} of {count} {what} is read")
    return index, notes


def _list_plane_pages(level: Any, index: dict[str, int]) -> list[Any]:
    """List the pages of a level's chosen plane, one for each channel stored separately."""
    outer = [
        (axis, count) for axis, count in zip(level.axes, level.shape, strict=True)
        if axis not in "YXS"
    ]  # fmt: skip
    pages = list(level.pages)
    stored = math.prod(count for _, count in outer)
    if len(pages) == 1 and stored > 1:  # planes without directories of their own
        return pages
    if len(pages) != stored:
        raise UnsupportedError("planes spread over several files")
    channels = next((count for axis, count in outer if axis == "C" and axis not in index), 1)
    shape = [count for _, count in outer] or [1]
    places = [[index.get(axis, channel) for axis, _ in outer] or [0] for channel in range(channels)]
    chosen = [pages[int(np.ravel_multi_index(place, shape))] for place in places]
    if any(page is None for page in chosen):
        raise UnsupportedError("a plane is missing")
    return [page.aspage() for page in chosen]


def _list_coarser_pages(file: Any, base: Any) -> list[Any]:
    """Return the pyramid's pages, finest first: tiled, with the aspect ratio of `base`."""
    pages = [base]
    for page in list(file.pages)[base.index + 1 :]:
        page = page.aspage()
        if not page.is_tiled or page.imagewidth >= pages[-1].imagewidth:
            continue
        ratio = base.imagewidth / page.imagewidth
        expected = base.imagelength / ratio
        if abs(page.imagelength - expected) <= max(2.0, 0.02 * expected):
            pages.append(page)
    return pages


def _read_colors(page: Any, planes: int, names: tuple[str, ...]) -> Colors:
    photometric, samples = int(page.photometric), int(page.samplesperpixel)
    if page.dtype is None or page.dtype.kind not in "uif":
        raise UnsupportedError(f"pixel type {page.dtype}")
    extra = [int(kind) for kind in page.extrasamples or ()]
    alpha = bool(extra) and extra[-1] in (1, 2)
    total = samples * planes
    if photometric == 6 and int(page.compression) not in _RGB_STREAMS:
        raise UnsupportedError("YCbCr without JPEG")
    if planes > 1 and samples > 1:
        raise UnsupportedError("multiple planes with multiple samples per pixel")
    if photometric == 3 and page.colormap is not None:
        palette = np.asarray(page.colormap).T
        eight = palette // 257 if palette.max() > 255 else palette
        return Colors("palette", 1, palette=np.ascontiguousarray(eight, dtype=np.uint8))
    if photometric == 5 and total >= 4:
        return Colors("cmyk", total)
    if photometric in (2, 6) and planes == 1 and samples >= 3:
        return Colors(samples=samples, alpha=alpha and samples == 4)
    if photometric in (0, 1) and total - alpha == 1:
        return Colors("gray", total, alpha=alpha, inverted=photometric == 0)
    if photometric in (0, 1, 2) and total - alpha == 3:
        order = find_rgb_order(names)
        if order is not None:
            return Colors(samples=total, order=order, names=names, alpha=alpha)
    if photometric in (0, 1, 2):
        return Colors("channels", total, names=names)
    raise UnsupportedError(f"photometric interpretation {photometric}")


def find_rgb_order(names: tuple[str, ...]) -> tuple[int, ...] | None:
    """Find the planes that are red, green and blue; None if the channels have other names."""
    if all(_NO_NAME.fullmatch(name) for name in names):
        return (0, 1, 2)
    found = [
        next(
            (n for n, name in enumerate(names) if re.match(rf"{word}\b|{word[0]}$", name, re.I)),
            None,
        )
        for word in _RGB_WORDS
    ]
    return None if None in found else tuple(n for n in found if n is not None)
