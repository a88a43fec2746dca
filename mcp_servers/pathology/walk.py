"""Iteration over a slide's tissue in blocks, which limits memory use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mcp_servers.context import ToolContext
from mcp_servers.lazy import cv2
from mcp_servers.slides.arrays import F64, BoolArray
from mcp_servers.slides.source import release
from mcp_servers.slides.view import Block, View


@dataclass(frozen=True)
class Piece(Block):
    """A block of a slide and its (height, width) tissue mask."""

    tissue: BoolArray

    def owns(self, column: F64, row: F64) -> BoolArray:
        """Return a mask of the points (block pixels) inside the block, excluding its halo."""
        top, bottom, left, right = self.inner
        return np.asarray(
            (column >= left) & (column < right) & (row >= top) & (row < bottom), dtype=bool
        )

    def to_seam(self, column: F64, row: F64) -> F64:
        """Compute each point's distance in pixels to the block's border, excluding the halo."""
        top, bottom, left, right = self.inner
        across = np.minimum(column - left, right - column)
        return np.asarray(np.minimum(across, np.minimum(row - top, bottom - row)))


def walk(
    view: View,
    mask: BoolArray,
    mask_scale: float,
    context: ToolContext,
    *,
    size: int = 1024,
    halo: int = 32,
    message: str = "",
    span: tuple[float, float] = (0.0, 1.0),
) -> Iterator[Piece]:
    """Iterate over the blocks of a view that contain part of `mask`.

    Reports progress and handles cancellation. `mask_scale` is level-0 pixels per mask pixel,
    and `span` is the range of overall progress to report.

    Parameters
    ----------
    mask : (height, width)
    size : side of the blocks, view pixels
    halo : margin read around each block, view pixels
    span : start and end, 0 to 1
    """
    ratio = view.scale / mask_scale
    rows, columns = -(-view.height // size), -(-view.width // size)

    def window(x: int, y: int, width: int, height: int) -> BoolArray:
        """Return the part of the mask under a rectangle of the view, at view resolution."""
        x0, y0 = x * ratio, y * ratio
        move = np.array([[ratio, 0, x0], [0, ratio, y0]], dtype=np.float64)
        flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
        border = cv2.BORDER_REPLICATE  # the mask may end within a pixel of its own before the slide
        out = cv2.warpAffine(pixels, move, (width, height), flags=flags, borderMode=border)
        return np.asarray(out, dtype=bool)

    pixels = np.ascontiguousarray(mask).view(np.uint8)
    keep = []
    for row in range(rows):
        for column in range(columns):
            y0, x0 = int(row * size * ratio), int(column * size * ratio)
            y1 = max(y0 + 1, int(np.ceil((row + 1) * size * ratio)))
            x1 = max(x0 + 1, int(np.ceil((column + 1) * size * ratio)))
            if mask[y0:y1, x0:x1].any():
                keep.append((row, column))
    release(view.slide.source)  # what finding the tissue left behind
    for done, block in enumerate(view.blocks(size, halo, keep)):
        height, width = block.image.shape[:2]
        tissue = window(block.x, block.y, width, height)
        yield Piece(block.image, block.x, block.y, block.inner, tissue)
        share = span[0] + (span[1] - span[0]) * (done + 1) / len(keep)
        context.progress(share, message)
