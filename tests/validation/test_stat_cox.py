"""Cox models against lifelines, scikit-survival, statsmodels and brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lifelines import CoxPHFitter
from lifelines.datasets import load_gbsg2
from scipy.optimize import minimize
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

from benchmarks.simulate.samples import survival_sample
from validation.statistics.cox import cox, null_scores
from validation.statistics.errors import (
    BadTimesError,
    CollinearError,
    ConstantFeatureError,
    MissingValuesError,
    NoEventsError,
    SeparationError,
    ShapeError,
    StatisticsError,
    TooManyCovariatesError,
)
from validation.statistics.partial_likelihood import likelihood, risk_sets


def gbsg2():
    table = load_gbsg2()
    X = np.column_stack(
        (table.age, table.pnodes, table.horTh == "yes", table.tgrade == "III")
    ).astype(float)
    return table.time.to_numpy(float), table.cens.to_numpy(), X, ["age", "nodes", "horm", "grade3"]


def test_cox_agrees_with_scikit_survival_to_ten_digits_and_with_lifelines():
    time, event, X, names = gbsg2()
    fit = cox(time, event, X, names)
    oracle = CoxPHSurvivalAnalysis(ties="efron", tol=1e-13, n_iter=200)
    oracle.fit(X, Surv.from_arrays(event.astype(bool), time))
    np.testing.assert_allclose(fit.coef, oracle.coef_, atol=1e-10)
    table = pd.DataFrame(X, columns=names).assign(t=time, e=event)
    other = CoxPHFitter().fit(table, "t", "e")
    np.testing.assert_allclose(fit.coef, other.params_, atol=1e-5)
    np.testing.assert_allclose(fit.se, other.standard_errors_, rtol=1e-4)
    np.testing.assert_allclose(fit.p, other.summary["p"], rtol=1e-3)
    np.testing.assert_allclose(fit.lower, other.summary["exp(coef) lower 95%"], rtol=1e-4)
    assert fit.loglik == pytest.approx(other.log_likelihood_, abs=1e-6)
    assert fit.concordance == pytest.approx(other.concordance_index_, abs=1e-9)
    ratio = other.log_likelihood_ratio_test()
    assert fit.likelihood_ratio.statistic == pytest.approx(ratio.test_statistic, abs=1e-5)


def brute_force_penalized(time, event, X, beta):
    """Efron's log partial likelihood plus half the log determinant, with plain loops."""
    k = X.shape[1]
    value, information = 0.0, np.zeros((k, k))
    for t in np.unique(time[event]):
        dead = np.flatnonzero((time == t) & event)
        risk = np.flatnonzero(time >= t)
        for step in range(len(dead)):
            weight = {i: np.exp(X[i] @ beta) for i in risk}
            for i in dead:
                weight[i] *= 1 - step / len(dead)
            total = sum(weight.values())
            mean = sum(w * X[i] for i, w in weight.items()) / total
            information += (
                sum(w * np.outer(X[i] - mean, X[i] - mean) for i, w in weight.items()) / total
            )
            value += X[dead[step]] @ beta - np.log(total)
    return value + 0.5 * np.linalg.slogdet(information)[1]


def small_separated():
    time = np.array([1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10], dtype=float)
    event = np.array([1, 1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1], dtype=bool)
    X = np.array(
        [[0.2, 0], [1.4, 0], [0.3, 0], [-1, 1], [0.6, 0], [-0.4, 0],
         [0.1, 1], [-0.2, 0], [0.9, 1], [-1.3, 0], [-0.8, 1], [-0.5, 0]]
    )  # fmt: skip
    return time, event, X


def test_firth_profile_limits_lie_where_the_brute_force_profile_drops_by_the_chi_squared_quantile():
    time, event, X = small_separated()
    fit = cox(time, event, X, ["x", "group"], penalty="firth")
    for limit in (fit.lower[0], fit.upper[0]):
        profile = minimize(
            lambda g, limit=limit: -brute_force_penalized(
                time, event, X, np.array([np.log(limit), g[0]])
            ),
            [fit.coef[1]], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12},
        )  # fmt: skip
        assert 2 * (fit.loglik + profile.fun) == pytest.approx(3.8414588, abs=1e-5)


