"""Concordance, time-dependent AUC, Brier score, calibration and bootstrap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines.utils import concordance_index
from scipy.stats import bootstrap as scipy_bootstrap
from sksurv.metrics import (
    brier_score,
    concordance_index_censored,
    concordance_index_ipcw,
    cumulative_dynamic_auc,
)
from sksurv.util import Surv

from benchmarks.simulate.samples import survival_sample
from validation.statistics.auc import auc_at
from validation.statistics.bootstrap import bootstrap
from validation.statistics.calibration import baseline_hazard, brier, calibration
from validation.statistics.concordance import concordant_pairs, harrell, uno
from validation.statistics.cox import cox
from validation.statistics.errors import BadTimesError, ConvergenceError, NoEventsError, ShapeError


def sample(seed=3, n=250):
    s = survival_sample(n, [0.7, -0.4], seed=seed)
    return np.round(s.time * 30) + 1, s.event, s.X @ s.coef, s


def test_harrells_c_agrees_with_scikit_survival_and_lifelines_under_ties():
    time, event, risk, _ = sample()
    risk = np.round(risk, 1)
    assert harrell(time, event, risk) == pytest.approx(
        concordance_index_censored(event, time, risk, tied_tol=0)[0]
    )
    assert harrell(time, event, risk) == pytest.approx(
        concordance_index(time, -risk, event), abs=0.01
    )


@given(st.integers(0, 10_000), st.integers(2, 300), st.sampled_from([2, 9, 1000]))
@settings(max_examples=40, deadline=None)
def test_weighted_pairs_are_those_counted_one_by_one(seed, n, values):
    rng = np.random.default_rng(seed)
    t, risk = rng.integers(0, values, n) * 1.0, rng.integers(0, values, n) * 1.0
    e = rng.random(n) < 0.5
    first, second = rng.random((n, 2)), rng.random((n, 2))
    later = e[:, None] & ((t > t[:, None]) | ((t == t[:, None]) & ~e))
    won = later * ((risk[:, None] > risk) + 0.5 * (risk[:, None] == risk))
    right, pairs = concordant_pairs(t, e, risk, first, second)
    np.testing.assert_allclose(right, np.einsum("im,ij,jm->m", first, won, second), atol=1e-9)
    np.testing.assert_allclose(pairs, np.einsum("im,ij,jm->m", first, later, second), atol=1e-9)


@pytest.mark.parametrize("tau", [25.0, 45.0])
def test_unos_c_agrees_with_scikit_survival(tau):
    time, event, risk, _ = sample()
    y = Surv.from_arrays(event, time)
    assert uno(time, event, risk, tau=tau) == pytest.approx(
        concordance_index_ipcw(y, y, risk, tau=tau)[0]
    )


def test_time_dependent_auc_agrees_with_scikit_survival():
    time, event, risk, _ = sample()
    y = Surv.from_arrays(event, time)
    horizons = np.array([8.0, 15.0, 25.0, 40.0])
    theirs, _ = cumulative_dynamic_auc(y, y, risk, horizons)
    np.testing.assert_allclose(auc_at(time, event, risk, horizons), theirs, atol=1e-10)


def test_auc_without_cases_or_controls_is_refused():
    time, event, risk, _ = sample()
    with pytest.raises(NoEventsError, match=r"no events by 0\.5"):
        auc_at(time, event, risk, [0.5])
    with pytest.raises(BadTimesError, match="nobody is followed"):
        auc_at(time, event, risk, [1e6])
    with pytest.raises(ShapeError, match="finite values"):
        auc_at(time, event, np.full(len(time), np.nan), [10])


def test_brier_score_agrees_with_scikit_survival():
    time, event, _, s = sample()
    fit = cox(time, event, s.X, ["a", "b"])
    linear = s.X @ fit.coef
    predicted = np.exp(-baseline_hazard(time, event, linear, 20.0) * np.exp(linear))
    y = Surv.from_arrays(event, time)
    _, theirs = brier_score(y, y, predicted[:, None], [20.0])
    assert brier(time, event, predicted, 20.0) == pytest.approx(theirs[0], abs=1e-10)


def test_true_predictions_are_calibrated_and_exaggerated_ones_are_not():
    s = survival_sample(4000, [0.8], seed=11, censored=0.3)
    true = np.exp(-1.0 * np.exp((s.X - s.X.mean(axis=0)) @ s.coef))
    good = calibration(s.time, s.event, true, 1.0)
    assert good.slope.lower < 1 < good.slope.upper
    assert good.ratio == pytest.approx(1, abs=0.05)
    assert np.abs(good.predicted - good.observed).max() < 0.05
    assert good.brier < good.brier_reference
    wild = np.exp(-1.0 * np.exp(2 * (s.X - s.X.mean(axis=0)) @ s.coef))
    bad = calibration(s.time, s.event, wild, 1.0)
    assert bad.slope.upper < 0.7


def test_bootstrap_intervals_agree_with_scipy():
    rng = np.random.default_rng(0)
    values = rng.gamma(2.0, 1.0, 80)
    ours = bootstrap(lambda x: float(np.mean(x)), values, times=2000, seed=1)
    theirs = scipy_bootstrap(
        (values,), np.mean, n_resamples=2000, method="percentile", rng=2
    ).confidence_interval
    assert ours.lower == pytest.approx(theirs.low, abs=0.06)
    assert ours.upper == pytest.approx(theirs.high, abs=0.06)


def test_a_bootstrap_that_mostly_fails_is_refused():
    time, event = np.arange(1.0, 11.0), np.array([1] + [0] * 9)
    with pytest.raises(ConvergenceError, match="could not be computed"):
        bootstrap(harrell, time, event, -time, times=100)
