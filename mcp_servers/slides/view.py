"""A slide at one resolution, read as a whole, in parts, or block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.slides.arrays import U8

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_servers.slides.source import Source

MAX_READ_PIXELS = 40_000_000
"""Maximum pixels per read; larger reads are split, bounding memory without a pyramid."""


class Pixels(Protocol):
    """Interface that a view needs from a slide."""

    @property
    def path(self) -> Path: ...

    @property
    def width(self) -> int: ...

    @property
    def height(self) -> int: ...

    @property
    def source(self) -> Source: ...

    def need_mpp(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Block:
    """A rectangle of a view with a halo around it.

    `image` includes the halo; `x`, `y` is the corner of `image` in view pixels (may be negative);
    `inner` is (top, bottom, left, right) of the block itself within `image`.
    """

    image: U8
    x: int
    y: int
    inner: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class View:
    """A slide at one resolution; `scale` is level-0 pixels per view pixel."""

    slide: Pixels
    level: int
    reduce: int
    scale: float
    resample: float

    @property
    def mpp(self) -> float:
        """µm per view pixel."""
        return self.slide.need_mpp() * self.scale

    @property
    def width(self) -> int:
        """Width in view pixels."""
        return max(1, round(self.slide.width / self.scale))

    @property
    def height(self) -> int:
        """Height in view pixels."""
        return max(1, round(self.slide.height / self.scale))

    def read(self, x: int, y: int, width: int, height: int) -> U8:
        """Read a rectangle in view pixels as RGB, white outside the slide."""
        source = self.slide.source
        if self.resample == 1.0:
            r = self.reduce
            return source.read(self.level, x * r, y * r, width * r, height * r, r)

        ratio = self.resample * self.reduce
        x0, y0 = round(x * ratio), round(y * ratio)
        x0, y0 = x0 - x0 % self.reduce, y0 - y0 % self.reduce
        w, h = max(1, round(width * ratio)), max(1, round(height * ratio))
        if w * h > MAX_READ_PIXELS * self.reduce**2 and height > 1:
            half = height // 2
            upper = self.read(x, y, width, half)
            return np.concatenate([upper, self.read(x, y + half, width, height - half)])
        image = source.read(self.level, x0, y0, w, h, self.reduce)
        resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        return np.asarray(resized, dtype=np.uint8)

    def blocks(
        self, size: int, halo: int = 0, keep: Iterable[tuple[int, int]] | None = None
    ) -> Iterator[Block]:
        """Yield blocks of `size` view pixels row by row, reading ahead by one block.

        `keep` contains the (row, column) of the blocks to read; None means all.
        """
        rows, columns = -(-self.height // size), -(-self.width // size)
        wanted = [(r, c) for r in range(rows) for c in range(columns)] if keep is None else keep

        def load(row: int, column: int) -> Block:
            x0, y0 = column * size, row * size
            width, height = min(size, self.width - x0), min(size, self.height - y0)
            image = self.read(x0 - halo, y0 - halo, width + 2 * halo, height + 2 * halo)
            return Block(image, x0 - halo, y0 - halo, (halo, halo + height, halo, halo + width))

        with ThreadPoolExecutor(1, thread_name_prefix="blocks") as pool:
            ahead: Future[Block] | None = None
            for row, column in wanted:
                coming = pool.submit(load, row, column)
                if ahead is not None:
                    yield ahead.result()
                ahead = coming
            if ahead is not None:
                yield ahead.result()
