"""From the network's maps to a label per nucleus."""

from __future__ import annotations

import numpy as np

from mcp_servers.slides.arrays import F32, I32, AnyArray, BoolArray

CUT = 0.4
"""Probability from which a pixel is nucleus."""
LEAST_PX, HOLE_PX = 20, 80
"""Smaller pieces are dropped, smaller gaps within a nucleus filled."""
SEED_DEPTH = 0.2
"""A local maximum of depth below this starts no nucleus of its own."""
SEED_SMOOTHING_PX, SEED_REACH_PX = 0.8, 2
SADDLE = 0.8
"""Two basins are a single nucleus where the depth on their border exceeds this share of the lower
peak."""


def instances(maps: F32) -> I32:
    """Labels (H, W) from maps (2 or more, H, W) of the probability of nucleus and of its depth.

    Probable pixels are flooded from the maxima of the smoothed depth; basins that no clear saddle
    parts are joined.
    """
    import cv2

    from mcp_servers.pathology.compute.kernels import grow

    inside = without_small(maps[0] > CUT, LEAST_PX)
    inside = ~without_small(~inside, HOLE_PX)
    depth = np.asarray(cv2.GaussianBlur(maps[1], (0, 0), SEED_SMOOTHING_PX), dtype=np.float32)
    side = 2 * SEED_REACH_PX + 1
    window = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    top = (depth >= cv2.dilate(depth, window) - 1e-6) & inside & (depth > SEED_DEPTH)
    _, seeds = cv2.connectedComponents(top.astype(np.uint8), connectivity=8)
    labels: I32 = np.ascontiguousarray(seeds, dtype=np.int32)
    order = np.clip(depth * 255, 0, 255).astype(np.uint8)
    grow(labels, inside.astype(np.uint8), order, 0)
    return merge_shallow(labels, depth)


def without_small(mask: AnyArray, least: int) -> BoolArray:
    """Return a mask without its connected pieces below `least` pixels."""
    import cv2

    _, parts, sizes, _ = cv2.connectedComponentsWithStats(
        np.asarray(mask, dtype=np.uint8), connectivity=4
    )
    keep = sizes[:, cv2.CC_STAT_AREA] >= least
    keep[0] = False
    return np.asarray(keep[parts], dtype=bool)


def merge_shallow(labels: I32, depth: F32) -> I32:
    """Labels with neighbors joined whose saddle is above `SADDLE` of the lower peak.

    The highest saddle comes first; what was joined has the higher peak.
    """
    count = int(labels.max())
    pairs, saddles = [], []
    for here, there, a, b in (
        (labels[:, 1:], labels[:, :-1], depth[:, 1:], depth[:, :-1]),
        (labels[1:], labels[:-1], depth[1:], depth[:-1]),
    ):
        edge = (here != there) & (here > 0) & (there > 0)
        low, high = np.minimum(here[edge], there[edge]), np.maximum(here[edge], there[edge])
        pairs.append(low.astype(np.int64) * (count + 1) + high)
        saddles.append(np.minimum(a[edge], b[edge]))
    border, index = np.unique(np.concatenate(pairs), return_inverse=True)
    saddle = np.zeros(len(border), dtype=np.float32)
    np.maximum.at(saddle, index, np.concatenate(saddles))
    peak = np.zeros(count + 1, dtype=np.float32)
    np.maximum.at(peak, labels.ravel(), depth.ravel())
    parent = np.arange(count + 1, dtype=np.int32)

    def root(label: int) -> int:
        while parent[label] != label:
            parent[label] = parent[parent[label]]
            label = int(parent[label])
        return label

    for at in np.argsort(-saddle, kind="stable"):
        ends = root(int(border[at] // (count + 1))), root(int(border[at] % (count + 1)))
        shallow, deep = sorted(ends, key=lambda label: (peak[label], -label))
        if shallow != deep and saddle[at] > SADDLE * peak[shallow]:
            parent[shallow] = deep
    whole = np.array([root(label) for label in range(count + 1)], dtype=np.int32)
    return np.asarray(whole[labels], dtype=np.int32)
