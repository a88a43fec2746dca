"""Scores of proposed regions, each against a second, slower implementation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, roc_auc_score

from mcp_servers.slides.arrays import F64
from sage_slide_reading.behavior.scores import (
    auc_judd,
    efficiency,
    f1_of_bins,
    hits,
    ious,
    match_boxes,
    mean_iou,
    nss,
    pooled_precision,
    recall_at,
    scanpath_distance,
)

box = st.tuples(*[st.integers(0, 40)] * 2, *[st.integers(1, 30)] * 2)
boxes = st.lists(box, min_size=1, max_size=6).map(lambda found: np.array(found, dtype=float))


def iou_by_shapely(first: Sequence[float], second: Sequence[float]) -> float:
    a, b = (shapely.box(x, y, x + w, y + h) for x, y, w, h in (first, second))
    return float(a.intersection(b).area / a.union(b).area)


@given(boxes, boxes)
@settings(max_examples=60, deadline=None)
def test_overlap_is_that_of_polygons(first: F64, second: F64) -> None:
    expected = [[iou_by_shapely(a, b) for b in second.tolist()] for a in first.tolist()]
    assert ious(first, second) == pytest.approx(np.array(expected))


@given(boxes, boxes, st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_recall_efficiency_and_mean_overlap_by_counting(first: F64, second: F64, k: int) -> None:
    pairs = {(i, j): iou_by_shapely(a, b) for (i, a), (j, b) in
             product(enumerate(first.tolist()), enumerate(second.tolist()))}  # fmt: skip
    found = sum(
        any(pairs[i, j] > 0.3 for i in range(min(k, len(first)))) for j in range(len(second))
    )
    useful = sum(any(pairs[i, j] > 0.3 for j in range(len(second))) for i in range(len(first)))
    best = [max(pairs[i, j] for i in range(len(first))) for j in range(len(second))]
    assert recall_at(first, second, k) == pytest.approx(found / len(second))
    assert efficiency(first, second) == pytest.approx(useful / len(first))
    assert mean_iou(first, second) == pytest.approx(sum(best) / len(best))


def precision_by_hand(scored: list[tuple[float, bool]], total: int) -> float:
    """Interpolated precision at each recall level that a right proposal adds."""
    ranked = sorted(scored, key=lambda item: -item[0])
    points = []
    for cut in range(1, len(ranked) + 1):
        right = sum(hit for _, hit in ranked[:cut])
        points.append((right, right / cut))
    return sum(
        max((precision for right, precision in points if right >= level), default=0.0)
        for level in range(1, total + 1)
    ) / total  # fmt: skip


@given(st.lists(st.booleans(), max_size=14), st.integers(1, 8))
@settings(max_examples=80, deadline=None)
def test_average_precision_by_hand(right: list[bool], more: int) -> None:
    scored = [(1.0 / (place + 1), hit) for place, hit in enumerate(right)]
    total = sum(right) + more
    assert pooled_precision(scored, total) == pytest.approx(precision_by_hand(scored, total))


def test_each_recorded_box_is_found_once_and_the_best_score_has_it() -> None:
    truth = np.array([[0.0, 0, 10, 10], [30, 30, 10, 10]])
    proposed = np.array([[0.0, 0, 10, 9], [0, 0, 10, 10], [29, 30, 10, 10], [80, 80, 5, 5]])
    scores = np.array([0.9, 0.8, 0.7, 0.95])
    assert match_boxes(proposed, truth) == [0, None, 1, None]
    assert hits(proposed, scores, truth, 0.5) == [(0.95, False), (0.9, True), (0.8, False),
                                                  (0.7, True)]  # fmt: skip


heats = st.lists(st.integers(0, 9), min_size=30, max_size=30).map(
    lambda values: np.array(values, dtype=float).reshape(5, 6)
)
fixations = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=8)


@given(heats, fixations)
@settings(max_examples=80, deadline=None)
def test_saliency_scores_against_loops_and_scikit_learn(
    heat: F64, cells: list[tuple[int, int]]
) -> None:
    mean = sum(heat.ravel()) / heat.size
    spread = (sum((value - mean) ** 2 for value in heat.ravel()) / heat.size) ** 0.5
    expected = sum((heat[c] - mean) / spread for c in cells) / len(cells) if spread > 0 else 0.0
    assert nss(heat, cells) == pytest.approx(expected, abs=1e-9)
    # every distinct value as threshold gives the whole curve; Judd's has thresholds at fixations
    # alone, whose straight lines lie at or below it where other values separate the rest
    fixed = np.zeros(heat.shape, dtype=bool)
    for cell in cells:
        fixed[cell] = True
    thresholds = sorted(set(heat[fixed].tolist()), reverse=True)
    steps = np.searchsorted(np.sort(thresholds), heat.ravel(), side="right")
    assert auc_judd(heat, cells) == pytest.approx(roc_auc_score(fixed.ravel(), steps))


words = st.lists(st.integers(0, 3), max_size=6)


@given(words, words)
@settings(max_examples=80, deadline=None)
def test_scanpaths_by_the_definition_of_the_edit_distance(
    first: list[int], second: list[int]
) -> None:
    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(
            distance(i - 1, j) + 1,
            distance(i, j - 1) + 1,
            distance(i - 1, j - 1) + (first[i - 1] != second[j - 1]),
        )

    longest = max(len(first), len(second), 1)
    assert scanpath_distance(first, second) == distance(len(first), len(second)) / longest


@given(st.lists(st.tuples(st.sampled_from([None, 5.0, 10.0]), st.sampled_from([5.0, 10.0])),
                min_size=1, max_size=20))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_bins_against_scikit_learn(pairs: list[tuple[float | None, float]]) -> None:
    said = [str(first) for first, _ in pairs]
    true = [str(second) for _, second in pairs]
    expected = f1_score(true, said, labels=sorted(set(true)), average="macro", zero_division=0)
    assert f1_of_bins(pairs) == pytest.approx(expected)
