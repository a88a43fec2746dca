"""Protocol for pixel readers, and helpers for reading tiles."""

from __future__ import annotations

import ctypes
import math
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.slides.arrays import U8
from sage.core.errors import InputError

WHITE = 255


@dataclass(frozen=True, slots=True)
class Level:
    """A resolution level of the pyramid; `downsample` is relative to level 0."""

    width: int
    height: int
    downsample: float
    tile_width: int
    tile_height: int


class Source(Protocol):
    """Reader of a file's pixels; coordinates are integers in pixels of the given level."""

    name: str
    levels: tuple[Level, ...]

    def read(self, level: int, x: int, y: int, width: int, height: int, reduce: int = 1) -> U8:
        """Read a rectangle as RGB, white outside the image.

        With `reduce` 2, 4 or 8, the rectangle is returned smaller by that factor (its sides are
        divided and rounded up); sources that cannot do this cheaply read in full and average.

        Parameters
        ----------
        level : 0 is the largest
        x, y : corner, pixels of the level
        width, height : pixels of the level
        reduce : 1, 2, 4 or 8
        """
        ...

    def close(self) -> None: ...


def blank(height: int, width: int) -> U8:
    """Create a white RGB image."""
    return np.full((height, width, 3), WHITE, dtype=np.uint8)


def shrink(image: U8, factor: int) -> U8:
    """Average blocks of `factor` x `factor` pixels; sides are rounded up."""
    if factor == 1:
        return image

    height, width = image.shape[:2]
    size = (math.ceil(width / factor), math.ceil(height / factor))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def crop_padded(image: U8, x: int, y: int, width: int, height: int) -> U8:
    """Crop a rectangle from an image in memory, white where it extends beyond the image."""
    image_height, image_width = image.shape[:2]
    x0, y0 = max(x, 0), max(y, 0)
    x1, y1 = min(x + width, image_width), min(y + height, image_height)
    if x0 == x and y0 == y and x1 == x + width and y1 == y + height:
        return np.ascontiguousarray(image[y0:y1, x0:x1])
    out = blank(height, width)
    if x1 > x0 and y1 > y0:
        out[y0 - y : y1 - y, x0 - x : x1 - x] = image[y0:y1, x0:x1]
    return out


COLOR_TOLERANCE = 16.0
"""Maximum difference in mean color between levels, out of 255.

In the scans tested, resampling and compression change the mean of a field between
neighboring levels by less than 4; reading YCbCr as RGB shifts white itself by 127.
"""
_FIELD = 64


def refuse_discolored(path: Path, source: Source) -> None:
    """Refuse a pyramid whose levels show the same field in different colors.

    The most colorful field of the coarsest level is compared between each pair of consecutive
    levels. Raises `InputError` if the mean color differs by more than `COLOR_TOLERANCE` in
    any channel.
    """
    levels = source.levels
    if len(levels) < 2:
        return
    last = levels[-1]
    x, y = _most_colorful(source, len(levels) - 1)
    for finer, (fine, coarse) in enumerate(pairwise(levels)):
        ratio = coarse.downsample / fine.downsample
        side = min(_FIELD, coarse.width, coarse.height)
        left, top = (
            max(0, min(int(value * last.downsample / coarse.downsample), most - side))
            for value, most in ((x, coarse.width), (y, coarse.height))
        )
        below = source.read(finer + 1, left, top, side, side)
        wide = round(side * ratio)
        above = source.read(finer, round(left * ratio), round(top * ratio), wide, wide)
        means = [image.reshape(-1, 3).mean(axis=0) for image in (above, below)]
        if any(mean.min() >= WHITE for mean in means):  # a tile that a level does not store
            continue
        if np.abs(means[0] - means[1]).max() > COLOR_TOLERANCE:
            colors = ["/".join(f"{value:.0f}" for value in mean) for mean in means]
            raise InputError(
                f"{path}: levels {finer} and {finer + 1} show the same tissue in different "
                f"colors (mean RGB {colors[0]} and {colors[1]}), so one of them is mislabeled. "
                "Export it again"
            )


def _most_colorful(source: Source, level: int) -> tuple[int, int]:
    """Find the corner of the field in a level whose channels differ the most."""
    here = source.levels[level]
    best, corner = -1.0, (0, 0)
    step = max(_FIELD, math.ceil(max(here.width, here.height) / 16))
    for top in range(0, here.height, step):
        for left in range(0, here.width, step):
            field = source.read(level, left, top, _FIELD, _FIELD).astype(np.int16)
            spread = float((field.max(axis=2) - field.min(axis=2)).mean())
            if spread > best:
                best, corner = spread, (left, top)
    return corner


DARK_FIELD = 60
"""Value, out of 255, that a bright-field image's brightest spots exceed in all channels."""
COLORLESS = 6
"""Maximum difference between the channels of a pixel that still counts as gray."""


def doubt_bright_field(image: U8, *, gray: bool = False) -> str:
    """Check for signs that an image does not show stained tissue in transmitted light.

    Transmitted light is bright in every color where there is least stain; fluorescence is
    dark there. Black fill is excluded. Returns the reason for the doubt, or an empty string.
    """
    pixels = image.reshape(-1, 3).astype(np.int16)
    low, high = pixels.min(axis=1), pixels.max(axis=1)
    lit = high > 8
    if lit.any() and np.quantile(low[lit], 0.98) < DARK_FIELD:
        return "an image on a dark ground, as in fluorescence"
    colored = np.quantile(high - low, 0.999) > COLORLESS
    if not colored and not gray and np.quantile(high, 0.05) < 200:
        return "an image without color"
    return ""


def release(source: Source) -> None:
    """Drop decoded tiles after a pass over a slide, and return freed memory to the system.

    Iterating over blocks leaves holes in the heap that the C library would keep; glibc
    returns them on request. On other systems, only the tiles are dropped.
    """
    forget = getattr(source, "forget", None)
    if forget is not None:
        forget()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
