"""Scores for proposed regions against recorded regions.

Boxes are (n, 4) arrays of x, y, width, height; scores are parallel arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mcp_servers.slides.arrays import F64

HIT_IOU = 0.3
"""IoU above which a proposed region recovers a recorded region (Pathology-CoT, 4.7.4)."""
MAP_IOUS = (0.3, 0.4, 0.5)
"""IoU thresholds over which mAP is averaged; the paper does not specify any."""


def overlaps(first: F64, second: F64) -> F64:
    """Compute the (n, m) overlap area of every pair of boxes."""
    first, second = first.reshape(-1, 1, 4), second.reshape(1, -1, 4)
    low = np.maximum(first[..., :2], second[..., :2])
    high = np.minimum(first[..., :2] + first[..., 2:], second[..., :2] + second[..., 2:])
    return np.asarray(np.prod(np.maximum(high - low, 0.0), axis=2), dtype=np.float64)


def ious(first: F64, second: F64) -> F64:
    """Compute the (n, m) intersection over union of every pair of boxes; NaN for NaN boxes."""
    shared = overlaps(first, second)
    areas = np.prod(first.reshape(-1, 4)[:, 2:], axis=1)[:, None]
    whole = areas + np.prod(second.reshape(-1, 4)[:, 2:], axis=1) - shared
    return np.asarray(shared / np.maximum(whole, 1e-12), dtype=np.float64)


def match_boxes(proposed: F64, recorded: F64, iou: float = HIT_IOU) -> list[int | None]:
    """Match each proposed box, in order, to a recorded box that is not yet matched."""
    overlap = ious(proposed, recorded)
    taken: set[int] = set()
    found: list[int | None] = []
    for row in overlap:
        free = [(float(row[k]), -k) for k in range(len(row)) if k not in taken and row[k] > iou]
        best = -max(free)[1] if free else None
        if best is not None:
            taken.add(best)
        found.append(best)
    return found


def hits(boxes: F64, scores: F64, recorded: F64, iou: float) -> list[tuple[float, bool]]:
    """Return the (n,) score of each proposal, best first, and whether it is a hit.

    A recorded box is hit at most once, by an overlap above `iou`.
    """
    order = np.argsort(-scores, kind="stable")
    found = match_boxes(boxes[order], recorded, iou)
    return [
        (float(score), hit is not None) for score, hit in zip(scores[order], found, strict=True)
    ]


def pooled_precision(scored: Sequence[tuple[float, bool]], total: int) -> float:
    """Compute the average precision of proposals pooled over slides, for `total` recorded boxes.

    Precision is made monotone from the right, as in PASCAL VOC since 2010.
    """
    if total == 0:
        return float("nan")
    ranked = sorted(scored, key=lambda item: -item[0])
    right = np.cumsum([hit for _, hit in ranked], dtype=np.float64)
    precision = right / np.arange(1, len(ranked) + 1)
    monotone = np.maximum.accumulate(precision[::-1])[::-1]
    return float((monotone * np.diff(right, prepend=0.0)).sum() / total)


def share_found(boxes: F64, others: F64) -> float:
    """Compute the fraction of boxes that any of the others overlaps by more than `HIT_IOU`.

    Of recorded boxes, this is completeness (recall), and of proposals, efficiency (precision).
    """
    if not len(boxes):
        return float("nan")
    return float((ious(boxes, others) > HIT_IOU).any(axis=1).mean()) if len(others) else 0.0
