"""Baselines for a detector: the slide's center, and its cells."""

from __future__ import annotations

import numpy as np

from mcp_servers.slides.arrays import F64, U8, BoolArray

GLASS = 225
"""Value that a pixel's darkest channel, after blurring, must exceed to count as glass."""
APART = 0.4


def tissue_mask(thumbnail: U8) -> BoolArray:
    """Compute a tissue mask for a thumbnail."""
    import cv2

    return np.asarray(cv2.GaussianBlur(thumbnail, (0, 0), 1.0).min(axis=2) < GLASS, dtype=bool)


def center_bias(thumbnail: U8) -> F64:
    """Compute a Gaussian at the center of the slide, a quarter of its sides wide."""
    height, width = thumbnail.shape[:2]
    y, x = np.mgrid[0:height, 0:width]
    away = ((x + 0.5) / width - 0.5) ** 2 + ((y + 0.5) / height - 0.5) ** 2
    return np.asarray(np.exp(-away / (2 * 0.25**2)), dtype=np.float64)


def cellularity(thumbnail: U8) -> F64:
    """Compute the optical density of hematoxylin around each point."""
    import cv2

    from mcp_servers.pathology.compute.nuclei import nuclear_density

    stained = (nuclear_density(thumbnail) * tissue_mask(thumbnail)).astype(np.float64)
    return np.asarray(cv2.GaussianBlur(stained, (0, 0), 0.04 * stained.shape[0]), dtype=np.float64)


def peaks(heat: F64, box: tuple[float, float], count: int) -> tuple[F64, F64]:
    """Return an (H, W) map's highest points as (n, 4) boxes and (n,) heat, highest first.

    Boxes are x, y, width, height in pixels, all with the given width and height; the IoU of
    any two is at most `APART`.
    """
    width, height = box
    rows, columns = heat.shape
    y, x = np.mgrid[0:rows, 0:columns]
    left = np.array(heat, dtype=np.float64)
    found, scores = [], []
    for _ in range(count):
        row, column = np.unravel_index(int(left.argmax()), left.shape)
        if not np.isfinite(left[row, column]):
            break
        center = (float(column) + 0.5, float(row) + 0.5)
        found.append((center[0] - width / 2, center[1] - height / 2, width, height))
        scores.append(float(heat[row, column]))
        across = np.maximum(width - np.abs(x + 0.5 - center[0]), 0)
        down = np.maximum(height - np.abs(y + 0.5 - center[1]), 0)
        shared = across * down
        left[shared / (2 * width * height - shared) > APART] = -np.inf
    return np.array(found).reshape(-1, 4), np.array(scores)
