"""Alignment of the fibers of a patch."""

from __future__ import annotations

import numpy as np

from mcp_servers.pathology.compute.tissue import optical_density
from mcp_servers.slides.arrays import U8


def coherence(image: U8, mpp: float, *, window_um: float = 40.0) -> float | None:
    """Mean coherence of the structure tensor over stained pixels, 0 to 1; None on glass.

    (l1 - l2) / (l1 + l2) of the gradient's outer product averaged over `window_um`: 0 when
    gradients point everywhere, 1 when all fibers are parallel.
    """
    import cv2

    green = optical_density(image)[:, :, 1]
    stained = green > 0.1
    if float(stained.mean()) < 0.1:
        return None
    smooth = cv2.GaussianBlur(green, (0, 0), max(0.6, 1.0 / mpp))
    gx = np.asarray(cv2.Sobel(smooth, cv2.CV_32F, 1, 0), dtype=np.float32)
    gy = np.asarray(cv2.Sobel(smooth, cv2.CV_32F, 0, 1), dtype=np.float32)
    sigma = window_um / 2 / mpp
    xx, yy, xy = (cv2.GaussianBlur(v, (0, 0), sigma) for v in (gx * gx, gy * gy, gx * gy))
    spread = np.sqrt((xx - yy) ** 2 + 4 * xy**2)
    return float((spread / (xx + yy + 1e-9))[stained].mean())
