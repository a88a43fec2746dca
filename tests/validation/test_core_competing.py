"""Competing endpoints through contract, runner, figure and command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sage.core.errors import InputError
from tests.validation.core_help import (
    cause_of_death,
    claim,
    frozen_for,
    load,
    patients,
    run,
)
from validation.ledger.ledger import Ledger
from validation.results.results import Results
from validation.statistics.competing import gray_test
from validation.statistics.fine_gray import fine_gray

runner = CliRunner()

CAUSE = cause_of_death("tumor", "other", "alive")
TCGA = """
id = "tcga-blca-deaths"
title = "TCGA bladder urothelial carcinoma: deaths by cause"
risk_factors = ["clinical:stage"]
root = "{root}"
patient = {{ table = "cdr", ids = "tcga" }}
signatures = []

[tables.cdr]
file = "TCGA-CDR.csv"
key = "bcr_patient_barcode"
where = {{ type = "BLCA" }}

[variables.age]
table = "cdr"
column = "age_at_initial_pathologic_diagnosis"
kind = "continuous"
unit = "years"
label = "Age at diagnosis"

[variables.stage]
table = "cdr"
column = "ajcc_pathologic_tumor_stage"
kind = "ordinal"
values = {{ "Stage I" = 1, "Stage II" = 2, "Stage III" = 3, "Stage IV" = 4 }}
label = "Stage"

[endpoints.cause]
kind = "competing"
table = "cdr"
time = "OS.time"
time_unit = "days"
event = "DSS"
event_values = [1]
competing = "OS"
competing_values = [1]
censored_values = [0]
label = "Death from bladder cancer"
"""


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGE_CACHE_DIR", str(tmp_path / "cache"))


def by_cause(other: float = 0.3, *, log_hr: float = 1.1, n: int = 400) -> pd.DataFrame:
    """A clinical table in which this share of the deaths is from other causes."""
    raw = patients(n, log_hr=log_hr)
    fate = (np.random.default_rng(2).random(n) < other) & (raw["dead"] == 1)
    raw["cause"] = np.where(fate, "other", np.where(raw["dead"] == 1, "tumor", "alive"))
    return raw


def judged(folder: Path, raw: pd.DataFrame, **changes: Any) -> Results:
    cohort = load(folder / "cohort", raw, more=CAUSE)
    return run(
        frozen_for(cohort, claim(**({"endpoint": "cause"} | changes))), cohort, folder / "out",
        ledger=Ledger(folder / "ledger"),
    )  # fmt: skip


def test_a_grouped_competing_endpoint_registers_the_hazard_as_its_claim(tmp_path: Path) -> None:
    raw = by_cause()
    found = judged(tmp_path, raw)
    by_id = {test.id: test for test in found.tests}
    assert [test.id for test in found.tests if test.claim] == ["primary"]
    assert by_id["primary"].method == "cause_specific"
    assert by_id["gray"].method == "gray"
    assert {test.status for test in found.tests} == {"ok"}
    assert found.verdict.verdict == "supported"
    assert [reason.outcome for reason in found.verdict.reasons if reason.rule == "incidence"] == [
        "for"
    ]
    high = (raw["marker"] > raw["marker"].median()).to_numpy(dtype=float)
    status = raw["cause"].map({"alive": 0, "tumor": 1, "other": 2}).to_numpy()
    gray = gray_test(raw["months"], status, high)
    fit = fine_gray(raw["months"], status, high, ["x"])
    assert found.numbers["gray.p"].value == pytest.approx(gray.p, rel=1e-6)
    assert found.numbers["fine_gray.effect"].value == pytest.approx(fit.hr[0], rel=1e-6)
    assert found.numbers["primary.competing"].value == (status == 2).sum()
    adjusted = found.numbers["fine_gray_adjusted.effect"].value
    assert adjusted is not None and adjusted != found.numbers["fine_gray.effect"].value


def test_competing_events_alone_are_refused_and_counted(tmp_path: Path) -> None:
    raw = by_cause(1.0)
    found = judged(tmp_path, raw)
    primary = found.test("primary")
    assert primary is not None and primary.status == "refused"
    assert str((raw["cause"] == "other").sum()) in primary.reason
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "data")


def test_a_group_without_the_event_gets_a_penalized_hazard_and_a_refused_incidence_model(
    tmp_path: Path,
) -> None:
    raw = by_cause()
    low = raw["marker"] <= raw["marker"].median()
    raw.loc[low & (raw["cause"] == "tumor"), "cause"] = "other"
    found = judged(tmp_path, raw)
    primary, fine, gray = (found.test(item) for item in ("primary", "fine_gray", "gray"))
    assert primary is not None and primary.status == "ok"
    assert any("Firth" in note for note in primary.notes)
    assert fine is not None and (fine.status, fine.code) == ("refused", "separation")
    assert gray is not None and gray.status == "ok" and (gray.p or 1) < 1e-6


def test_a_second_flag_tells_what_competes(tmp_path: Path) -> None:
    raw = by_cause()
    raw["tumor_death"] = (raw["cause"] == "tumor").astype("Int64")
    raw.loc[raw.index[:3], "tumor_death"] = pd.NA
    two = CAUSE.replace('event = "cause"', 'event = "tumor_death"\ncompeting = "dead"')
    two = two.replace('["tumor"]', "[1]").replace('["other"]', "[1]").replace('["alive"]', "[0]")
    one = load(tmp_path / "one", raw, more=CAUSE).outcome("cause")
    cohort = load(tmp_path / "two", raw, more=two)
    other = cohort.outcome("cause")
    assert len(other) == len(one) - 3
    pd.testing.assert_frame_equal(other, one.loc[other.index], check_dtype=False)
    with pytest.raises(InputError, match=r"endpoints\.cause\.competing"):
        load(tmp_path / "three", raw, more=two.replace('"dead"', '"died"')).outcome("cause")
