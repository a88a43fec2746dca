"""PNG pictures: overlays of masks, squares and outlines on a thumbnail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mcp_servers.slides.arrays import F32, F64, I64, U8, BoolArray
from mcp_servers.slides.geometry import Polygon

Color = tuple[int, int, int]


def write_png(path: Path, image: U8 | BoolArray) -> None:
    """Write an RGB or gray image, or a mask (0 and 255), as PNG."""
    from PIL import Image

    pixels = image.astype(np.uint8) * 255 if image.dtype == np.bool_ else image
    Image.fromarray(np.ascontiguousarray(pixels)).save(path, format="PNG", compress_level=4)


def blend_mask(
    image: U8, mask: BoolArray, color: Color, opacity: float = 0.4, outline: bool = True
) -> U8:
    """Tint the pixels under a mask (resized to the image) and, if asked, outline it."""
    import cv2

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
    """Outline polygons (level-0 pixels) on an image of `scale` level-0 pixels per pixel."""
    import cv2

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
    """Filled, outlined squares colored by label (Figure 7 of the paper)."""
    import cv2

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
    """Colors of scores (n,) or (H, W), from blue over green to yellow (viridis)."""
    import cv2

    span = max(high - low, 1e-12)
    gray = np.empty(values.shape, dtype=np.uint8)
    for top in range(0, len(values), 256):  # a map of a whole slide is large
        part = values[top : top + 256].astype(np.float64)
        gray[top : top + 256] = np.clip((part - low) / span * 255, 0, 255)
    colored = cv2.applyColorMap(np.atleast_2d(gray), cv2.COLORMAP_VIRIDIS)[:, :, ::-1]
    return np.asarray(colored if values.ndim == 2 else colored[0], dtype=np.uint8)


def whiten(image: U8, keep: BoolArray) -> None:
    """White where `keep` is not, in place; by rows, as numpy's index of a whole slide is large."""
    for row, inside in zip(image, keep, strict=True):
        row[~inside] = 255
