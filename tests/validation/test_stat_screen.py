"""Screening against scikit-survival, its refusals, and the numeric controls."""

from __future__ import annotations

import numpy as np
import pytest
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

from benchmarks.simulate.samples import survival_sample
from validation.screening.rank import screen
from validation.statistics.base import chi2_p
from validation.statistics.cox import cox
from validation.statistics.cutpoint import logrank_scores
from validation.statistics.errors import (
    CollinearError,
    ConstantFeatureError,
    ConvergenceError,
    NoEventsError,
    ShapeError,
    TooManyCovariatesError,
)
from validation.statistics.multiplicity import bh
from validation.statistics.permuted import empirical_p, matched_features, permutations, score_z


def features(n=220, p=60, seed=1):
    s = survival_sample(n, [0.6, 0.4, -0.3], seed=seed)
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(n, p)) * rng.uniform(0.5, 4, p) + rng.uniform(-5, 900, p)
    G[:, 0] = s.X[:, 0]
    G[:, 1] = np.round(G[:, 1])
    return np.ceil(s.time * 25), s.event, G, s.X[:, 1:]


@pytest.mark.parametrize("adjusted", [False, True])
def test_screen_agrees_with_scikit_survival_to_six_digits_on_tied_times(adjusted):
    time, event, G, C = features(p=24)
    result = screen(time, event, G, C if adjusted else None, per_sd=False)
    y = Surv.from_arrays(event, time)
    for j in range(G.shape[1]):
        X = np.column_stack((G[:, j], C)) if adjusted else G[:, j : j + 1]
        oracle = CoxPHSurvivalAnalysis(ties="efron", tol=1e-13, n_iter=200).fit(X, y)
        assert result.coef[j] == pytest.approx(oracle.coef_[0], abs=1e-6)
    assert result.ranking()[0] == 0


def test_screen_does_not_depend_on_threads_or_on_the_other_features():
    time, event, G, C = features(p=400)
    one = screen(time, event, G, C, workers=1)
    two = screen(time, event, G[:, ::-1], C, workers=2)
    np.testing.assert_allclose(one.coef, two.coef[::-1], rtol=1e-9)


def test_features_that_cannot_be_fitted_say_why_and_still_count():
    time, event, G, _ = features()
    G[:, 2] = 7.0
    G[::5, 3] = np.nan
    G[:150, 4] = np.nan
    G[:, 5] = -time
    G[:, 6] = np.where(event, 0.0, 1.0)
    result = screen(time, event, G, names=[f"g{i}" for i in range(60)])
    assert result.count_refused() == {"constant_feature": 1, "missing_values": 1, "separation": 2}
    assert np.isnan(result.hr[[2, 4, 5, 6]]).all()
    assert set(result.ranking()[-4:]) == {2, 4, 5, 6}
    assert result.status[3] == "ok" and result.n_used[3] == 176
    rows = ~np.isnan(G[:, 3])
    fit = cox(time[rows], event[rows], G[rows, 3:4], ["g3"])
    assert result.p[3] == pytest.approx(fit.p[0], rel=1e-5)
    counted = np.where(np.isnan(result.p), 1.0, result.p)
    np.testing.assert_allclose(result.q, bh(counted))


def test_screen_refuses_what_no_feature_could_survive():
    time, event, G, C = features()
    with pytest.raises(NoEventsError):
        screen(time, np.zeros(len(time)), G)
    with pytest.raises(CollinearError):
        screen(time, event, G, np.column_stack((C, C[:, 0])))
    with pytest.raises(ConstantFeatureError, match='"age"'):
        screen(time, event, G, np.ones((len(time), 1)), covariate_names=["age"])
    few = np.zeros(len(time))
    few[:2] = 1
    with pytest.raises(TooManyCovariatesError):
        screen(time, few, G, C)
    with pytest.raises(ShapeError):
        screen(time, event, G[:50])


def permuted(s, times, seed=0):
    """The score of the first covariate given the others, its permutations, and p."""
    orders = permutations(len(s.time), times, seed)
    others = s.X[:, 1:] if s.X.shape[1] > 1 else None
    scores, x = logrank_scores(s.time, s.event == 1), s.X[:, 0]
    observed = float(score_z(scores, x[:, None], others)[0])
    null = score_z(scores, x[orders].T, others)
    return observed, null, empirical_p(observed, null)


def test_permutation_agrees_with_the_analytic_p_value():
    observed, _, p = permuted(survival_sample(150, [0.25], seed=9), 3000)
    assert p == pytest.approx(chi2_p(observed**2, 1), abs=0.02)


def test_empirical_p_is_never_zero_nor_made_of_what_could_not_be_computed():
    null = np.array([-2.0, -1.0, 0.0, 1.0])
    assert empirical_p(3.0, null) == pytest.approx(1 / 5)
    assert empirical_p(1.0, null) == pytest.approx(4 / 5)
    for observed, drawn in ((np.nan, null), (1.0, np.full(4, np.nan)), (1.0, null[:0])):
        with pytest.raises(ConvergenceError):
            empirical_p(observed, drawn)


def test_permutations_stay_within_their_strata():
    strata = np.array(["a"] * 6 + ["b"] * 4)
    orders = permutations(10, 30, 0, strata)
    assert (np.sort(orders[:, :6], axis=1) == np.arange(6)).all()
    assert len(np.unique(orders, axis=0)) > 20


def test_matched_features_have_like_level_and_spread_and_leave_out_the_excluded():
    rng = np.random.default_rng(0)
    level, spread = rng.uniform(0, 12, 2000), rng.uniform(0.2, 2, 2000)
    values = level + spread * rng.normal(size=(100, 2000))
    values[:, 7] = 3.0
    picked = matched_features(values, 42, draws=100, pool=200, exclude=[1, 2, 3])
    assert len(picked) == 100 and len(set(picked)) == 100
    assert not {42, 1, 2, 3, 7} & set(picked)
    assert np.abs(level[picked] - level[42]).max() < 2.5
    assert np.abs(spread[picked] - spread[42]).max() < 0.5


def test_features_that_few_patients_carry_are_fitted_at_the_top_of_their_likelihood():
    # Silent genes with a few spikes throw an unguarded Newton step past the maximum (on real
    # expression data scikit-survival stops there, at a likelihood far below the best one).
    from validation.statistics.partial_likelihood import likelihood, risk_sets

    time, event, _, _ = features(n=300)
    rng = np.random.default_rng(3)
    G = 0.02 * rng.normal(size=(300, 40))
    for j in range(40):
        carriers = rng.choice(300, 1 + j % 4, replace=False)
        G[carriers, j] += rng.gamma(2.0, 2.0, len(carriers))
    result = screen(time, event, G)
    sets = [risk_sets(time, event, np.arange(300))]
    ok = np.flatnonzero(result.ok)
    assert len(ok) > 20
    for j in ok:
        z = ((G[:, j] - G[:, j].mean()) / G[:, j].std())[:, None]
        assert abs(likelihood(sets, z, result.coef[[j]]).score[0]) < 1e-6
        assert result.coef[j] == pytest.approx(cox(time, event, z, ["g"]).coef[0], abs=1e-6)
    assert set(result.count_refused()) <= {"separation"}
    for j in np.flatnonzero(~result.ok):
        z = ((G[:, j] - G[:, j].mean()) / G[:, j].std())[:, None]
        far = [likelihood(sets, z, np.array([s * 25 / np.ptp(z)])).value for s in (-1, 1)]
        near = [likelihood(sets, z, np.array([s * 8 / np.ptp(z)])).value for s in (-1, 1)]
        assert max(far) >= max(near) - 1e-6
