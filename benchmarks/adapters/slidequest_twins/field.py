"""A field of H&E in which each nucleus has the look of its type.

Nothing here was fitted to what a tool answers; the numbers were set before one was asked. Sizes
are those of histology textbooks for fixed, embedded tissue: nuclei of small lymphocytes 7 to 8 µm,
round and dense; of fibroblasts about 3 by 12 µm; of carcinoma 12 to 16 µm, of uneven size,
vesicular, with a rim of chromatin and a nucleolus, in cells some 20 µm wide. Stain vectors and the
99th percentiles of their concentrations are the reference of Macenko and others (2009, ISBI).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

HEMATOXYLIN, EOSIN = (0.5626, 0.7201, 0.4062), (0.2159, 0.8012, 0.5581)
MOST_HEMATOXYLIN, MOST_EOSIN = 1.97, 1.03
MPP, FINE = 0.5, 0.25
"""µm per pixel of the field, and at which it is painted."""


@dataclass(frozen=True)
class Look:
    """Nuclei of a type: axes in µm (mean, sd), shares of the darkest hematoxylin."""

    long: tuple[float, float]
    short: tuple[float, float]
    inside: float
    rim: float
    uneven: float
    apart_um: float
    nucleolus_um: float = 0.0


LOOKS = {
    "neoplastic": Look((14.0, 1.5), (11.5, 1.2), 0.38, 0.60, 0.06, 20.0, 2.2),
    "inflammatory": Look((7.6, 0.3), (7.2, 0.3), 0.88, 0.92, 0.02, 10.0),
    "connective": Look((12.0, 1.5), (3.0, 0.4), 0.62, 0.68, 0.03, 22.0),
}


@dataclass(frozen=True)
class Field:
    """RGB (side, side, 3) at 0.5 µm per pixel, how many nuclei of each type it shows, and (side,
    side) the number of each pixel's nucleus, 0 off them, and its type: 1 and on as in `LOOKS`."""

    image: Any
    counts: dict[str, int]
    labels: Any
    kinds: Any


