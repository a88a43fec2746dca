"""Competing risks against R (cmprsk, survival), lifelines, scikit-survival and statsmodels.

`competing_reference/reference.json` holds what R 4.2.2 printed for `patients.csv` (cmprsk 2.2-11,
survival 3.5-3), by `Rscript reference.R patients.csv`; where R is installed the script runs again.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.util import Surv

from benchmarks.adapters.statistics import (
    COMPETING,
    competing_coverage,
    competing_false_claims,
)
from benchmarks.simulate.samples import competing_sample, survival_sample
from validation.statistics.competing import (
    aalen_johansen,
    gray_test,
)
from validation.statistics.cox import cox
from validation.statistics.errors import (
    NoEventsError,
    SeparationError,
)
from validation.statistics.fine_gray import _influence, _sample, fine_gray
from validation.statistics.survival import logrank

REFERENCE = Path(__file__).parent / "competing_reference"
R = {
    name: np.asarray(values)
    for name, values in json.loads((REFERENCE / "reference.json").read_text()).items()
}
PATIENTS = pd.read_csv(REFERENCE / "patients.csv")
COVARIATES = PATIENTS[["exposed", "age"]].to_numpy(dtype=float)


@pytest.mark.parametrize("cause", [1, 2])
def test_fine_and_gray_is_cmprsk_crr_to_the_last_digit_standard_errors_included(cause):
    fit = fine_gray(PATIENTS["time"], PATIENTS["status"], COVARIATES, ["exposed", "age"], cause)
    np.testing.assert_allclose(fit.coef, R[f"crr.coef.time.{cause}"], rtol=1e-9)
    np.testing.assert_allclose(fit.se, R[f"crr.se.time.{cause}"], rtol=1e-9)
    # Not those that take the censoring weights for known:
    assert np.all(np.abs(fit.se / R[f"finegray.se.time.{cause}"] - 1) > 2e-5)


@pytest.mark.parametrize("when", ["time", "month"])
@pytest.mark.parametrize("cause", [1, 2])
def test_cause_specific_models_are_those_of_coxph(when, cause):
    mine = PATIENTS["status"] == cause
    fit = cox(PATIENTS[when], mine, COVARIATES, ["exposed", "age"])
    np.testing.assert_allclose(fit.coef, R[f"cause_specific.coef.{when}.{cause}"], rtol=1e-6)
    np.testing.assert_allclose(fit.se, R[f"cause_specific.se.{when}.{cause}"], rtol=1e-6)


@pytest.mark.parametrize("when", ["time", "month"])
@pytest.mark.parametrize("groups", ["group", "exposed"])
def test_incidences_are_those_of_cuminc(when, groups):
    labels = sorted(PATIENTS[groups].unique())
    printed = R[f"incidence.{when}.{groups}"].reshape(2, len(labels), 4)
    errors = R[f"incidence.se.{when}.{groups}"].reshape(2, len(labels), 4)
    for cause in (1, 2):
        for at, label in enumerate(labels):
            rows = PATIENTS[PATIENTS[groups] == label]
            curve = aalen_johansen(rows[when], rows["status"], cause)
            here = curve.index_at([6, 12, 24, 36])
            np.testing.assert_allclose(curve.incidence[here], printed[cause - 1, at], rtol=1e-9)
            # cuminc's variance is Aalen's, ours the delta method's: they agree while many are
            # followed, and differ by a tenth in the last handful.
            np.testing.assert_allclose(curve.se[here][:3], errors[cause - 1, at][:3], rtol=0.06)


def test_the_standard_errors_are_the_jackknifes_where_weights_are_estimated():
    # A second way to the same number: leave each patient out, censoring weights included.
    s = competing_sample(120, 0.6, seed=8, earliest=0.1, latest=1.2)
    whole = fine_gray(s.time, s.status, s.X, ["x", "z"])
    left = np.array(
        [
            fine_gray(
                np.delete(s.time, i), np.delete(s.status, i), np.delete(s.X, i, 0), ["x", "z"]
            ).coef
            for i in range(120)
        ]
    )
    spread = left - left.mean(axis=0)
    jackknife = np.sqrt((119 / 120) * (spread**2).sum(axis=0))
    np.testing.assert_allclose(whole.se, jackknife, rtol=0.06)


def test_the_influences_are_how_each_patient_moves_the_estimate():
    s = competing_sample(150, 0.6, seed=2, earliest=0.1, latest=1.2)
    z = (s.X - s.X.mean(axis=0)) / s.X.std(axis=0)
    fit = fine_gray(s.time, s.status, z, ["x", "z"])
    sample = _sample(s.time, s.status, z, 1)
    residual = _influence(sample, fit.coef)
    np.testing.assert_allclose(residual.sum(axis=0), 0, atol=1e-8)
    order = np.argsort(s.time, kind="stable")
    moved = np.array(
        [
            fit.coef
            - fine_gray(
                np.delete(s.time, i), np.delete(s.status, i), np.delete(z, i, 0), ["x", "z"]
            ).coef
            for i in order
        ]
    )
    for column in range(2):
        assert np.corrcoef(residual[:, column], moved[:, column])[0, 1] > 0.9


def test_many_patients_need_no_matrix_of_patients_by_times():
    import tracemalloc

    s = competing_sample(20_000, 0.4, seed=3)
    tracemalloc.start()
    fit = fine_gray(s.time, s.status, s.X, ["x", "z"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fit.coef[0] == pytest.approx(0.4, abs=0.06)
    assert peak < 100e6


def test_fine_and_grays_intervals_cover_the_planted_effect():
    found = competing_coverage(runs=400, n=150, seed=5)
    assert found.refused == 0
    assert 0.93 <= found.rate <= 0.97


def test_grays_test_keeps_its_level_where_only_the_competing_event_differs():
    for name in COMPETING[:2]:
        assert competing_false_claims(name, runs=200, n=200, seed=1).at_most(0.05), name
    # Power: the incidences of the competing event do differ there.
    s = competing_sample(400, 0.0, seed=1, other=0.8)
    assert gray_test(s.time, s.status, s.X[:, 0], 2).p < 0.01
    assert not competing_false_claims(COMPETING[2], runs=200, n=400, seed=1).at_most(0.05)


def test_without_competing_events_grays_differences_are_the_log_ranks():
    s = survival_sample(300, [0.4], seed=6, prevalence=0.5)
    gray = gray_test(s.time, s.event.astype(int), s.X[:, 0])
    rank = logrank(s.time, s.event, s.X[:, 0])
    assert gray.statistic == pytest.approx(rank.statistic, rel=0.03)


def test_grays_test_counts_groups_and_ignores_their_names_and_order():
    rng = np.random.default_rng(0)
    mixed = rng.permutation(len(PATIENTS))
    first = gray_test(PATIENTS["time"], PATIENTS["status"], PATIENTS["group"])
    rows = PATIENTS.iloc[mixed]
    other = gray_test(
        rows["time"] * 30, rows["status"], rows["group"].map({"A": 9, "B": 1, "C": 4})
    )
    assert other.statistic == pytest.approx(first.statistic, rel=1e-9)


def test_a_group_without_the_event_is_tested_and_has_a_flat_curve():
    s = competing_sample(200, 0.5, seed=4)
    group = s.X[:, 0]
    status = np.where((group == 1) & (s.status == 1), 2, s.status)
    assert gray_test(s.time, status, group).p < 1e-6
    none = aalen_johansen(s.time[group == 1], status[group == 1], need_events=False)
    assert none.n_events == 0
    assert not none.incidence.any() and not none.se.any() and not none.upper.any()
    with pytest.raises(SeparationError, match="Gray's test"):
        fine_gray(s.time, status, group, ["x"])


def test_only_competing_events_are_refused_in_words():
    s = competing_sample(60, 0.5, seed=4)
    status = np.where(s.status == 1, 2, s.status)
    for work in (
        lambda: fine_gray(s.time, status, s.X, ["x", "z"]),
        lambda: gray_test(s.time, status, s.X[:, 0]),
        lambda: aalen_johansen(s.time, status),
    ):
        with pytest.raises(NoEventsError, match=r"all .* events are competing"):
            work()


def test_everybody_at_the_same_time_is_refused_or_finite():
    status = np.array([1, 2, 0] * 10)
    found = gray_test(np.ones(30), status, np.arange(30) % 2)
    assert np.isfinite(found.p)
    fit = fine_gray(np.ones(30), status, np.arange(30) % 4, ["x"])
    assert all(np.isfinite(getattr(fit, field.name)).all() for field in fields(fit)[1:7])


def two_causes(n=300, seed=4, censored=True):
    rng = np.random.default_rng(seed)
    X = np.column_stack((rng.normal(size=n), rng.random(n) < 0.5)).astype(float)
    first = rng.exponential(np.exp(-0.5 * X[:, 0]))
    second = rng.exponential(1.5 * np.exp(0.3 * X[:, 1]))
    leave = rng.uniform(0.2, 3, n) if censored else np.full(n, 1e6)
    time = np.minimum(np.minimum(first, second), leave)
    status = np.where(time == leave, 0, np.where(first < second, 1, 2))
    return time, status, X


def test_incidences_of_all_causes_and_survival_add_up_to_one():
    from validation.statistics.survival import kaplan_meier

    time, status, _ = two_causes()
    total = sum(aalen_johansen(time, status, c).incidence for c in (1, 2))
    np.testing.assert_allclose(
        total, 1 - kaplan_meier(time, status > 0).survival_at(np.unique(time))
    )


def test_fine_and_gray_without_competing_events_is_the_cox_model():
    s = survival_sample(200, [0.5, -0.2], seed=6)
    fit = fine_gray(s.time, s.event.astype(int), s.X, ["a", "b"])
    np.testing.assert_allclose(fit.coef, cox(s.time, s.event, s.X, ["a", "b"]).coef, atol=1e-9)


def test_fine_and_gray_without_censoring_keeps_competing_patients_at_risk_forever():
    time, status, X = two_causes(censored=False)
    fit = fine_gray(time, status, X, ["a", "b"])
    forever = np.where(status == 2, time.max() + 1, time)
    oracle = CoxPHSurvivalAnalysis(ties="breslow", tol=1e-12, n_iter=100)
    oracle.fit(X, Surv.from_arrays(status == 1, forever))
    np.testing.assert_allclose(fit.coef, oracle.coef_, atol=1e-8)
    plain = cox(forever, status == 1, X, ["a", "b"])
    np.testing.assert_allclose(fit.se, plain.se, rtol=0.15)
