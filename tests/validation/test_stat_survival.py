"""Kaplan-Meier, log-rank and restricted means against textbook values and two other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import restricted_mean_survival_time
from sksurv.compare import compare_survival
from sksurv.nonparametric import kaplan_meier_estimator
from sksurv.util import Surv
from statsmodels.duration.survfunc import survdiff

from benchmarks.simulate.samples import survival_sample
from validation.statistics.errors import (
    BadEventsError,
    BadTimesError,
    MissingValuesError,
    NoEventsError,
    ShapeError,
)
from validation.statistics.survival import kaplan_meier, logrank, restricted_mean

# Remission times in weeks of acute leukemia patients (Freireich and others 1963), the example of
# most textbooks: 6-mercaptopurine and placebo.
MP_TIME = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
MP_EVENT = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]


def leukemia():
    time = np.array(MP_TIME + PLACEBO, dtype=float)
    event = np.array(MP_EVENT + [1] * 21)
    return time, event, np.array([0] * 21 + [1] * 21)


def test_kaplan_meier_agrees_with_lifelines_and_scikit_survival():
    s = survival_sample(300, [0.4], seed=5)
    time = np.ceil(s.time * 20)
    ours = kaplan_meier(time, s.event)
    theirs = KaplanMeierFitter().fit(time, s.event)
    np.testing.assert_allclose(ours.survival, theirs.survival_function_.to_numpy()[:, 0])
    band = theirs.confidence_interval_.to_numpy()
    np.testing.assert_allclose(ours.lower[1:], band[1:, 0], atol=1e-12)
    np.testing.assert_allclose(ours.upper[1:], band[1:, 1], atol=1e-12)
    assert ours.median == theirs.median_survival_time_
    when, survival, limits = kaplan_meier_estimator(s.event, time, conf_type="log-log")
    np.testing.assert_allclose(ours.survival_at(when), survival)
    np.testing.assert_allclose(ours.lower[1:], limits[0], atol=1e-12)


def test_logrank_of_four_groups_agrees_with_lifelines_and_scikit_survival():
    s = survival_sample(400, [0.4], seed=9)
    group = np.digitize(s.X[:, 0], [-0.7, 0, 0.7])
    time = np.ceil(s.time * 15)
    ours = logrank(time, s.event, group)
    assert ours.df == 3
    theirs = multivariate_logrank_test(time, group, s.event)
    assert ours.statistic == pytest.approx(theirs.test_statistic, rel=1e-9)
    chi2, p = compare_survival(Surv.from_arrays(s.event, time), group)
    assert ours.statistic == pytest.approx(chi2, rel=1e-9)
    assert ours.p == pytest.approx(p, rel=1e-6)


def test_stratified_logrank_agrees_with_statsmodels():
    s = survival_sample(400, [0.4, 0.8], seed=10, correlation=0.5)
    group, strata = s.X[:, 0] > 0, np.digitize(s.X[:, 1], [-0.5, 0.5])
    time = np.ceil(s.time * 15)
    statistic, p = survdiff(time, s.event.astype(int), group, strata=strata)
    ours = logrank(time, s.event, group, strata)
    assert ours.statistic == pytest.approx(statistic, rel=1e-9)
    assert ours.p == pytest.approx(p, rel=1e-6)


def test_restricted_mean_agrees_with_lifelines():
    time, event, _ = leukemia()
    ours = restricted_mean(time, event, 20)
    theirs = restricted_mean_survival_time(KaplanMeierFitter().fit(time, event), t=20)
    assert ours.value == pytest.approx(theirs)


def test_without_censoring_the_restricted_mean_is_the_mean_and_its_error_the_usual_one():
    rng = np.random.default_rng(3)
    time = np.round(rng.exponential(10, 120) + 0.1, 2)
    ours = restricted_mean(time, np.ones(120), 12)
    cut = np.minimum(time, 12)
    assert ours.value == pytest.approx(cut.mean())
    assert ours.se == pytest.approx(cut.std() / np.sqrt(120))


@pytest.mark.parametrize(
    ("time", "event", "error", "says"),
    [
        ([1, 2, -3], [1, 0, 1], BadTimesError, "negative"),
        ([1, 2, np.nan], [1, 0, 1], MissingValuesError, "missing"),
        ([1, 2, np.inf], [1, 0, 1], MissingValuesError, "infinite"),
        ([1, 2, 3], [1, 2, 1], BadEventsError, "event coding"),
        ([1, 2, 3], [0, 0, 0], NoEventsError, "no events"),
        ([1, 2, 3], [0, 1, np.nan], MissingValuesError, "flags are missing"),
        ([1, 2, 3], [1, 0], ShapeError, "shape"),
        (["1", "two", "3"], [1, 0, 1], ShapeError, "not a number"),
        ([], [], ShapeError, "no patients"),
    ],
)
def test_bad_follow_up_is_refused_by_name(time, event, error, says):
    with pytest.raises(error, match=says):
        logrank(time, event, np.zeros(len(time)))
