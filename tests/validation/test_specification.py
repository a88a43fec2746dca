"""The specification curve: each choice is the model of exactly these patients, fitted once."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.validation.core_help import STRONG, claim, frozen_for, load, patients
from validation.controls.curve import Specification, SpecificationCurve
from validation.controls.specification import specification
from validation.inputs.population import find_cuts
from validation.inputs.study import Study
from validation.results.results import Effect
from validation.statistics.cox import cox

PRIMARY = Effect(value=2.0, lower=1.0, upper=3.0, scale="hazard ratio")


def curve_of(folder: Path, raw: pd.DataFrame, **changes: object) -> SpecificationCurve:
    """Fit the registered choices of a claim adjusted for sex within stages."""
    cohort = load(folder, raw)
    settings = {"covariates": ["clinical:sex"], "strata": ["clinical:stage"], **changes}
    contract = frozen_for(cohort, claim(**settings)).contract
    table = cohort.table(contract.keys(), ["OS"])
    study = Study.build(contract, table, find_cuts(table, contract))
    return specification(study, PRIMARY)[1]


def test_every_choice_is_the_cox_model_of_its_patients(tmp_path: Path) -> None:
    raw = patients(160, log_hr=STRONG)
    raw.loc[:9, "stage"] = np.nan
    curve = curve_of(tmp_path, raw)
    x, sex = (raw["marker"] > raw["marker"].median()).to_numpy(), (raw["sex"] == "male").to_numpy()
    seen = set()
    for item in curve.specifications:
        for choices in (item.choices, *item.same):
            seen.add(tuple(choices.values()))
            if choices["cut-point"] != "median":
                continue
            keep = np.ones(len(raw), dtype=bool)
            if choices["exclusions"] != "none":
                keep &= (raw["months"] >= 1).to_numpy()
            layers = None
            if choices["strata"] != "none":
                keep &= raw["stage"].notna().to_numpy()
                layers = raw["stage"][keep]
            columns = [x, sex] if choices["covariates"] != "none" else [x]
            limit = math.inf if choices["follow-up"] == "all" else 60.0
            time, event = raw["months"][keep], raw["dead"][keep] * (raw["months"][keep] <= limit)
            X = np.column_stack(columns)[keep].astype(float)
            names = ["x", "sex"][: len(columns)]
            fit = cox(np.minimum(time, limit), event, X, names, strata=layers)
            assert item.value == pytest.approx(float(fit.hr[0]), rel=1e-9), choices
            assert (item.n, item.events) == (keep.sum(), event.sum())
    assert len(seen) == 3 * 2 * 2 * 2 * 2
    values = [item.value for item in curve.fitted]
    assert values == sorted(values) and not curve.failed


def test_choices_that_are_one_fit_are_one_specification(tmp_path: Path) -> None:
    """Follow-up that nobody exceeds and an exclusion of nobody give no more votes."""
    raw = patients(160, log_hr=STRONG)
    raw["months"] = 2 + raw["months"].clip(upper=50)
    curve = curve_of(tmp_path, raw)
    assert len(curve.specifications) == 3 * 2 * 2
    assert all(len(item.same) == 3 for item in curve.specifications)
    assert "follow-up 60 months" in str(curve.table()[0]["same fit"])


def test_specifications_that_fail_keep_their_reason_and_count_in_no_share(tmp_path: Path) -> None:
    raw = patients(160, log_hr=STRONG)
    raw["months"] = 0.2 + raw["months"] / raw["months"].max() / 2
    curve = curve_of(tmp_path, raw)
    failed = [item for item in curve.specifications if not item.ok]
    assert len(failed) == curve.failed == 3 * 2 * 2 * 2
    assert {item.choices["exclusions"] for item in failed} == {"under 1 month"}
    assert all(item.reason and math.isnan(item.value) for item in failed)
    assert curve.share(higher=True) + curve.share(higher=False) == pytest.approx(1.0)


def test_the_median_of_ratios_is_taken_on_the_log_scale() -> None:
    found = [Specification({}, value, 1.0, 9.0, 0.01, 9, 9) for value in (1.0, 4.0)]
    assert SpecificationCurve.of(found, 0.05).median == pytest.approx(2.0)
    assert SpecificationCurve.of(found, 0.05, 0.0).median == pytest.approx(2.5)
    assert math.isnan(SpecificationCurve((), 0.05).median)
