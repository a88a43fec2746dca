"""The four scores: two paths worked out by hand, and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy

from kg.paths import scores

# A star with a tail: node 0 has degree 3, nodes 1 and 2 have 1, node 3 has 2, node 4 has 1.
DEGREES = np.array([3, 1, 1, 2, 1])
PATHS = np.array([[1, 0, 3], [2, 0, -1]])


def test_novelty_is_the_mean_information_content_of_a_paths_nodes() -> None:
    got = scores.novelty(PATHS, scores.information_content(DEGREES, epsilon=1e-12))
    first = (math.log(8) + math.log(8 / 3) + math.log(4)) / 3
    second = (math.log(8) + math.log(8 / 3)) / 2
    assert got == pytest.approx([first, second])


def test_an_isolated_node_has_the_largest_finite_information_content() -> None:
    content = scores.information_content(np.array([0, 1, 5]))
    assert np.isfinite(content).all()
    assert content.argmax() == 0


def test_relevance_is_one_minus_the_mean_distance() -> None:
    distances = np.array([0.5, 1.0, 0.0, 1.5, 9.0])
    assert scores.relevance(PATHS, distances) == pytest.approx([1 - 3.0 / 3, 1 - 0.5 / 2])


def test_relevance_is_rescaled_linearly_and_clamped() -> None:
    assert scores.rescale_relevance(np.array([-1.0, 0.0, 1.0, -3.0])) == pytest.approx(
        [0.0, 0.5, 1.0, 0.0]
    )


def test_surprise_refuses_a_category_that_the_graph_does_not_have() -> None:
    with pytest.raises(ValueError, match="zero probability"):
        scores.surprise(np.array([[1, 1]]), np.array([1.0, 0.0]))


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=4, max_size=4), min_size=1, max_size=6).filter(
        lambda rows: all(sum(r) for r in rows)
    ),
    st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4),
)
def test_surprise_agrees_with_scipy_and_is_never_negative(
    counts: list[list[int]], background: list[float]
) -> None:
    q = np.array(background) / sum(background)
    got = scores.surprise(np.array(counts), q)
    assert (got >= 0).all()
    assert got == pytest.approx([entropy(np.array(r) / sum(r), q) for r in counts], abs=1e-9)


def test_logic_is_the_cosine_with_the_query() -> None:
    query = np.array([1.0, 0.0])
    paths = np.array([[0.6, 0.8], [-1.0, 0.0]])
    assert scores.logic(query, paths) == pytest.approx([0.6, -1.0])
    assert scores.clamp_logic(np.array([0.6, -1.0])).tolist() == [0.6, 0.0]


def test_the_total_is_the_weighted_mean_whatever_the_scale_of_the_weights() -> None:
    parts = [np.array([v]) for v in (0.1, 0.2, 0.6, 1.0)]
    small = scores.total((0.2, 0.2, 0.3, 0.3), *parts)
    large = scores.total((2, 2, 3, 3), *parts)
    assert small == pytest.approx([0.02 + 0.04 + 0.18 + 0.3])
    assert large == pytest.approx(small)


@pytest.mark.parametrize("weights", [(-1, 1, 1, 1), (0, 0, 0, 0), (float("nan"), 1, 1, 1)])
def test_bad_weights_are_refused(weights: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        scores.check_weights(weights)


def test_the_small_constant_and_what_counts_as_equal() -> None:
    content = scores.information_content(np.array([0, 1]))
    assert content[0] == pytest.approx(-math.log(1e-6 / (1 + 1e-6)), rel=1e-12)
    assert scores.min_max(np.array([0.0, 1e-12])).tolist() == [0.5, 0.5]
    assert scores.min_max(np.array([0.0, 1.05e-12])).tolist() == [0.0, 1.0]
    assert scores.min_max(np.array([-2.0, -2.0 + 1.9e-12])).tolist() == [0.5, 0.5]
    assert scores.min_max(np.array([3.0, 3.0 + 2.8e-12])).tolist() == [0.5, 0.5]


def test_scores_at_their_edges() -> None:
    beyond = scores.logic(np.array([2.0, 0.0]), np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert beyond.tolist() == [1.0, -1.0]
    parts = [np.array([value]) for value in (0.1, 0.2, 0.4, 0.8)]
    assert scores.total((0.1, 0.2, 0.3, 0.4), *parts) == pytest.approx([0.49])
    assert scores.check_weights((0.0, 1.0, 0.0, 0.0)) == (0.0, 1.0, 0.0, 0.0)
    assert scores.novelty(np.array([[1, -1]]), np.array([0.5, 0.25])) == pytest.approx([0.25])
    with pytest.raises(ValueError, match="without entities"):
        scores.novelty(np.array([[-1, -1]]), np.array([0.5, 0.25]))
    with pytest.raises(ValueError, match="without entities"):
        scores.surprise(np.array([[0, 0]]), np.array([0.5, 0.5]))
