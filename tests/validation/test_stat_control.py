"""Error control, power, splines, cut-points and imputation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patsy import dmatrix
from statsmodels.stats.multitest import multipletests

from benchmarks.simulate.samples import survival_sample
from validation.statistics.cutpoint import maximally_selected
from validation.statistics.errors import MissingValuesError, NoEventsError, ShapeError
from validation.statistics.imputation import impute, outcome_predictors, pool
from validation.statistics.multiplicity import bh, holm
from validation.statistics.power import (
    events_needed,
    minimum_detectable_hr,
    minimum_detectable_or,
    power_at,
)
from validation.statistics.splines import rcs_basis, rcs_knots

P_VALUES = st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=40)


@given(P_VALUES)
@settings(max_examples=30, deadline=None)
def test_adjusted_p_values_agree_with_statsmodels(p):
    np.testing.assert_allclose(bh(p), multipletests(p, method="fdr_bh")[1], rtol=1e-9)
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], rtol=1e-9)


@given(P_VALUES, P_VALUES)
@settings(max_examples=60, deadline=None)
def test_no_further_claim_lowers_holms_adjusted_p(p, padding):
    assert (holm([*p, *padding])[: len(p)] >= holm(p) - 1e-12).all()


@pytest.mark.parametrize("wrong", [-0.05, 1.05])
def test_what_is_no_p_value_is_refused(wrong):
    with pytest.raises(ShapeError):
        bh([0.2, wrong])


def test_schoenfelds_formula_by_hand():
    # (1.959964 + 0.841621)^2 / (log(2)^2 / 4) = 65.3 events for HR 2 at 1:1.
    assert events_needed(2.0) == 66
    assert minimum_detectable_hr(66) == pytest.approx(2.0, abs=0.01)
    assert power_at(2.0, 66) == pytest.approx(0.80, abs=0.005)


@given(st.integers(5, 5000), st.floats(0.05, 0.95), st.floats(0.5, 0.99))
@settings(max_examples=50, deadline=None)
def test_power_at_the_minimum_detectable_ratio_is_the_power_asked_for(events, fraction, power):
    hr = minimum_detectable_hr(events, fraction, 0.05, power)
    assert power_at(hr, events, fraction) == pytest.approx(power, abs=1e-4)
    assert power_at(1 / hr, events, fraction) == pytest.approx(power, abs=1e-4)


def test_power_without_events_is_refused():
    with pytest.raises(NoEventsError):
        minimum_detectable_hr(0)
    with pytest.raises(NoEventsError):
        minimum_detectable_or(50, 50, 0.5)
    assert power_at(2.0, 0) == 0.0
    with pytest.raises(ShapeError):
        power_at(2.0, 10, 1.0)


def test_minimum_detectable_odds_ratio_is_found_with_the_power_asked_for():
    from validation.statistics.binary import logistic

    odds = minimum_detectable_or(400, 160, 0.5)
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        x = np.repeat([0.0, 1.0], 200)
        p = 1 / (1 + np.exp(-(np.log(2 / 3) + np.log(odds) * (x - 0.5))))
        hits += logistic(rng.random(400) < p, x, ["x"]).p[0] < 0.05
    assert hits / 200 == pytest.approx(0.8, abs=0.1)


def test_spline_basis_spans_the_natural_cubic_splines_of_patsy():
    x = np.random.default_rng(3).normal(size=200)
    knots = rcs_knots(x, 5)
    ours = np.column_stack((np.ones(200), rcs_basis(x, knots)))
    inner, ends = list(knots[1:-1]), (knots[0], knots[-1])
    inside = (x > ends[0]) & (x < ends[1])
    theirs = np.asarray(
        dmatrix(
            "cr(x, knots=inner, lower_bound=low, upper_bound=high) - 1",
            {"x": x[inside], "inner": inner, "low": ends[0], "high": ends[1]},
        )
    )
    left = ours[inside] - theirs @ np.linalg.lstsq(theirs, ours[inside], rcond=None)[0]
    assert np.abs(left).max() < 1e-8


def test_a_planted_threshold_is_found_and_stays_significant_after_correction():
    rng = np.random.default_rng(8)
    x = rng.random(300)
    time = rng.exponential(1 / np.where(x > 0.6, 3.0, 1.0))
    found = maximally_selected(time, np.ones(300), x, permutations=500)
    assert found.cut == pytest.approx(0.6, abs=0.05)
    assert found.p < 0.01
    assert maximally_selected(time, np.ones(300), x).p < 0.01


def test_rubins_rules_by_hand():
    # Estimates 1, 2, 3 with variance 1 each: mean 2, within 1, between 1, total 1 + 4/3.
    found = pool([[1.0], [2.0], [3.0]], [[1.0], [1.0], [1.0]])
    assert found.value[0] == 2
    assert found.se[0] == pytest.approx(np.sqrt(7 / 3))
    assert found.df[0] == pytest.approx(2 * (7 / 4) ** 2)


def test_imputed_intervals_cover_the_truth_where_missingness_follows_another_covariate():
    from validation.statistics.cox import cox

    truth = np.log(1.8)
    hits, complete_bias, imputed_bias = 0, [], []
    for seed in range(20):
        s = survival_sample(250, [truth, 0.7], seed=seed, correlation=0.5, censored=0.3)
        rng = np.random.default_rng(seed)
        X = s.X.copy()
        chance = 1 / (1 + np.exp(-(X[:, 1] - 0.8)))
        X[rng.random(250) < chance, 0] = np.nan
        copies = impute(
            X, ["a", "b"], outcome=outcome_predictors(s.time, s.event), m=8, cycles=4, seed=seed
        )
        fits = [cox(s.time, s.event, c, ["a", "b"]) for c in copies]
        pooled = pool([f.coef for f in fits], [f.se**2 for f in fits])
        hits += pooled.lower[0] <= truth <= pooled.upper[0]
        imputed_bias.append(pooled.value[0] - truth)
        complete_bias.append(pooled.value[1] - 0.7)
    assert hits >= 15  # 0.1% point of a binomial (20, 0.95)
    assert -0.12 < np.mean(imputed_bias) < 0.05  # towards no effect, if anything
    assert abs(np.mean(complete_bias)) < 0.08


def test_imputation_keeps_what_was_seen_and_invents_no_new_value():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.integers(0, 2, 80), rng.normal(size=80))).astype(float)
    holes = X.copy()
    holes[:15, 0] = np.nan
    holes[30:40, 1] = np.nan
    for copy in impute(holes, ["sex", "age"], m=3, seed=1):
        assert np.isin(copy[:, 0], (0, 1)).all()
        assert np.isin(copy[30:40, 1], np.delete(X[:, 1], range(30, 40))).all()
        seen = ~np.isnan(holes)
        np.testing.assert_array_equal(copy[seen], X[seen])
    first, again = (impute(holes, ["sex", "age"], m=2, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first[1], again[1])


def test_a_column_missing_in_ninety_percent_is_refused():
    X = np.full((50, 2), np.nan)
    X[:, 0] = np.arange(50)
    X[:5, 1] = 1.0
    with pytest.raises(MissingValuesError, match="grade"):
        impute(X, ["age", "grade"])
