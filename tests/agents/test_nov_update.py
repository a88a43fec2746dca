"""The update rule keeps its promises for every panel."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.novelty.update import update

score = st.floats(1.0, 10.0)
confidence = st.floats(0.0, 1.0)
panel = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        st.lists(score, min_size=n, max_size=n),
        st.lists(score, min_size=n, max_size=n),
        st.lists(confidence, min_size=n, max_size=n),
    )
)
weight = st.floats(0.1, 20.0)


def test_three_critics_worked_by_hand() -> None:
    # k = 3, confidences 1, 1, 0.5: own precision 3, 3, 1.5; proposals' sum 8 + 4 + 0.5 * 6 = 15,
    # their precision 2.5. (24 + 15) / 5.5, (12 + 15) / 5.5, (1.5 * 6 + 15) / 4.
    moved = update([8, 4, 6], [8, 4, 6], [1, 1, 0.5], own_weight=3)
    assert moved == pytest.approx([39 / 5.5, 27 / 5.5, 6.0])


@settings(deadline=None)
@given(panel, weight)
def test_scores_stay_within_what_was_said_and_so_within_1_to_10(panel, k) -> None:
    scores, proposals, confidences = panel
    moved = update(scores, proposals, confidences, k)
    assert (moved >= min(*scores, *proposals)).all()
    assert (moved <= max(*scores, *proposals)).all()
    assert ((moved >= 1) & (moved <= 10)).all()


@settings(deadline=None)
@given(panel, weight, st.randoms())
def test_the_order_of_the_critics_does_not_matter(panel, k, random) -> None:
    columns = list(zip(*panel, strict=True))
    order = list(range(len(columns)))
    random.shuffle(order)
    shuffled = [list(item) for item in zip(*(columns[i] for i in order), strict=True)]
    assert update(*shuffled, k) == pytest.approx(update(*panel, k)[order], abs=1e-9)


@pytest.mark.parametrize(
    ("scores", "proposals", "confidences", "k", "message"),
    [
        ([1], [1, 2], [1], 3, "per critic"),
        ([], [], [], 3, "per critic"),
        ([0.5], [1], [1], 3, "every score must be"),
        ([5], [11], [1], 3, "every proposal must be"),
        ([5], [float("nan")], [1], 3, "every proposal must be"),
        ([5], [5], [1.5], 3, "every confidence must"),
        ([5], [5], [1], 0, "must be positive"),
    ],
)
def test_values_out_of_range_are_refused(scores, proposals, confidences, k, message) -> None:
    with pytest.raises(ValueError, match=message):
        update(scores, proposals, confidences, k)
