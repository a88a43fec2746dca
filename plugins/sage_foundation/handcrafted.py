"""A small deterministic patch encoder based on color, texture, and cells, without weights.

Every feature has a name (`NAMES`), so that a cluster or a model can be explained.
"""

from __future__ import annotations

import numpy as np

from mcp_servers.pathology.compute.nuclei import lymphocyte_like, segment
from mcp_servers.pathology.compute.tissue import optical_density
from mcp_servers.slides.arrays import F32, U8, AnyArray
from sage_stains.dyes import concentrations, fixed_matrix

_SCALES = (1.0, 2.0, 4.0, 8.0)
_EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.9)


def _names() -> tuple[str, ...]:
    names = [
        f"{channel}_{stat}"
        for channel in ("red", "green", "blue", "hematoxylin", "eosin")
        for stat in ("mean", "sd", "p10", "p50", "p90")
    ]
    names += [f"{dye}_share_over_{edge:g}" for dye in ("hematoxylin", "eosin") for edge in _EDGES]
    names += [f"lbp{radius}_{code}" for radius in (1, 2) for code in range(10)]
    names += [f"hematoxylin_band_{scale:g}um_{s}" for scale in _SCALES for s in ("sd", "skew")]
    names += [f"coherence_{scale:g}um" for scale in (4, 16)]
    names += [
        "gradient_mean", "gradient_sd", "gap_share", "nuclei_per_mm2", "nuclear_share",
        "nucleus_area_mean", "nucleus_area_sd", "eccentricity_mean", "nucleus_density_mean",
        "lymphocyte_share",
    ]  # fmt: skip
    return tuple(names)


NAMES = _names()
DIMENSION = len(NAMES)

# codes with at most two changes around the circle map to their number of ones, the rest to 9
_LBP = np.array(
    [
        bin(c).count("1")
        if sum(((c >> i) & 1) != ((c >> ((i + 1) % 8)) & 1) for i in range(8)) <= 2
        else 9
        for c in range(256)
    ],
    dtype=np.uint8,
)


def encode_patch(image: U8, mpp: float) -> F32:
    """Compute the (DIMENSION,) features of a patch at `mpp` µm per pixel (0.2 to 1.05).

    The patch can have any size.
    """
    import cv2

    density = optical_density(image)
    dyes = np.maximum(concentrations(density, fixed_matrix("he")), 0.0)
    channels = [density[:, :, i] for i in range(3)] + [dyes[:, :, i] for i in range(2)]
    out: list[float] = []
    for values in channels:
        out += [float(values.mean()), float(values.std())]
        sample = np.sort(values[::4, ::4], axis=None)
        out += [float(sample[int(q * (sample.size - 1))]) for q in (0.1, 0.5, 0.9)]
    for dye in (0, 1):
        out += [float((dyes[:, :, dye] > edge).mean()) for edge in _EDGES]
    gray = cv2.GaussianBlur(density[:, :, 1], (0, 0), max(0.5, 0.5 / mpp))
    for radius in (1, 2):
        out += _local_patterns(np.asarray(gray), radius)
    previous, pixel, reached = np.ascontiguousarray(dyes[:, :, 0]), mpp, 0.0
    for scale in _SCALES:
        further = np.sqrt(scale**2 - reached**2) / pixel
        smooth = np.asarray(cv2.GaussianBlur(previous, (0, 0), further), dtype=np.float32)
        band = previous - smooth
        spread = float(band.std()) + 1e-6
        out += [spread, float((((band - band.mean()) / spread) ** 3).mean())]
        # the rest contains nothing finer than `scale`, so every second pixel suffices
        previous, pixel, reached = np.ascontiguousarray(smooth[::2, ::2]), 2 * pixel, scale
    gx = np.asarray(cv2.Sobel(gray, cv2.CV_32F, 1, 0), dtype=np.float32)
    gy = np.asarray(cv2.Sobel(gray, cv2.CV_32F, 0, 1), dtype=np.float32)
    for window in (4.0, 16.0):
        parts = (gx * gx, gy * gy, gx * gy)
        side = 2 * round(window / mpp) + 1
        xx, yy, xy = (cv2.blur(v, (side, side)) for v in parts)
        spread_map = np.sqrt((xx - yy) ** 2 + 4 * xy**2) / (xx + yy + 1e-6)
        out.append(float(spread_map.mean()))
    strength = np.sqrt(gx * gx + gy * gy)
    out += [float(strength.mean()), float(strength.std())]
    out.append(float((density[:, :, 1] < 0.08).mean()))
    out += _cells(image, mpp)
    return np.asarray(out, dtype=np.float32)


def _local_patterns(gray: AnyArray, radius: int) -> list[float]:
    """Compute the frequencies of the ten rotation-invariant uniform LBPs (Ojala et al. 2002)."""
    r = radius
    center = gray[r:-r, r:-r]
    code = np.zeros(center.shape, dtype=np.uint8)
    ring = ((-r, -r), (-r, 0), (-r, r), (0, r), (r, r), (r, 0), (r, -r), (0, -r))
    height, width = gray.shape
    for bit, (dy, dx) in enumerate(ring):
        other = gray[r + dy : height - r + dy, r + dx : width - r + dx]
        code |= ((other > center + 0.005).astype(np.uint8) << bit).astype(np.uint8)
    counts = np.bincount(_LBP[code].ravel(), minlength=10)
    return [float(v) for v in counts / max(1, code.size)]


def _cells(image: U8, mpp: float) -> list[float]:
    nuclei = segment(image, mpp)
    table = nuclei.table
    area_mm2 = image.shape[0] * image.shape[1] * (mpp / 1000) ** 2
    if not len(table):
        return [0.0] * 7
    share = float((nuclei.labels > 0).mean())
    size = table[:, 2]
    return [
        len(table) / area_mm2 / 1e4,
        share,
        float(size.mean()) / 100,
        float(size.std()) / 100,
        float(table[:, 6].mean()),
        float(table[:, 8].mean()),
        float(lymphocyte_like(table).mean()),
    ]
