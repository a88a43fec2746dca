"""Stain separation and normalization of bright-field images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mcp_servers.slides.arrays import F32, F64, U8, AnyArray
from sage.core.errors import InputError

HEMATOXYLIN = (0.65, 0.70, 0.29)
EOSIN = (0.07, 0.99, 0.11)
DAB = (0.27, 0.57, 0.78)
"""Absorption of red, green, blue (Ruifrok and Johnston 2001, Anal Quant Cytol Histol)."""

REFERENCE_HE: F64 = np.array([[0.5626, 0.7201, 0.4062], [0.2159, 0.8012, 0.5581]])
REFERENCE_MAX: F64 = np.array([1.9705, 1.0308])
"""Target stain vectors and maximum concentrations for Macenko normalization.

The maxima are 99th-percentile concentrations in natural-log density, from the reference
image of Macenko et al. 2009 (ISBI).
"""

Stain = Literal["he", "hdab"]


@dataclass(frozen=True, slots=True)
class Stains:
    """Two unit stain vectors (2, 3) and the 99th percentile of each concentration."""

    vectors: F64
    maxima: F64
    fitted: bool


def natural_density(image: AnyArray, background: float = 240.0) -> F32:
    """Compute -ln((I + 1) / I0), the density in Macenko's paper, slightly negative on glass."""
    table = -np.log((np.arange(256, dtype=np.float64) + 1.0) / background)
    return np.asarray(table.astype(np.float32)[image], dtype=np.float32)


def unit(vectors: AnyArray) -> F64:
    """Scale rows to length 1."""
    rows = np.asarray(vectors, dtype=np.float64)
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def fixed_matrix(stain: Stain) -> F64:
    """Return (3, 3) unit vectors for hematoxylin, the second dye, and the residual."""
    second = EOSIN if stain == "he" else DAB
    pair = unit(np.array([HEMATOXYLIN, second]))
    rest = np.cross(pair[0], pair[1])
    return np.vstack([pair, unit(rest)])


def concentrations(density: AnyArray, vectors: AnyArray) -> F32:
    """Compute dye amounts (..., k) that best explain a density (..., 3) by least squares."""
    inverse = np.linalg.pinv(np.asarray(vectors, dtype=np.float64)).astype(np.float32)
    # three multiplications per pixel: a plain sum is faster than a matrix product
    parts = [density[..., i, None] * inverse[i] for i in range(3)]
    return np.asarray(parts[0] + parts[1] + parts[2], dtype=np.float32)


def macenko(density: AnyArray, *, beta: float = 0.15, alpha: float = 1.0) -> Stains:
    """Estimate the stain vectors of an H&E image (Macenko et al. 2009).

    Pixels with a density below `beta` are glass. The density is the root mean square of the
    channels, so that pixels with only eosin are kept. The remaining pixels are projected on
    the plane of their two largest eigenvectors, and the vectors at the `alpha` and 100 -
    `alpha` percentiles of the angle are the dyes; hematoxylin absorbs more red.

    Parameters
    ----------
    density : (n, 3) natural-log density, e.g. of sampled tissue pixels

    Raises
    ------
    InputError
        If fewer than 200 pixels are stained, or they have a single color.
    """
    pixels = np.asarray(density, dtype=np.float64).reshape(-1, 3)
    pixels = pixels[np.linalg.norm(pixels, axis=1) > beta * np.sqrt(3)]
    if len(pixels) < 200:
        raise InputError(
            f"only {len(pixels)} stained pixels; at least 200 are required to estimate the stain "
            "vectors"
        )
    values, axes = np.linalg.eigh(np.cov(pixels.T))
    if values[1] < 1e-6:
        raise InputError("the image has a single color, so its stain vectors cannot be estimated")
    plane = axes[:, [2, 1]]
    plane = plane * np.where(plane.sum(axis=0) < 0, -1, 1)[None, :]
    projected = pixels @ plane
    angles = np.arctan2(projected[:, 1], projected[:, 0])
    low, high = np.percentile(angles, [alpha, 100 - alpha])
    pair = np.stack([plane @ [np.cos(a), np.sin(a)] for a in (low, high)])
    pair = unit(np.abs(pair))
    if pair[0, 0] < pair[1, 0]:
        pair = pair[::-1]
    amounts = concentrations(pixels, pair)
    return Stains(pair, np.percentile(amounts, 99, axis=0).astype(np.float64), True)


def normalize_macenko(image: U8, stains: Stains, background: float = 240.0) -> U8:
    """Normalize an image to the staining of the reference `REFERENCE_HE`."""
    density = natural_density(image, background)
    amounts = concentrations(density, stains.vectors)
    amounts *= (REFERENCE_MAX / np.maximum(stains.maxima, 1e-3)).astype(np.float32)
    back = background * np.exp(-(amounts @ REFERENCE_HE.astype(np.float32)))
    return np.clip(np.round(back), 0, 255).astype(np.uint8)


REINHARD_MEAN = (8.63234435, -0.11501964, 0.03868433)
REINHARD_SD = (0.57506023, 0.10403329, 0.01364062)
"""Mean and standard deviation in l-alpha-beta of a commonly used H&E reference image."""

_LMS: F64 = np.array([[0.3811, 0.5783, 0.0402], [0.1967, 0.7244, 0.0782], [0.0241, 0.1288, 0.8444]])
_LAB: F64 = np.diag([1 / np.sqrt(3), 1 / np.sqrt(6), 1 / np.sqrt(2)]) @ np.array(
    [[1, 1, 1], [1, 1, -2], [1, -1, 0]]
)


def to_lab(image: AnyArray) -> F32:
    """Map RGB to Ruderman's l-alpha-beta on natural-log cone responses (Reinhard et al. 2001)."""
    cones = np.maximum(image.astype(np.float32), 1.0).reshape(-1, 3) @ _LMS.T.astype(np.float32)
    lab = np.log(cones) @ _LAB.T.astype(np.float32)
    return np.asarray(lab.reshape(image.shape), dtype=np.float32)


def normalize_reinhard(image: U8, mean: AnyArray, sd: AnyArray) -> U8:
    """Shift and scale l-alpha-beta so that tissue of (`mean`, `sd`) matches the reference."""
    lab = to_lab(image)
    scale = np.asarray(REINHARD_SD) / np.maximum(np.asarray(sd), 1e-3)
    shifted = (lab - np.asarray(mean)) * scale + np.asarray(REINHARD_MEAN)
    cones = np.exp(shifted.reshape(-1, 3) @ np.linalg.inv(_LAB).T)
    rgb = cones @ np.linalg.inv(_LMS).T
    out = np.clip(np.round(rgb), 0, 255).astype(np.uint8).reshape(image.shape)
    return np.asarray(out, dtype=np.uint8)