def paint(side_px: int, rng: Generator) -> Field:
    """A field of `side_px` pixels a side.

    Nests of carcinoma lie in collagen whose fibers run along waves; fibroblasts follow them, and
    lymphocytes gather in parts of it.
    """
    import cv2

    size = round(side_px * MPP / FINE)
    nests = _noise(size, 90.0, rng) > rng.uniform(-0.3, 0.1)
    run = np.pi * (0.25 + 0.25 * _noise(size, 120.0, rng))  # of the fibers, radians
    infiltrate = ~nests & (_noise(size, 60.0, rng) > rng.uniform(-0.2, 0.4))
    chromatin = 1.0 + 0.18 * _noise(size, 0.9, rng)
    blue = 0.08 * nests + 0.04
    taken, counts = [np.zeros((0, 3))], {}
    labels = np.zeros((size, size), np.int32)
    kinds = np.zeros((size, size), np.uint8)
    homes = {"neoplastic": nests, "inflammatory": infiltrate, "connective": ~nests}
    for number, (kind, look) in enumerate(LOOKS.items(), 1):
        counts[kind] = 0
        for x, y in _spread(homes[kind], look.apart_um / FINE, rng):
            long, short = (max(0.6 * m, rng.normal(m, sd)) / FINE for m, sd in
                           (look.long, look.short))  # fmt: skip
            others = np.concatenate(taken)
            reach = (long + short) / 4
            if (np.hypot(others[:, 0] - x, others[:, 1] - y) < others[:, 2] + reach).any():
                continue
            taken.append(np.array([[x, y, reach]]))
            turn = run[y, x] + rng.normal(0, 0.15) if kind == "connective" else rng.uniform(0, 6.3)
            axes = (max(long, short), min(long, short))
            window, mask = _nucleus(blue, chromatin, look, (x, y), axes, turn, rng)
            labels[window][mask], kinds[window][mask] = sum(counts.values()) + 1, number
            counts[kind] += 1
    across = np.arange(size)[:, None] * np.cos(run) - np.arange(size)[None] * np.sin(run)
    fibers = 0.70 + 0.10 * np.sin(across * FINE * 2 * np.pi / 5) + 0.08 * _noise(size, 8.0, rng)
    pink = np.where(nests, 0.45 + 0.06 * _noise(size, 6.0, rng), fibers)
    density = (
        cv2.GaussianBlur(blue, (0, 0), 0.35 / FINE)[..., None] * MOST_HEMATOXYLIN
        * np.array(HEMATOXYLIN)
        + cv2.GaussianBlur(pink, (0, 0), 0.5 / FINE)[..., None] * MOST_EOSIN * np.array(EOSIN)
    )  # fmt: skip
    image = cv2.resize(240 * np.exp(-density), (side_px, side_px), interpolation=cv2.INTER_AREA)
    seen = (image + rng.normal(0, 2, image.shape)).clip(0, 255).astype(np.uint8)
    step = round(MPP / FINE)
    return Field(
        seen, counts, *(one[step // 2 :: step, step // 2 :: step] for one in (labels, kinds))
    )


def _noise(size: int, um: float, rng: Generator) -> Any:
    """Smooth noise (size, size) with structures of about `um`, mean 0 and sd 1."""
    import cv2

    few = max(4, round(size * FINE / um))
    big = cv2.resize(rng.standard_normal((few, few)), (size, size), interpolation=cv2.INTER_CUBIC)
    return (big - big.mean()) / big.std()


def _spread(where: Any, apart: float, rng: Generator) -> Any:
    """Points (x, y) on a jittered grid within a mask, none at the very border."""
    at = np.arange(apart, len(where) - apart, apart)
    points = np.stack(np.meshgrid(at, at), axis=-1).reshape(-1, 2)
    points = (points + rng.uniform(-0.35, 0.35, points.shape) * apart).astype(int)
    points = rng.permutation(points.clip(0, len(where) - 1))
    return points[where[points[:, 1], points[:, 0]]]


def _nucleus(
    blue: Any, chromatin: Any, look: Look, at: tuple[int, int], axes: tuple[float, float],
    turn: float, rng: Generator,
) -> tuple[Any, Any]:  # fmt: skip
    """Draw one into the map of hematoxylin, in place; gives its window, and its pixels there.

    Parameters
    ----------
    blue, chromatin : (size, size) hematoxylin as a share of the darkest, and its unevenness
    look : of its type
    at : its center, pixels
    axes : long and short, pixels
    turn : of the long axis, radians
    rng : of its outline and nucleolus
    """
    import cv2

    steps = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    waves = sum(rng.normal(0, look.uneven / n) * np.cos(n * steps + rng.uniform(0, 6.3))
                for n in (2, 3, 4))  # fmt: skip
    along, across = (axes[0] / 2 * np.cos(steps) * (1 + waves),
                     axes[1] / 2 * np.sin(steps) * (1 + waves))  # fmt: skip
    reach = int(axes[0]) + 4
    left, top = (max(0, v - reach) for v in at)
    window = np.s_[top : at[1] + reach, left : at[0] + reach]
    x = at[0] - left + along * np.cos(turn) - across * np.sin(turn)
    y = at[1] - top + along * np.sin(turn) + across * np.cos(turn)
    own, uneven = blue[window], chromatin[window]
    mask = np.zeros(own.shape, np.uint8)
    cv2.fillPoly(mask, [np.stack([x, y], axis=1).round().astype(np.int32)], 1)
    rim = mask - cv2.erode(mask, np.ones((3, 3), np.uint8), iterations=2)
    level = rng.uniform(0.9, 1.1) * np.where(rim > 0, look.rim, look.inside) * uneven
    own[mask > 0] = level[mask > 0]
    if look.nucleolus_um:
        spot = np.zeros_like(mask)
        center = [round(v + rng.uniform(-0.15, 0.15) * axes[1]) for v in
                  (at[0] - left, at[1] - top)]  # fmt: skip
        cv2.circle(spot, center, round(look.nucleolus_um / 2 / FINE), 1, -1)
        own[spot > 0] = 0.8
    return window, mask > 0
