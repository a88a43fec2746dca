"""Positivity in H-DAB immunohistochemistry: fractions of brown nuclei and brown area."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcp_servers.pathology.compute.nuclei import Nuclei, segment
from mcp_servers.pathology.compute.tissue import optical_density
from mcp_servers.slides.arrays import F32, U8, BoolArray
from sage_stains.dyes import concentrations, fixed_matrix

WEAK, MODERATE, STRONG = 0.20, 0.40, 0.60
"""Minimum mean DAB density for a nucleus to count as 1+, 2+, and 3+."""


@dataclass(frozen=True, slots=True)
class Positivity:
    """An image's nuclei with their mean DAB density, and the image's DAB map."""

    nuclei: Nuclei
    dab: F32

    @property
    def grades(self) -> F32:
        """Grade (n,) nuclei: 0 for negative, else 1, 2, or 3 by `WEAK`, `MODERATE`, `STRONG`."""
        values = self.nuclei.column("second_mean")
        return np.digitize(values, [WEAK, MODERATE, STRONG]).astype(np.float32)


def dab_density(image: U8, background: tuple[int, int, int] = (245, 245, 245)) -> F32:
    """Compute DAB density, at least 0, with the stain vectors of Ruifrok and Johnston."""
    density = optical_density(image, background)
    amounts = concentrations(density, fixed_matrix("hdab"))
    return np.asarray(np.maximum(amounts[:, :, 1], 0.0), dtype=np.float32)


def measure(
    image: U8,
    mpp: float,
    *,
    background: tuple[int, int, int] = (245, 245, 245),
    within: BoolArray | None = None,
) -> Positivity:
    """Segment nuclei of either color, and measure the mean DAB density of each.

    Nuclei are detected by their red density, since both dyes absorb red, with a low cap so
    that brown nuclei do not hide the pale blue nuclei.

    Parameters
    ----------
    image : (height, width, 3)
    mpp : micrometers per pixel
    background : color of empty glass, 0 to 255
    within : (height, width) mask in which to detect nuclei; None for everywhere
    """
    density = optical_density(image, background)
    dab = dab_density(image, background)
    red = np.ascontiguousarray(density[:, :, 0])
    nuclei = segment(image, mpp, density=red, second=dab, within=within, floor=0.06, cap=0.2)
    return Positivity(nuclei, dab)


def h_score(grades: U8) -> float:
    """Compute 1 x %1+ plus 2 x %2+ plus 3 x %3+, from 0 to 300; 0 without nuclei."""
    return float(100.0 * grades.mean(dtype=np.float64)) if len(grades) else 0.0