def test_separation_is_refused_by_name_and_firth_is_the_remedy():
    time, event, X = small_separated()
    with pytest.raises(SeparationError, match="group"):
        cox(time, event, X, ["x", "group"])
    fit = cox(time, event, X, ["x", "group"], penalty="firth")
    assert np.isfinite(fit.hr).all() and fit.hr[1] < 1


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda d: d.update(event=np.zeros(60)), NoEventsError, None),
        (lambda d: d["X"].__setitem__((slice(None), 1), 4.0), ConstantFeatureError, '"b"'),
        (lambda d: d["X"].__setitem__((3, 0), np.nan), MissingValuesError, '"a"'),
        (lambda d: d["X"].__setitem__((slice(None), 1), 2 * d["X"][:, 0]), CollinearError, None),
        (lambda d: d["time"].__setitem__(0, -1.0), BadTimesError, None),
        (lambda d: d.update(names=["a"]), ShapeError, None),
        (lambda d: d.update(X=d["X"][:30]), ShapeError, None),
    ],
)
def test_cox_refuses_what_it_cannot_estimate(change, error, says):
    s = survival_sample(60, [0.3, 0.1], seed=4)
    data = {"time": s.time.copy(), "event": s.event, "X": s.X.copy(), "names": ["a", "b"]}
    change(data)
    with pytest.raises(error, match=says):
        cox(data["time"], data["event"], data["X"], data["names"])


@given(seed=st.integers(0, 10_000), shift=st.floats(-50, 50), scale=st.floats(0.01, 100))
@settings(max_examples=25, deadline=None)
def test_cox_does_not_care_about_units(seed, shift, scale):
    s = survival_sample(80, [0.5, -0.3], seed=seed)
    try:
        first = cox(s.time, s.event, s.X, ["a", "b"])
    except StatisticsError:
        return
    second = cox(np.sqrt(s.time) * 30, s.event, s.X * scale + shift, ["a", "b"])
    np.testing.assert_allclose(first.coef, second.coef * scale, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(first.p, second.p, rtol=1e-5, atol=1e-9)


@given(st.integers(0, 500))
@example(64)  # Full Newton steps swing around the maximum.
@settings(max_examples=8, deadline=None)
def test_firth_never_gives_an_infinite_estimate(seed):
    rng = np.random.default_rng(seed)
    time = np.round(rng.exponential(10, 30) + 1)
    event = rng.random(30) < 0.4
    X = np.column_stack((rng.random(30) < 0.2, rng.normal(size=30))).astype(float)
    try:
        fit = cox(time, event, X, ["rare", "x"], penalty="firth")
    except (ConstantFeatureError, TooManyCovariatesError, NoEventsError):
        return
    assert np.isfinite(fit.coef).all() and (fit.se > 0).all()
    assert (fit.lower <= fit.hr).all() and (fit.hr <= fit.upper).all()
    inside = (fit.lower < 1) & (fit.upper > 1)
    assert ((fit.p > 0.05) == inside).all()


def test_null_scores_weighted_by_a_variable_are_the_score_of_adding_it():
    rng = np.random.default_rng(4)
    X, layers = rng.normal(size=(150, 3)), rng.integers(0, 3, 150)
    time = np.ceil(rng.exponential(8 / np.exp(X[:, 0])))
    event = rng.random(150) < 0.7
    scores = null_scores(time, event, X[:, :2], ["a", "b"], layers)
    sets = [risk_sets(time, event, np.flatnonzero(layers == layer)) for layer in range(3)]
    fit = cox(time, event, X[:, :2], ["a", "b"], strata=layers)
    beside = likelihood(sets, X, np.append(fit.coef, 0.0))
    assert scores @ X == pytest.approx(beside.score, abs=1e-9)
