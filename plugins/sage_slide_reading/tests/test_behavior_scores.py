"""Scores of proposed regions, each against a second, slower implementation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_servers.slides.arrays import F64
from sage_slide_reading.behavior.scores import (
    hits,
    ious,
    match_boxes,
    pooled_precision,
    share_found,
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


@given(boxes, boxes)
@settings(max_examples=60, deadline=None)
def test_the_share_found_by_counting(first: F64, second: F64) -> None:
    pairs = {(i, j): iou_by_shapely(a, b) for (i, a), (j, b) in
             product(enumerate(first.tolist()), enumerate(second.tolist()))}  # fmt: skip
    found = sum(any(pairs[i, j] > 0.3 for i in range(len(first))) for j in range(len(second)))
    assert share_found(second, first) == pytest.approx(found / len(second))


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
