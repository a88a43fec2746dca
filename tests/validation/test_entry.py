"""Delayed entry: patients count as at risk only from when they came under observation.

The figures are R's (survival), by entry_reference/reference.R.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import (
    claim,
    frozen_for,
    keep_claim_tests,
    load,
    patients,
    run,
)  # fmt: skip
from validation.cohort.cohort import Cohort
from validation.cohort.findings import check_cohort
from validation.drafting.draft import draft
from validation.inputs.population import find_cuts
from validation.inputs.study import Study
from validation.ledger.ledger import Ledger
from validation.statistics.competing import aalen_johansen
from validation.statistics.cox import cox
from validation.statistics.errors import BadTimesError
from validation.statistics.fine_gray import FineGray, fine_gray
from validation.statistics.proportional import cox_by_period, schoenfeld
from validation.statistics.survival import kaplan_meier, logrank

HERE = Path(__file__).parent / "entry_reference"
R = {
    line.split(",")[0]: np.array(line.strip(",").split(",")[1:], dtype=float)
    for line in (HERE / "figures.csv").read_text().splitlines()
}
WHEN = np.array([5.0, 12.0, 20.0, 36.0])
ENTERED = """
[endpoints.late]
table = "clinical"
time = "left"
entry = "entered"
time_unit = "months"
event = "dead"
event_values = [1]
censored_values = [0]
"""


def numbers(name: str) -> np.ndarray:
    """What our estimators make of the patients that R analyzed."""
    d = pd.read_csv(HERE / "patients.csv")
    t, e, entry, g, site = (
        d[key].to_numpy(float) for key in ["time", "event", "entry", "g", "site"]
    )
    X = d[["g", "x"]].to_numpy(float)
    fit = cox(t, e, X, ["g", "x"], entry=entry)
    if name == "cox":
        return np.concatenate([fit.coef, fit.se])
    if name == "schoenfeld":
        found = schoenfeld(t, e, X, fit, entry=entry)
        return np.array([*(test.statistic for test in found.tests), found.global_test.statistic])
    if name == "stratified":
        fit = cox(t, e, X, ["g", "x"], strata=site, entry=entry)
        return np.concatenate([fit.coef, fit.se])
    if name == "robust":
        return cox(t, e, X, ["g", "x"], entry=entry, cluster=site * 100 + X[:, 1]).se
    if name in ("survival", "lower", "upper"):
        curve = kaplan_meier(t, e, entry)
        at = np.searchsorted(curve.times, WHEN, side="right") - 1
        return np.asarray(getattr(curve, name)[at])
    if name == "logrank":
        plain, within = logrank(t, e, g, entry=entry), logrank(t, e, g, site, entry)
        return np.array([plain.statistic, within.statistic])
    if name.startswith("period"):
        periods = cox_by_period(t, e, g[:, None], ["g"], [15.0], entry=entry)
        part = periods[int(name[-1]) - 1].fit
        return np.concatenate([part.coef, part.se])
    if name == "fine_gray":
        found = fine_gray(t, d.st, X, ["g", "x"], entry=entry)
        return np.concatenate([found.coef, R[name][2:]])  # finegray() has no error of its weights
    incidence = aalen_johansen(t, d.st.to_numpy(), 1, entry)
    return np.asarray(incidence.incidence[incidence.index_at(WHEN)])


@pytest.mark.parametrize("name", list(R))
def test_delayed_entry_gives_the_figures_of_r(name: str) -> None:
    np.testing.assert_allclose(numbers(name), R[name], rtol=1e-8)


def test_errors_of_fine_and_gray_with_entry_are_those_of_the_jackknife() -> None:
    d = pd.read_csv(HERE / "patients.csv")

    def fit(rows: pd.DataFrame) -> FineGray:
        return fine_gray(rows.time, rows.st, rows[["g", "x"]], ["g", "x"], entry=rows.entry)

    moved = np.array([fit(d.drop(index=row)).coef for row in d.index])
    jackknife = np.sqrt((len(d) - 1) * moved.var(axis=0))
    np.testing.assert_allclose(fit(d).se, jackknife, rtol=0.13)
    known = np.abs(R["fine_gray"][2:] / jackknife - 1)  # R's, with known weights
    assert np.all(known > 0.2)


def test_fine_and_gray_with_entry_refuse_a_gap_in_follow_up() -> None:
    time, status = [2.0, 3, 4, 9, 10, 11, 12], [2, 1, 2, 1, 0, 1, 2]
    with pytest.raises(BadTimesError, match="entry"):
        fine_gray(time, status, [[0], [1], [1], [0], [1], [1], [0]], ["x"],
                  entry=[0, 1, 1, 5, 5, 6, 6])  # fmt: skip


def late(n: int = 240, log_hr: float = 0.8) -> pd.DataFrame:
    raw, rng = patients(n, log_hr=log_hr), np.random.default_rng(1)
    raw["entered"] = np.round(rng.exponential(12, n))
    return raw.assign(left=raw.entered + np.ceil(raw.months))


def entered(folder: Path, raw: pd.DataFrame, more: str = "") -> Cohort:
    return load(folder, raw, more=ENTERED + more)


@pytest.mark.parametrize(
    ("entry", "policy", "kept"),
    [(-2.0, "refuse", None), (500.0, "refuse", None), (-2.0, "exclude", 239),
     (500.0, "exclude", 239), (None, "refuse", 239)],
)  # fmt: skip
def test_impossible_entries_are_refused_or_counted(
    tmp_path: Path, entry: float | None, policy: str, kept: int | None
) -> None:
    raw = late()
    raw.loc[7, "entered"] = entry
    cohort = entered(tmp_path, raw, f'invalid_times = "{policy}"')
    codes = {item.code for item in check_cohort(cohort) if item.where == "endpoints.late"}
    if kept is None:
        assert "endpoint" in codes
        with pytest.raises(InputError, match="late"):
            cohort.outcome("late")
    else:
        assert len(cohort.outcome("late")) == kept and "entry_left_out" in codes
        found = cohort.dictionary().endpoint("late")
        assert found is not None and found.entry and "entered" in found.coding


def test_a_claim_is_tested_from_entry_on_and_reproduced(tmp_path: Path) -> None:
    raw = late()
    cohort = entered(tmp_path / "cohort", raw)
    hypothesis = claim(endpoint="late", covariates=["clinical:stage"], strata=["clinical:sex"])
    frozen = frozen_for(cohort, hypothesis)
    methods = {test.method for test in frozen.contract.tests}
    assert not methods & {"rmst", "concordance", "calibration", "decision_curve"}
    assert any("rmst" in note and "delayed entry" in note for note in frozen.contract.notes)
    found = run(
        frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l.jsonl"), reproduce=True
    )
    assert {test.status for test in found.tests} == {"ok"}
    high = (raw.marker > raw.marker.median()).to_numpy(float)
    fit = cox(raw.left, raw.dead, high[:, None], ["high"], entry=raw.entered, strata=raw.sex)
    assert found.numbers["primary.effect"].value == pytest.approx(fit.hr[0], rel=1e-9)
    (again,) = found.reproduction
    assert again.ran and not again.with_state("differs") and not again.with_state("missing")
    assert found.controls is not None and found.controls.permuted is not None
    assert found.controls.permuted.ran and found.controls.missingness is not None


def test_methods_without_a_form_for_it_refuse(tmp_path: Path) -> None:
    cohort = entered(tmp_path, late())
    with pytest.raises(InputError, match="delayed entry"):
        draft(claim(endpoint="late", exposures=[
            {"variable": "clinical:marker", "label": "marker", "cut": "optimal"}],
        ), cohort.dictionary())  # fmt: skip
    frozen = keep_claim_tests(frozen_for(cohort, claim(endpoint="late")), cohort)
    table = cohort.table(frozen.contract.keys(), ["late"])
    study = Study.build(frozen.contract, table, find_cuts(table, frozen.contract))
    with pytest.raises(InputError, match="delayed entry"):
        study.follow_up("late", study.complete("late"))


def test_a_variable_that_contains_follow_up_is_no_baseline_variable(tmp_path: Path) -> None:
    raw, rng = late(), np.random.default_rng(3)
    raw["years"] = np.round(rng.normal(60, 10, len(raw)))
    raw["last_seen"] = np.round(raw.years + raw.months / 12)
    variables = "".join(
        f'[variables.{name}]\ntable = "clinical"\ncolumn = "{name}"\nkind = "continuous"\n'
        for name in ("years", "last_seen", "entered", "left")
    )
    cohort = entered(tmp_path, raw, variables)
    told = {item.where for item in check_cohort(cohort) if item.code == "contains_follow_up"}
    assert told == {"variables.clinical:last_seen", "variables.clinical:left"}
    frozen_for(cohort, claim(covariates=["clinical:years", "clinical:stage"]))
    with pytest.raises(InputError, match="last_seen"):
        frozen_for(cohort, claim(covariates=["clinical:last_seen"]))
