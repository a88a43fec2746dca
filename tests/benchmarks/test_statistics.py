"""Honesty at small scale: false claims, power and coverage (the benchmark runs many more)."""

from __future__ import annotations

import pytest

from benchmarks.adapters.statistics import (
    DISHONEST,
    coverage,
    false_claims,
    power_curve,
)


@pytest.mark.parametrize(
    "name", ["log-rank", "cox, adjusted", "logistic, adjusted", "best cut, corrected"]
)
def test_false_claims_stay_at_their_nominal_rate(name):
    found = false_claims(name, runs=60, n=100, seed=1)
    assert found.runs == 60 and found.refused == 0
    assert found.at_most(0.05), found
    assert found.upper > 0.02  # a test that never rejects would not be a test


def test_an_uncorrected_best_cut_is_caught_as_dishonest():
    (name,) = DISHONEST
    assert not false_claims(name, runs=60, n=100, seed=1).at_most(0.05)


def test_intervals_cover_the_true_hazard_ratio():
    found = coverage(runs=120, n=150)
    assert found.lower <= 0.97 and found.upper >= 0.93, found


def test_power_follows_the_analytic_curve():
    points = power_curve([1.0, 2.0], runs=60, n=160)
    for point in points:
        assert point.found.lower - 0.04 <= point.analytic <= point.found.upper + 0.04, point
    assert [p.found.rate for p in points] == sorted(p.found.rate for p in points)
