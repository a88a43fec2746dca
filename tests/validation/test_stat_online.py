"""Online error control: recursions written a second time, guarantees under dependence, places."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import zeta

from benchmarks.online import e_lond, lord, p_to_e
from benchmarks.runner import rate
from validation.statistics.errors import ShapeError
from validation.statistics.online import level, spending

P_VALUES = st.lists(st.one_of(st.floats(0.0, 1.0), st.floats(0.0, 0.002)), min_size=1, max_size=40)


def test_all_places_together_spend_alpha() -> None:
    assert spending(1) == pytest.approx(1 / zeta(1.6))
    assert sum(spending(place) for place in range(1, 20_000)) < 1.0
    assert all(spending(place) > spending(place + 1) for place in range(1, 100))
    with pytest.raises(ShapeError, match="count from 1"):
        spending(0)


def lord_again(p: list[float], alpha: float) -> list[bool]:
    """LORD++ from its wealth: each place puts its share down, each discovery pays alpha back."""
    shares = [share**-1.6 / zeta(1.6) for share in range(1, len(p) + 1)]
    # What each source of wealth pays out at each later time.
    flows = [(0, alpha / 2)]
    found = []
    for time, value in enumerate(p, start=1):
        bound = sum(worth * shares[time - since - 1] for since, worth in flows)
        found.append(value <= bound)
        if found[-1]:
            flows.append((time, alpha / 2 if len(flows) == 1 else alpha))
    return found


def all_or_nothing(p: object, alpha: float = 0.05) -> np.ndarray:
    """e-values of p-values at places 1, 2, ...: 1 / level where p stays below the level, else 0.

    Their expectation is at most 1 for uniform p.
    """
    values = np.atleast_1d(np.asarray(p, dtype=np.float64))
    levels = np.array([level(place, alpha) for place in range(1, len(values) + 1)])
    return np.asarray(np.where(values < levels, 1.0 / levels, 0.0), dtype=np.float64)


def e_lond_again(e: list[float], alpha: float) -> list[bool]:
    """e-LOND by its definition, one claim after the other."""
    count, found = 0, []
    for time, value in enumerate(e, start=1):
        reject = value >= 1 / (alpha * time**-1.6 / zeta(1.6) * (count + 1)) * (1 - 1e-12)
        count += reject
        found.append(bool(reject))
    return found


@given(P_VALUES)
@settings(max_examples=120, deadline=None)
def test_both_recursions_agree_with_a_second_implementation(p: list[float]) -> None:
    assert lord(p).tolist() == lord_again(p, 0.05)
    e = p_to_e(np.maximum(p, 1e-300))
    assert e_lond(e).tolist() == e_lond_again(list(e), 0.05)
    kinds = all_or_nothing(p)
    assert e_lond(kinds).tolist() == e_lond_again(list(kinds), 0.05)


def test_recursions_by_hand() -> None:
    # gamma: .43749, .14432, .07543. LORD++: .0109 for the first; after its discovery the second
    # has .025 * .14432 + .025 * .43749 = .01455; the third .025 * .07543 + .025 * .14432 + .05 *
    # .43749 = .02737.
    assert lord([0.0109, 0.0145, 0.0273]).tolist() == [True, True, True]
    assert lord([0.0110, 0.0145, 0.0273]).tolist() == [False, False, False]
    # e-LOND: 1 / (.05 * .43749) = 45.72; then with one discovery 1 / (.05 * .14432 * 2) = 69.29.
    assert e_lond([45.8, 69.3]).tolist() == [True, True]
    assert e_lond([45.7, 69.3]).tolist() == [False, False]


@given(P_VALUES)
@settings(max_examples=60, deadline=None)
def test_with_all_or_nothing_e_values_each_claim_has_the_level_of_its_place(
    p: list[float],
) -> None:
    below = [value < level(place) for place, value in enumerate(p, start=1)]
    assert e_lond(all_or_nothing(p)).tolist() == below


@pytest.mark.parametrize("place", [1, 2, 7])
def test_an_all_or_nothing_e_value_has_expectation_one(place: int) -> None:
    def e_at(p: float) -> float:
        return float(all_or_nothing([1.0] * (place - 1) + [p])[-1])

    edge = level(place)
    assert quad(e_at, 0, edge)[0] + quad(e_at, edge, 1)[0] == pytest.approx(1.0, rel=1e-6)


@given(P_VALUES, st.integers(0, 39))
@settings(max_examples=60, deadline=None)
def test_a_smaller_p_never_loses_a_discovery(p: list[float], at: int) -> None:
    smaller = list(p)
    smaller[at % len(p)] /= 10
    for rejects in (lord, lambda values: e_lond(all_or_nothing(values))):
        assert rejects(smaller).sum() >= rejects(p).sum()


def test_false_discoveries_stay_rare_however_the_claims_hang_together() -> None:
    """Nulls that share a factor, in both directions; LORD++ has no such promise."""
    rng = np.random.default_rng(11)
    from scipy.stats import norm

    any_found = []
    for _ in range(1500):
        shared = rng.standard_normal()
        loads = rng.choice([-0.9, 0.9], 40)
        z = loads * shared + np.sqrt(1 - 0.81) * rng.standard_normal(40)
        any_found.append(bool(e_lond(all_or_nothing(2 * norm.sf(np.abs(z)))).any()))
    assert rate("any", any_found).at_most(0.05)


@pytest.mark.parametrize("bad", [[1.2], [-0.1], [float("nan")]])
def test_what_is_no_p_value_is_refused(bad: list[float]) -> None:
    with pytest.raises(ShapeError):
        lord(bad)
    with pytest.raises(ShapeError):
        e_lond([-1.0])
    with pytest.raises(ShapeError):
        lord([0.5], wealth=0.0)
