"""PNG images: overlays of masks, squares and outlines on a thumbnail."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.slides.arrays import F32, F64, I64, U8, BoolArray
from mcp_servers.slides.geometry import Polygon

Color = tuple[int, int, int]


def write_png(path: Path, image: U8 | BoolArray) -> None:
    """Write an RGB image, a grayscale image, or a mask (as 0 and 255) to a PNG file."""
    from PIL import Image

    pixels = image.astype(np.uint8) * 255 if image.dtype == np.bool_ else image
    Image.fromarray(np.ascontiguousarray(pixels)).save(path, format="PNG", compress_level=4)


def write_png_rows(path: Path, width: int, height: int, parts: Iterable[U8]) -> None:
    """Write a PNG from RGB rows that arrive in parts, without holding the whole image in memory.

    Rows are stored as differences from the row above (filter 2), which suits maps. The parts
    are arrays of shape (rows, width, 3) with red, green and blue. Raises `ValueError` if the
    parts do not add up to `height` rows of `width` pixels.
    """
    packer, above, seen = zlib.compressobj(4), np.zeros((1, width * 3), np.uint8), 0
    with path.open("wb") as stream:

        def chunk(kind: bytes, data: bytes) -> None:
            crc = zlib.crc32(kind + data)
            stream.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc))

        stream.write(b"\x89PNG\r\n\x1a\n")
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        for part in parts:
            rows = part.reshape(len(part), width * 3)
            filtered = np.full((len(rows), width * 3 + 1), 2, dtype=np.uint8)
            np.subtract(rows, np.concatenate([above, rows[:-1]]), out=filtered[:, 1:])
            above, seen = rows[-1:].copy(), seen + len(rows)
            if packed := packer.compress(filtered.tobytes()):
                chunk(b"IDAT", packed)
        if seen != height:
            raise ValueError(f"got {seen} rows for an image with {height} rows")
        chunk(b"IDAT", packer.flush())
        chunk(b"IEND", b"")


def blend_mask(
    image: U8, mask: BoolArray, color: Color, opacity: float = 0.4, outline: bool = True
) -> U8:
    """Tint the pixels under a mask (resized to the image) and optionally outline it.

    Parameters
    ----------
    image : (height, width, 3)
    mask : two-dimensional, of any size; true for pixels to tint
    color : red, green, blue, 0 to 255
    opacity : 0 leaves the image unchanged, 1 covers it

    Returns
    -------
    A new image of the same size.
    """
    height, width = image.shape[:2]
    own = cv2.resize(mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST)
    inside = own.astype(bool)
    out = image.copy()
    mixed = image[inside] * (1 - opacity) + np.array(color) * opacity
    out[inside] = mixed.astype(np.uint8)
    if not outline:
        return out
    contours, _ = cv2.findContours(own, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    cv2.drawContours(out, contours, -1, color, max(1, round(max(height, width) / 1000)))
    return out


def draw_polygons(
    image: U8, polygons: Sequence[Polygon], scale: float, color: Color, thickness: int = 2
) -> U8:
    """Draw the outlines of polygons on an image.

    Parameters
    ----------
    image : (height, width, 3)
    polygons : outlines in level-0 pixels
    scale : level-0 pixels per image pixel
    color : red, green, blue, 0 to 255
    thickness : line thickness, in image pixels

    Returns
    -------
    A new image of the same size.
    """
    out = image.copy()
    for polygon in polygons:
        for ring in (polygon.exterior, *polygon.holes):
            points = np.round(ring / scale).astype(np.int32)
            cv2.polylines(out, [points], True, color, thickness, cv2.LINE_AA)
    return out


def draw_squares(
    image: U8,
    corners: I64,
    size: float,
    scale: float,
    colors: Mapping[str, Color],
    labels: Sequence[str],
    opacity: float = 0.35,
) -> U8:
    """Draw filled, outlined squares colored by label (Figure 7 in the paper).

    Parameters
    ----------
    image : (height, width, 3)
    corners : (n, 2) upper-left corners, level-0 pixels
    size : side length, level-0 pixels
    scale : level-0 pixels per image pixel
    opacity : fill opacity, 0 to 1

    Returns
    -------
    A new image of the same size.
    """
    fill = image.copy()
    boxes = []
    for (x, y), label in zip(corners, labels, strict=True):
        a = (round(x / scale), round(y / scale))
        b = (round((x + size) / scale) - 1, round((y + size) / scale) - 1)
        boxes.append((a, b, colors[label]))
        cv2.rectangle(fill, a, b, colors[label], -1)
    out = cv2.addWeighted(fill, opacity, image, 1 - opacity, 0)
    if scale and size / scale >= 4:
        for a, b, color in boxes:
            cv2.rectangle(out, a, b, color, 1)
    return np.asarray(out, dtype=np.uint8)


def colorize(values: F64 | F32, low: float, high: float) -> U8:
    """Map scores of shape (n,) or (H, W) to viridis colors, from blue through green to yellow."""
    span = max(high - low, 1e-12)
    gray = np.clip((values.astype(np.float64) - low) / span * 255, 0, 255).astype(np.uint8)
    colored = cv2.applyColorMap(np.atleast_2d(gray), cv2.COLORMAP_VIRIDIS)[:, :, ::-1]
    return np.asarray(colored if values.ndim == 2 else colored[0], dtype=np.uint8)
