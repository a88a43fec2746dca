"""Binary, continuous and competing outcomes against scipy, statsmodels and lifelines."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from lifelines import AalenJohansenFitter
from scipy import stats
from scipy.optimize import minimize
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv
from statsmodels.duration.survfunc import CumIncidenceRight

from validation.simulate import survival_sample
from validation.statistics.binary import area_under_curve, fisher, logistic
from validation.statistics.competing import aalen_johansen, cause_specific, fine_gray
from validation.statistics.continuous import correlation, linear, rank_test
from validation.statistics.cox import cox
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


def test_fisher_gives_the_tea_tasters_p_value():
    # The lady tasting tea (Fisher 1935): 3 of 4 right; two-sided p = 34/70.
    assert fisher([[3, 1], [1, 3]]).p == pytest.approx(34 / 70)


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


def test_area_under_the_curve_counts_pairs():
    assert area_under_curve([1, 0, 1, 0], [3, 1, 2, 2]) == pytest.approx(3.5 / 4)


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


def test_rank_tests_agree_with_scipy():
    rng = np.random.default_rng(2)
    a, b, c = rng.normal(size=40), rng.normal(size=35) + 0.8, rng.normal(size=30)
    two = rank_test(np.concatenate((a, b)), [0] * 40 + [1] * 35)
    assert two.test.p == pytest.approx(stats.mannwhitneyu(b, a).pvalue)
    assert two.superiority == pytest.approx((b[:, None] > a[None, :]).mean())
    assert two.shift == pytest.approx(0.8, abs=0.5)
    three = rank_test(np.concatenate((a, b, c)), ["a"] * 40 + ["b"] * 35 + ["c"] * 30)
    assert three.test.p == pytest.approx(stats.kruskal(a, b, c).pvalue)
    assert three.test.df == 2


def test_correlation_agrees_with_scipy():
    rng = np.random.default_rng(2)
    x = rng.normal(size=60)
    y = x + rng.normal(size=60)
    assert correlation(x, y).p == pytest.approx(stats.spearmanr(x, y).pvalue, rel=1e-6)
    ours, theirs = correlation(x, y, method="pearson"), stats.pearsonr(x, y)
    assert (ours.value, ours.p) == pytest.approx((theirs.statistic, theirs.pvalue))
    limits = theirs.confidence_interval()
    assert (ours.lower, ours.upper) == pytest.approx((limits.low, limits.high))


def competing_sample(n=300, seed=4, censored=True):
    rng = np.random.default_rng(seed)
    X = np.column_stack((rng.normal(size=n), rng.random(n) < 0.5)).astype(float)
    first = rng.exponential(np.exp(-0.5 * X[:, 0]))
    second = rng.exponential(1.5 * np.exp(0.3 * X[:, 1]))
    leave = rng.uniform(0.2, 3, n) if censored else np.full(n, 1e6)
    time = np.minimum(np.minimum(first, second), leave)
    status = np.where(time == leave, 0, np.where(first < second, 1, 2))
    return time, status, X


def test_aalen_johansen_agrees_with_lifelines_and_statsmodels():
    time, status, _ = competing_sample()
    ours = aalen_johansen(time, status)
    theirs = AalenJohansenFitter(calculate_variance=True).fit(time, status, 1)
    np.testing.assert_allclose(
        ours.incidence, theirs.cumulative_density_.to_numpy()[1:, 0], atol=1e-12
    )
    other = CumIncidenceRight(time, status)
    np.testing.assert_allclose(ours.incidence, other.cinc[0][: len(ours.incidence)], atol=1e-12)
    variance = np.asarray(theirs.variance_).ravel()[1:]
    middle = slice(len(variance) // 4, 3 * len(variance) // 4)
    np.testing.assert_allclose(ours.se[middle] ** 2, variance[middle], rtol=0.02)


def test_with_one_cause_the_cumulative_incidence_is_one_minus_kaplan_meier():
    from validation.statistics.survival import kaplan_meier

    s = survival_sample(100, [0.1], seed=1)
    incidence = aalen_johansen(s.time, s.event.astype(int))
    curve = kaplan_meier(s.time, s.event)
    np.testing.assert_allclose(incidence.incidence, 1 - curve.at(incidence.times), atol=1e-12)
    d, n = curve.events[1:], curve.at_risk[1:]
    greenwood = curve.survival[1:] ** 2 * np.cumsum(d / (n * np.maximum(n - d, 1)))
    np.testing.assert_allclose(incidence.se**2, greenwood, atol=1e-12)


def test_incidences_of_all_causes_and_survival_add_up_to_one():
    from validation.statistics.survival import kaplan_meier

    time, status, _ = competing_sample()
    total = sum(aalen_johansen(time, status, c).incidence for c in (1, 2))
    np.testing.assert_allclose(total, 1 - kaplan_meier(time, status > 0).at(np.unique(time)))


def test_cause_specific_hazards_censor_the_other_causes():
    time, status, X = competing_sample()
    oracle = CoxPHSurvivalAnalysis(ties="efron").fit(X, Surv.from_arrays(status == 1, time))
    fit = cause_specific(time, status, X, ["a", "b"])
    np.testing.assert_allclose(fit.coef, oracle.coef_, atol=1e-7)


def test_fine_and_gray_without_competing_events_is_the_cox_model():
    s = survival_sample(200, [0.5, -0.2], seed=6)
    fit = fine_gray(s.time, s.event.astype(int), s.X, ["a", "b"])
    np.testing.assert_allclose(fit.coef, cox(s.time, s.event, s.X, ["a", "b"]).coef, atol=1e-9)


def test_fine_and_gray_without_censoring_keeps_competing_patients_at_risk_forever():
    time, status, X = competing_sample(censored=False)
    fit = fine_gray(time, status, X, ["a", "b"])
    forever = np.where(status == 2, time.max() + 1, time)
    oracle = CoxPHSurvivalAnalysis(ties="breslow", tol=1e-12, n_iter=100)
    oracle.fit(X, Surv.from_arrays(status == 1, forever))
    np.testing.assert_allclose(fit.coef, oracle.coef_, atol=1e-8)
    plain = cox(forever, status == 1, X, ["a", "b"])
    np.testing.assert_allclose(fit.se, plain.se, rtol=0.15)


def test_fine_and_gray_intervals_cover_the_planted_subdistribution_effect():
    truth, hits = 0.6, 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n = 250
        x = (rng.random(n) < 0.5).astype(float)
        # Fine and Gray's own simulation: P(cause 1) = 1 - 0.5^exp(truth x).
        share = 1 - 0.5 ** np.exp(truth * x)
        is_first = rng.random(n) < share
        u = rng.random(n) * share
        first = -np.log(1 - (1 - (1 - u) ** np.exp(-truth * x)) / 0.5)
        time = np.where(is_first, first, rng.exponential(1, n))
        leave = rng.uniform(0.5, 3, n)
        status = np.where(time > leave, 0, np.where(is_first, 1, 2))
        fit = fine_gray(np.minimum(time, leave), status, x[:, None], ["x"])
        hits += np.log(fit.lower[0]) <= truth <= np.log(fit.upper[0])
    assert hits >= 106  # 0.1% point of a binomial (120, 0.95) is 105


def test_competing_status_codes_are_checked():
    time, status, _ = competing_sample(30)
    with pytest.raises(NoEventsError, match="cause 3"):
        aalen_johansen(time, status, 3)
    with pytest.raises(BadEventsError, match="causes"):
        aalen_johansen(time, status - 1)
