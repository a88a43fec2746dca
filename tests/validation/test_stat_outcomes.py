"""Binary and continuous outcomes against scipy and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from scipy.optimize import minimize

from validation.statistics.base import ranks
from validation.statistics.binary import fisher, logistic
from validation.statistics.continuous import linear, rank_test
from validation.statistics.errors import (
    BadEventsError,
    CollinearError,
    ConstantFeatureError,
    EmptyGroupError,
    MissingValuesError,
    NoEventsError,
    SeparationError,
    ShapeError,
    TooManyCovariatesError,
)


def test_fisher_agrees_with_the_published_conditional_odds_ratio():
    # Convictions of criminals' twins (Fisher 1962, the example of R's fisher.test): monozygotic 10
    # convicted, 3 not; dizygotic 2 and 15. R prints odds ratio 0.04693661 for the inverse order.
    result = fisher([[2, 15], [10, 3]])
    assert result.value == pytest.approx(0.04693661, rel=1e-5)
    assert result.p == pytest.approx(0.0005367, rel=1e-3)


def test_fisher_refuses_empty_groups_and_constant_outcomes():
    with pytest.raises(EmptyGroupError):
        fisher([[0, 0], [3, 4]])
    with pytest.raises(NoEventsError):
        fisher([[0, 5], [0, 4]])
    with pytest.raises(ShapeError):
        fisher([[1.5, 2], [3, 4]])


def binary_sample(n=300):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 2)) * [1.0, 12.0] + [0.0, 65.0]
    y = rng.random(n) < 1 / (1 + np.exp(-(0.5 + 0.8 * X[:, 0] - 0.04 * (X[:, 1] - 65))))
    return y.astype(int), X


def test_logistic_agrees_with_statsmodels():
    y, X = binary_sample()
    fit = logistic(y, X, ["a", "age"])
    other = sm.Logit(y, sm.add_constant(X)).fit(disp=0, tol=1e-12)
    np.testing.assert_allclose(fit.coef, other.params[1:], atol=1e-8)
    np.testing.assert_allclose(fit.se, other.bse[1:], rtol=1e-6)
    np.testing.assert_allclose(fit.p, other.pvalues[1:], rtol=1e-5)
    np.testing.assert_allclose(np.log(fit.lower), other.conf_int()[1:, 0], atol=1e-7)
    assert fit.intercept == pytest.approx(other.params[0], abs=1e-7)
    assert fit.loglik == pytest.approx(other.llf)
    assert fit.loglik_null == pytest.approx(other.llnull)


def test_firth_logistic_maximizes_the_penalized_likelihood():
    y, X = binary_sample(25)
    Z = sm.add_constant(X - X.mean(axis=0))

    def penalized(b):
        eta = Z @ b
        p = 1 / (1 + np.exp(-eta))
        information = (Z.T * (p * (1 - p))) @ Z
        return -(y @ eta - np.log1p(np.exp(eta)).sum() + 0.5 * np.linalg.slogdet(information)[1])

    best = minimize(
        penalized, np.zeros(3), method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-13, "maxiter": 9000, "maxfev": 9000},
    )  # fmt: skip
    fit = logistic(y, X, ["a", "age"], penalty="firth")
    np.testing.assert_allclose(fit.coef, best.x[1:], atol=1e-5)


def test_separated_outcomes_are_refused_and_firth_is_the_remedy():
    x = np.arange(20.0)
    y = (x > 9).astype(int)
    with pytest.raises(SeparationError, match='"marker" separates'):
        logistic(y, x, ["marker"])
    assert np.isfinite(logistic(y, x, ["marker"], penalty="firth").odds_ratio).all()


def test_logistic_refuses_bad_outcomes():
    y, X = binary_sample(30)
    with pytest.raises(NoEventsError):
        logistic(np.zeros(30), X, ["a", "b"])
    with pytest.raises(BadEventsError, match="coding"):
        logistic(y + 1, X, ["a", "b"])
    with pytest.raises(TooManyCovariatesError):
        logistic([1, 1] + [0] * 28, X, ["a", "b"])
    with pytest.raises(ConstantFeatureError):
        logistic(y, np.ones(30), ["a"])


@pytest.mark.parametrize("robust", [False, True])
def test_linear_agrees_with_statsmodels(robust):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(120, 2))
    y = 3 + X @ [1.0, -0.5] + rng.normal(size=120) * (1 + np.abs(X[:, 0]))
    fit = linear(y, X, ["a", "b"], robust=robust)
    other = sm.OLS(y, sm.add_constant(X)).fit(cov_type="HC3" if robust else "nonrobust", use_t=True)
    np.testing.assert_allclose(fit.coef, other.params[1:], rtol=1e-9)
    np.testing.assert_allclose(fit.se, other.bse[1:], rtol=1e-9)
    np.testing.assert_allclose(fit.p, other.pvalues[1:], rtol=1e-7)
    np.testing.assert_allclose(fit.lower, other.conf_int()[1:, 0], rtol=1e-8)
    assert fit.r_squared == pytest.approx(other.rsquared)


def test_linear_refuses_dependent_covariates_and_too_many():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(10, 1))
    with pytest.raises(CollinearError):
        linear(rng.normal(size=10), np.hstack((x, 2 * x + 1)), ["a", "b"])
    with pytest.raises(TooManyCovariatesError):
        linear(rng.normal(size=10), rng.normal(size=(10, 9)), [f"x{i}" for i in range(9)])
    with pytest.raises(MissingValuesError):
        linear([1, 2, np.nan], [[1], [2], [3]], ["a"])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 200])
def test_ranks_are_scipys_to_the_bit(n):
    rng = np.random.default_rng(n)
    for x in (
        rng.normal(size=n),
        rng.integers(0, 4, n) / 3,
        np.where(rng.random(n) < 0.3, -np.inf, 1.5),
    ):
        np.testing.assert_array_equal(ranks(x), stats.rankdata(x))
    x = np.append(rng.normal(size=n), np.nan)
    np.testing.assert_array_equal(ranks(x), stats.rankdata(x))


def test_rank_tests_agree_with_scipy():
    rng = np.random.default_rng(2)
    a, b, c = rng.normal(size=40), rng.normal(size=35) + 0.8, rng.normal(size=30)
    two = rank_test(np.concatenate((a, b)), [0] * 40 + [1] * 35)
    assert two.test.p == pytest.approx(stats.mannwhitneyu(b, a).pvalue)
    assert two.superiority == pytest.approx((b[:, None] > a[None, :]).mean())
    three = rank_test(np.concatenate((a, b, c)), ["a"] * 40 + ["b"] * 35 + ["c"] * 30)
    assert three.test.p == pytest.approx(stats.kruskal(a, b, c).pvalue)
    assert three.test.df == 2
