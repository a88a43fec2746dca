"""Online error control: the levels of a campaign's places."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import zeta
from scipy.stats import norm

from benchmarks.runner import rate
from validation.statistics.errors import ShapeError
from validation.statistics.online import level, spending


def test_all_places_together_spend_alpha() -> None:
    assert spending(1) == pytest.approx(1 / zeta(1.6))
    assert sum(spending(place) for place in range(1, 20_000)) < 1.0
    assert all(spending(place) > spending(place + 1) for place in range(1, 100))
    assert level(3) == pytest.approx(0.05 * 3**-1.6 / zeta(1.6))
    with pytest.raises(ShapeError, match="count from 1"):
        spending(0)


def test_false_discoveries_stay_rare_however_the_claims_hang_together() -> None:
    """Nulls that share a factor, in both directions."""
    rng = np.random.default_rng(11)
    levels = np.array([level(place) for place in range(1, 41)])
    any_found = []
    for _ in range(1500):
        loads = rng.choice([-0.9, 0.9], 40)
        z = loads * rng.standard_normal() + np.sqrt(1 - 0.81) * rng.standard_normal(40)
        any_found.append(bool((2 * norm.sf(np.abs(z)) < levels).any()))
    assert rate("any", any_found).at_most(0.05)
