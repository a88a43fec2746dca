"""Conversion of the network's maps to one label per nucleus."""

from __future__ import annotations

import numpy as np

from mcp_servers.slides.arrays import F32, I32, AnyArray, BoolArray

CUT = 0.4
"""Probability at and above which a pixel belongs to a nucleus."""
LEAST_PX, HOLE_PX = 20, 80
"""Size below which pieces are dropped, and below which holes in a nucleus are filled."""
SEED_DEPTH = 0.2
"""Depth below which a local maximum does not start a nucleus of its own."""
SEED_SMOOTHING_PX, SEED_REACH_PX = 0.8, 2
SADDLE = 0.8
"""Share of the lower peak that the depth on the border of two basins must exceed to join them."""


def instances(maps: F32) -> I32:
    """Label nuclei from maps (2 or more, H, W) of nucleus probability and depth.

    Probable pixels are flooded from the maxima of the smoothed depth; basins not separated by a
    clear saddle are joined.
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
    """Remove connected pieces below `least` pixels from a mask."""
    import cv2

    _, parts, sizes, _ = cv2.connectedComponentsWithStats(
        np.asarray(mask, dtype=np.uint8), connectivity=4
    )
    keep = sizes[:, cv2.CC_STAT_AREA] >= least
    keep[0] = False
    return np.asarray(keep[parts], dtype=bool)


def merge_shallow(labels: I32, depth: F32) -> I32:
    """Join adjacent labels whose saddle is above `SADDLE` of the lower peak.

    Labels are joined in order of decreasing saddle; a joined label has the higher of the two peaks.
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
