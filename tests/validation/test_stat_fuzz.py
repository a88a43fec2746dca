"""Whatever small and awkward data come in: a named refusal, or numbers that are finite."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.screening.rank import screen
from validation.statistics.auc import auc_at
from validation.statistics.binary import logistic
from validation.statistics.calibration import baseline_hazard, calibration
from validation.statistics.competing import aalen_johansen, gray_test
from validation.statistics.concordance import harrell, uno
from validation.statistics.continuous import linear, rank_test
from validation.statistics.cox import cox
from validation.statistics.cutpoint import maximally_selected
from validation.statistics.errors import StatisticsError
from validation.statistics.fine_gray import fine_gray
from validation.statistics.imputation import impute
from validation.statistics.proportional import schoenfeld
from validation.statistics.splines import rcs_basis
from validation.statistics.survival import kaplan_meier, logrank, rmst_difference

NUMBER = st.sampled_from([0.0, 1.0, 1.0, 2.0, 2.5, 3.0, -1.0, 1e-9, 1e6, 7.25])
TIME = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 8.0, 13.0, 400.0])


@st.composite
def samples(draw):
    n = draw(st.integers(2, 24))
    column = st.lists(NUMBER, min_size=n, max_size=n)
    flags = st.lists(st.integers(0, 1), min_size=n, max_size=n)
    return {
        "time": np.array(draw(st.lists(TIME, min_size=n, max_size=n))),
        "event": np.array(draw(flags)),
        "group": np.array(draw(flags)),
        "X": np.array([draw(column), draw(column)]).T,
    }


def run_cox(d, **more):
    fit = cox(d["time"], d["event"], d["X"], ["a", "b"], **more)
    zph = schoenfeld(d["time"], d["event"], d["X"], fit)
    return [fit.coef, fit.se, fit.p, fit.loglik, fit.concordance, zph.global_test.p]


def run_screen(d):
    found = screen(d["time"], d["event"], d["X"], per_sd=True)
    return [found.coef[found.ok], found.p[found.ok], found.q]


def run_calibration(d):
    fit = cox(d["time"], d["event"], d["X"][:, :1], ["a"])
    when = float(np.median(d["time"]))
    linear = d["X"][:, :1] @ fit.coef
    hazard = baseline_hazard(d["time"], d["event"], linear, when)
    survival = np.exp(-hazard * np.exp(linear))
    return [survival, calibration(d["time"], d["event"], survival, when).brier]


def run_fine_gray(d):
    status = d["event"] * (1 + d["group"])
    fit = fine_gray(d["time"], status, d["X"][:, :1], ["a"])
    return [fit.coef, fit.se, fit.p]


def run_logistic(d, **more):
    fit = logistic(d["event"], d["X"], ["a", "b"], **more)
    return [fit.coef, fit.se, fit.p]


def run_linear(d):
    fit = linear(d["time"], d["X"], ["a", "b"])
    return [fit.coef, fit.r_squared]


def run_survival(d):
    curve = kaplan_meier(d["time"], d["event"])
    return [curve.survival, curve.lower, curve.upper]


def run_imputation(d):
    X = d["X"].copy()
    X[:1, 0] = np.nan
    return impute(X, ["a", "b"], m=2, cycles=2)


RUNS = {
    "kaplan_meier": run_survival,
    "logrank": lambda d: [logrank(d["time"], d["event"], d["group"]).p],
    "stratified logrank": lambda d: [logrank(d["time"], d["event"], d["group"], d["X"][:, 0]).p],
    "rmst": lambda d: [rmst_difference(d["time"], d["event"], d["group"], 3.0).p],
    "cox": run_cox,
    "firth": lambda d: run_cox(d, penalty="firth"),
    "stratified cox": lambda d: [
        cox(d["time"], d["event"], d["X"], ["a", "b"], strata=d["group"]).coef
    ],
    "screen": run_screen,
    "harrell": lambda d: [harrell(d["time"], d["event"], d["X"][:, 0])],
    "uno": lambda d: [uno(d["time"], d["event"], d["X"][:, 0])],
    "auc": lambda d: auc_at(d["time"], d["event"], d["X"][:, 0], [2.0]),
    "calibration": run_calibration,
    "logistic": run_logistic,
    "firth logistic": lambda d: run_logistic(d, penalty="firth"),
    "linear": run_linear,
    "rank": lambda d: [rank_test(d["time"], d["group"]).test.p],
    "aalen_johansen": lambda d: [
        aalen_johansen(d["time"], d["event"] * (1 + d["group"])).incidence
    ],
    "fine_gray": run_fine_gray,
    "gray": lambda d: [gray_test(d["time"], d["event"] * (1 + (d["X"][:, 0] > 1)), d["group"]).p],
    "cutpoint": lambda d: [
        maximally_selected(d["time"], d["event"], d["X"][:, 0], permutations=20).p
    ],
    "splines": lambda d: [rcs_basis(d["X"][:, 0], 3)],
    "imputation": run_imputation,
}


@pytest.mark.parametrize("name", RUNS)
@given(d=samples())
@settings(max_examples=10, deadline=None)
def test_awkward_data_give_a_named_refusal_or_finite_numbers(name, d):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            found = RUNS[name](d)
        except StatisticsError as refusal:
            assert len(str(refusal)) > 15 and refusal.code
            return
    for item in found:
        assert np.isfinite(item).all()


def test_nothing_at_all_is_refused():
    nobody = {
        "time": np.zeros(0), "event": np.zeros(0), "group": np.zeros(0), "X": np.zeros((0, 2))
    }  # fmt: skip
    for run in RUNS.values():
        with pytest.raises(StatisticsError):
            run(nobody)


def test_a_covariate_that_varies_at_one_event_time_only_is_refused_by_name() -> None:
    time = np.zeros(23)
    time[19] = 1.0
    event = np.zeros(23, dtype=int)
    event[[18, 19, 21, 22]] = 1
    X = np.zeros((23, 2))
    X[[20, 22], 1] = 1.0
    X[21, 0] = 1.0
    fit = cox(time, event, X, ("a", "b"), penalty="firth")
    with pytest.raises(StatisticsError):
        schoenfeld(time, event, X, fit)
