"""What every reader of pixels offers, and the reading of tiles that the tiled ones share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mcp_servers.slides.arrays import U8

WHITE = 255


@dataclass(frozen=True, slots=True)
class Level:
    """One resolution of the pyramid; `downsample` is relative to level 0."""

    width: int
    height: int
    downsample: float
    tile_width: int
    tile_height: int


class Source(Protocol):
    """Reads pixels of one file. Coordinates are integers in the pixels of the given level."""

    name: str
    levels: tuple[Level, ...]

    def read(self, level: int, x: int, y: int, width: int, height: int, reduce: int = 1) -> U8:
        """RGB of a rectangle; white outside the image.

        With `reduce` 2, 4 or 8 the rectangle comes back smaller by that factor (its sides are
        divided and rounded up); sources that cannot do this cheaply read and average.
        """
        ...

    def close(self) -> None: ...


def blank(height: int, width: int) -> U8:
    """A white RGB image."""
    return np.full((height, width, 3), WHITE, dtype=np.uint8)


def shrink(image: U8, factor: int) -> U8:
    """Average blocks of `factor` x `factor` pixels; sides are rounded up."""
    if factor == 1:
        return image
    import cv2

    height, width = image.shape[:2]
    size = (math.ceil(width / factor), math.ceil(height / factor))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def crop_padded(image: U8, x: int, y: int, width: int, height: int) -> U8:
    """A rectangle of an image in memory, white where it leaves the image."""
    image_height, image_width = image.shape[:2]
    x0, y0 = max(x, 0), max(y, 0)
    x1, y1 = min(x + width, image_width), min(y + height, image_height)
    if x0 == x and y0 == y and x1 == x + width and y1 == y + height:
        return np.ascontiguousarray(image[y0:y1, x0:x1])
    out = blank(height, width)
    if x1 > x0 and y1 > y0:
        out[y0 - y : y1 - y, x0 - x : x1 - x] = image[y0:y1, x0:x1]
    return out
