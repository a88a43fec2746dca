"""Online error control: the levels of a campaign's places."""

from __future__ import annotations

import pytest
from scipy.special import zeta

from validation.statistics.errors import ShapeError
from validation.statistics.online import level, spending


def test_all_places_together_spend_alpha() -> None:
    assert spending(1) == pytest.approx(1 / zeta(1.6))
    assert sum(spending(place) for place in range(1, 20_000)) < 1.0
    assert all(spending(place) > spending(place + 1) for place in range(1, 100))
    assert level(3) == pytest.approx(0.05 * 3**-1.6 / zeta(1.6))
    with pytest.raises(ShapeError, match="count from 1"):
        spending(0)
