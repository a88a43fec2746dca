"""Scores for proposed regions against recorded regions: boxes, heat, order, and bins.

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
SCANPATH_CELLS = 5
"""Number of rows and columns in the grid whose cells encode a scanpath."""


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


def recall_at(proposed: F64, recorded: F64, k: int) -> float:
    """Compute recall at k: the fraction of recorded boxes that the first k proposals recover."""
    if not len(recorded):
        return float("nan")
    return (
        float((ious(recorded, proposed[:k]) > HIT_IOU).any(axis=1).mean()) if len(proposed) else 0.0
    )


def efficiency(proposed: F64, recorded: F64) -> float:
    """Compute the fraction of proposals that overlap a recorded box sufficiently."""
    if not len(proposed):
        return float("nan")
    return float((ious(proposed, recorded) > HIT_IOU).any(axis=1).mean()) if len(recorded) else 0.0


def mean_iou(proposed: F64, recorded: F64) -> float:
    """Average each recorded box's best overlap with any proposal."""
    if not len(recorded):
        return float("nan")
    return float(ious(recorded, proposed).max(axis=1).mean()) if len(proposed) else 0.0


def nss(heat: F64, cells: Sequence[tuple[int, int]]) -> float:
    """Compute normalized scanpath saliency: a map's mean z-score at (row, column) fixations."""
    spread = float(heat.std())
    if not cells or spread == 0.0:
        return 0.0 if cells else float("nan")
    z = (heat - heat.mean()) / spread
    return float(np.mean([z[cell] for cell in cells]))


def auc_judd(heat: F64, cells: Sequence[tuple[int, int]]) -> float:
    """Compute AUC-Judd: fixations found against map area above a threshold.

    Thresholds are the values at fixations; the area counts cells without a fixation. Cells
    equal to a threshold count as above it. (Judd, Durand and Torralba, MIT technical report
    2012.)
    """
    fixed = sorted({*cells})
    if not fixed or len(fixed) == heat.size:
        return float("nan")
    mask = np.zeros(heat.shape, dtype=bool)
    rows, columns = zip(*fixed, strict=True)
    mask[list(rows), list(columns)] = True
    at, rest = np.sort(heat[mask])[::-1], heat[~mask]
    hit, false = [0.0], [0.0]
    for threshold in dict.fromkeys(at.tolist()):
        hit.append(float((at >= threshold).mean()))
        false.append(float((rest >= threshold).mean()))
    return float(np.trapezoid([*hit, 1.0], [*false, 1.0]))


def spell_scanpath(boxes: F64, size: tuple[float, float]) -> tuple[int, ...]:
    """Return the grid cells of box centers in order; `size` is the slide's width and height."""
    centers = boxes[:, :2] + boxes[:, 2:] / 2
    places = (centers / np.asarray(size) * SCANPATH_CELLS).astype(int).clip(0, SCANPATH_CELLS - 1)
    return tuple(int(row * SCANPATH_CELLS + column) for column, row in places)


def scanpath_distance(first: Sequence[int], second: Sequence[int]) -> float:
    """Compute the Levenshtein distance between two scanpaths, divided by the longer length."""
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        before, row[0] = row[0], i
        for j, wanted in enumerate(second, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (letter != wanted))
    return row[-1] / max(len(first), len(second), 1)


def f1_of_bins(pairs: Sequence[tuple[float | None, float]]) -> float:
    """Compute macro F1 of magnification bins over (proposed or None, recorded) pairs.

    The proposed bin is None if the recorded region was missed.
    """
    bins = sorted({recorded for _, recorded in pairs})
    values = []
    for bin_ in bins:
        right = sum(predicted == bin_ == other for predicted, other in pairs)
        said = sum(predicted == bin_ for predicted, _ in pairs)
        true = sum(other == bin_ for _, other in pairs)
        values.append(2 * right / (said + true))
    return float(np.mean(values)) if values else float("nan")
