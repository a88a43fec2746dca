"""Scores for segmented nuclei against labels, and a simple baseline method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mcp_servers.pathology.compute.nuclei import nuclear_density, part_touching
from mcp_servers.pathology.compute.tissue import otsu
from mcp_servers.slides.arrays import F64, I32, U8, AnyArray

MATCH_IOU = 0.5


@dataclass(frozen=True, slots=True)
class Scores:
    """Agreement between an image's nuclei and its labels.

    `f1` counts pairs that overlap by more than half of their union, with each nucleus in at
    most one pair; `dice` is computed on pixels; `aji` is the aggregated Jaccard index (Kumar
    et al., IEEE Transactions on Medical Imaging 2017); `pq` is the panoptic quality (Kirillov
    et al., CVPR 2019).
    """

    f1: float
    dice: float
    aji: float
    pq: float
    truth: int
    found: int
    matched: int


def overlaps(truth: AnyArray, found: AnyArray) -> tuple[F64, F64, F64]:
    """Count the shared pixels for each pair of labels, (n, m), and their areas, (n,) and (m,)."""
    first, a = np.unique(truth, return_inverse=True)
    second, b = np.unique(found, return_inverse=True)
    table = np.zeros((len(first), len(second)))
    np.add.at(table, (a.ravel(), b.ravel()), 1.0)
    areas, others = table.sum(axis=1), table.sum(axis=0)
    rows, columns = first > 0, second > 0
    return table[np.ix_(rows, columns)], areas[rows], others[columns]


def score(truth: AnyArray, found: AnyArray) -> Scores:
    """Score an image from two label maps with the same shape, 0 outside nuclei."""
    shared, areas, others = overlaps(truth, found)
    both = int(((truth > 0) & (found > 0)).sum())
    pixels = int((truth > 0).sum()) + int((found > 0).sum())
    dice = 2 * both / pixels if pixels else 1.0
    count, seen = shared.shape
    if not count or not seen:
        whole = 1.0 if count == seen else 0.0
        return Scores(whole, dice, whole, whole, count, seen, 0)
    union = areas[:, None] + others[None] - shared
    iou = shared / union
    pairs = iou > MATCH_IOU  # above 0.5: at most a single match in each row and column
    matched = int(pairs.sum())
    f1 = 2 * matched / (count + seen)
    best = iou.argmax(axis=1)
    rows = np.arange(count)
    hit = iou[rows, best] > 0
    inside = shared[rows, best][hit].sum()
    outside = union[rows, best][hit].sum() + areas[~hit].sum()
    unused = np.setdiff1d(np.arange(seen), best[hit])
    aji = float(inside / (outside + others[unused].sum()))
    pq = float(iou[pairs].sum()) / (0.5 * (count + seen))
    return Scores(f1, dice, aji, pq, count, seen, matched)


def otsu_watershed(image: U8, mpp: float) -> I32:
    """Label nuclei by Otsu's threshold for the whole image, splitting touching nuclei by depth."""
    import cv2

    density = cv2.GaussianBlur(nuclear_density(image), (0, 0), max(0.4, 0.5 / mpp))
    mask = (density > otsu(density, 0.0, 1.5)).astype(np.uint8)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3))
    return part_touching(np.asarray(cv2.morphologyEx(mask, cv2.MORPH_OPEN, kernel)), 1.0 / mpp)
