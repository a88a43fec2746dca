"""Competing risks against R (cmprsk, survival), lifelines, scikit-survival and statsmodels.

`competing_reference/reference.json` holds what R 4.2.2 printed for `patients.csv` (cmprsk 2.2-11,
survival 3.5-3), by `Rscript reference.R patients.csv`; where R is installed the script runs again.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.simulate.samples import competing_sample
from validation.statistics.competing import aalen_johansen, gray_test
from validation.statistics.errors import NoEventsError, SeparationError
from validation.statistics.fine_gray import fine_gray

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


def test_many_patients_need_no_matrix_of_patients_by_times():
    import tracemalloc

    s = competing_sample(20_000, 0.4, seed=3)
    tracemalloc.start()
    fit = fine_gray(s.time, s.status, s.X, ["x", "z"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert fit.coef[0] == pytest.approx(0.4, abs=0.06)
    assert peak < 100e6


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
