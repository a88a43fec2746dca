"""Competing endpoints through contract, runner, figure and command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import STRONG, cause_of_death, claim, load, patients, run_once
from validation.statistics.competing import gray_test
from validation.statistics.fine_gray import fine_gray

CAUSE = cause_of_death("tumor", "other", "alive")


def by_cause() -> pd.DataFrame:
    """A clinical table in which some of the deaths are from other causes."""
    raw = patients(400, log_hr=STRONG)
    fate = (np.random.default_rng(2).random(400) < 0.3) & (raw["dead"] == 1)
    raw["cause"] = np.where(fate, "other", np.where(raw["dead"] == 1, "tumor", "alive"))
    return raw


def test_a_grouped_competing_endpoint_registers_the_hazard_as_its_claim(tmp_path: Path) -> None:
    raw = by_cause()
    found = run_once(tmp_path, raw, hypothesis=claim(endpoint="cause"), more=CAUSE)
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
