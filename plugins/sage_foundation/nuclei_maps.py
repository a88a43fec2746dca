"""The three maps of HoVer-Net and related models: nucleus, position within it, and type.

Source: Graham et al. 2019, Med Image Anal 58:101563 (the maps, and how nuclei are
separated by gradients of the position map); CellViT and NuLite produce the same maps
under other names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mcp_servers.pathology.nuclei import MOST_TYPES
from mcp_servers.slides.arrays import F32, F64, I32, AnyArray

NAMES = {
    "nucleus": ("np", "nuclei_binary_map"),
    "place": ("hv", "hv_map"),
    "type": ("tp", "nuclei_type_map"),
}
"""Names of the maps in HoVer-Net and CellViT."""
_PLAIN = re.compile(r"(?!(?:outside|nan|null)$)[a-z][a-z0-9 _-]{0,39}")
TYPED = 3
"""Number of channels before the types: nucleus probability, x position, y position."""
INSIDE, BORDER = 0.5, 0.4
"""Minimum nucleus probability of a pixel, and minimum steepness of borders between nuclei."""
GRADIENT_UM, OPENED_UM, LEAST_UM2 = 2.5, 1.25, 0.625
"""Half-width of the Sobel filter, width of the marker opening, and smallest piece.

At 0.25 µm per pixel, these are the paper's values of 21 pixels (filter width), 5 pixels
and 10 pixels.
"""


def plain_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return a network's type names in lower case.

    Raises
    ------
    ValueError
        If a name is not short plain text or is repeated, or if there are more than
        `MOST_TYPES`.
    """
    if len(names) > MOST_TYPES:
        raise ValueError(f"has {len(names)} type names, but the maximum is {MOST_TYPES}")
    low = tuple(name.strip().lower() for name in names)
    for name in low:
        if not _PLAIN.fullmatch(name) or low.count(name) > 1:
            raise ValueError(
                f"{name[:60]!r} is not a valid type name; names must be unique and contain only "
                "letters, digits, spaces, - and _"
            )
    return low


def typed_maps(out: dict[str, Any]) -> F32:
    """Stack a module's named maps (1, k, H, W), logits or probabilities, as (TYPED + types, H, W).

    Raises
    ------
    ValueError
        If a map is missing or its shape differs from the others.
    """
    found = {}
    for key, names in NAMES.items():
        array = next((out[name] for name in names if name in out), None)
        if not isinstance(array, np.ndarray) or array.ndim != 4 or len(array) != 1:
            given = f"{names[0]} {array.shape}" if isinstance(array, np.ndarray) else ", ".join(out)
            raise ValueError(
                f"returns the maps {given}; typed nuclei require {names[0]} (1, k, H, W) or "
                f"{names[1]}"
            )
        found[key] = array[0].astype(np.float32)
    nucleus, place, kind = found.values()
    sizes = {array.shape[1:] for array in found.values()}
    if (len(nucleus), len(place), len(sizes)) != (2, 2, 1) or len(kind) < 2:
        shapes = ", ".join(f"{NAMES[key][0]} {array.shape}" for key, array in found.items())
        raise ValueError(
            f"returns {shapes}; np and hv must have two channels, and tp one channel for the "
            "background and one per type"
        )
    if not all(np.isfinite(array).all() for array in found.values()):
        raise ValueError("returns non-finite values")
    return np.concatenate([normalize_channels(nucleus)[1:], place, normalize_channels(kind)[1:]])


def normalize_channels(values: F32) -> F32:
    """Normalize channels (k, H, W) to sum to 1 by softmax, unless they already do."""
    if values.min() >= 0 and np.allclose(values.sum(axis=0), 1, atol=1e-3):
        return values
    raised = np.exp(values - values.max(axis=0))
    return np.asarray(raised / raised.sum(axis=0), dtype=np.float32)


def split_nuclei(maps: F32, mpp: float) -> I32:
    """Label nuclei (H, W), separating them where the position map jumps.

    Parameters
    ----------
    maps : (TYPED or more, H, W), see `typed_maps`
    mpp : µm per pixel
    """
    import cv2
    from scipy import ndimage

    from mcp_servers.pathology.compute.kernels import grow
    from mcp_servers.pathology.nuclei_net.model import without_small

    least = max(3, round(LEAST_UM2 / mpp**2))
    side = min(31, 2 * round(GRADIENT_UM / mpp) + 1)
    inside = without_small(maps[0] >= INSIDE, least)
    steep = np.zeros(maps.shape[1:], dtype=np.float32)
    for place, (dx, dy) in ((maps[1], (1, 0)), (maps[2], (0, 1))):
        slope = cv2.Sobel(_to_unit(place), cv2.CV_64F, dx, dy, ksize=side)
        steep = np.maximum(steep, 1 - _to_unit(slope))
    steep = np.where(inside, steep, 0)
    markers = ndimage.binary_fill_holes(inside & (steep < BORDER)).astype(np.uint8)
    wide = 2 * round(OPENED_UM / 2 / mpp) + 1
    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (wide, wide))
    markers = without_small(cv2.morphologyEx(markers, cv2.MORPH_OPEN, disk), least)
    _, seeds = cv2.connectedComponents(markers.astype(np.uint8), connectivity=4)
    labels: I32 = np.ascontiguousarray(seeds, dtype=np.int32)
    depth = cv2.GaussianBlur(np.where(inside, 1 - steep, 0).astype(np.float32), (3, 3), 0)
    grow(labels, inside.astype(np.uint8), (depth * 255).clip(0, 255).astype(np.uint8), 0)
    return labels


def _to_unit(values: AnyArray) -> F32:
    """Rescale values from 0 at the minimum to 1 at the maximum; zeros if all are equal."""
    low, high = float(values.min()), float(values.max())
    scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return np.asarray(scaled, dtype=np.float32)


def shares(labels: I32, kinds: F32) -> F64:
    """Compute the mean probability of each type per nucleus, (n, types), normalized to sum to 1.

    Parameters
    ----------
    labels : (H, W) labels of n nuclei, 0 elsewhere
    kinds : (types, H, W)
    """
    count = int(labels.max())
    where = labels.ravel()
    sums = [np.bincount(where, kind.ravel(), minlength=count + 1)[1:] for kind in kinds]
    found = np.stack(sums, axis=1) + 1e-9
    return np.asarray(found / found.sum(axis=1, keepdims=True))
