"""Registered strata: patients are compared within them, in every test and control."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import NODE, claim, frozen_for, load, patients, run, run_once, write
from validation.controls import run as controls
from validation.drafting.draft import draft
from validation.ledger.ledger import Ledger
from validation.results.results import Results

STRATIFIED = {"strata": ["clinical:stage"]}


def run_stratified(tmp_path: Path, raw: pd.DataFrame, **changes: object) -> Results:
    return run_once(tmp_path, raw, hypothesis=claim(**(STRATIFIED | changes)))


def confounded(n: int = 500, seed: int = 5) -> pd.DataFrame:
    """Stage alone shortens survival, and high markers are commoner in high stages."""
    rng = np.random.default_rng(seed)
    raw = patients(n, seed=seed)
    marker = raw["stage"] + rng.normal(size=n)
    return raw.assign(marker=np.round(marker, 4))


def test_strata_are_in_the_contract_and_bind_its_comparisons(tmp_path: Path) -> None:
    plan = draft(claim(**STRATIFIED), load(tmp_path, patients()).dictionary())
    assert plan.strata == ("clinical:stage",)
    assert "clinical:stage" not in plan.covariates
    assert {test.id for test in plan.tests if test.strata} == {
        "primary",
        "schoenfeld",
        "adjusted",
        "univariable",
    }
    assert "clinical:stage" in plan.test("calibration").covariates
    assert plan.specification.strata_sets == (("clinical:stage",), ())
    assert ("clinical:stage", "stratum") in {(use.key, use.role) for use in plan.variables}


def test_the_stratified_numbers_are_those_of_a_second_library(tmp_path: Path) -> None:
    lifelines = pytest.importorskip("lifelines")
    from sksurv.compare import compare_survival

    raw = patients(300, log_hr=0.5)
    found = run_stratified(tmp_path, raw, covariates=["clinical:sex"])
    table = raw.assign(
        high=(raw["marker"] > raw["marker"].median()).astype(float),
        female=(raw["sex"] == "female").astype(float),
    )
    fit = lifelines.CoxPHFitter().fit(
        table[["months", "dead", "high", "stage"]], "months", "dead", strata=["stage"]
    )
    assert found.numbers["primary.effect"].value == pytest.approx(fit.hazard_ratios_["high"], 1e-4)
    low, high = np.exp(fit.confidence_intervals_.loc["high"])
    assert found.numbers["primary.lower"].value == pytest.approx(low, rel=1e-4)
    assert found.numbers["primary.upper"].value == pytest.approx(high, rel=1e-4)
    adjusted = lifelines.CoxPHFitter().fit(
        table[["months", "dead", "high", "female", "stage"]], "months", "dead", strata=["stage"]
    )
    assert found.numbers["adjusted.effect"].value == pytest.approx(
        adjusted.hazard_ratios_["high"], 1e-4
    )
    # scikit-survival's log-rank test of one stratum at a time gives the parts of the stratified one
    u, v = 0.0, 0.0
    for _, part in table.groupby("stage"):
        y = np.array(
            list(zip(part["dead"] == 1, part["months"], strict=True)),
            dtype=[("event", bool), ("time", float)],
        )
        _, _, stats, covariance = compare_survival(y, part["high"], return_stats=True)
        u += float(stats["observed"].iloc[1] - stats["expected"].iloc[1])
        v += float(covariance[1, 1])
    assert found.numbers["primary.statistic"].value == pytest.approx(u**2 / v, rel=1e-6)
    assert {row["strata"] for row in found.tables["specification"]} == {"Stage", "none"}


def test_a_confounded_association_goes_when_patients_are_compared_within_strata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dealt, real = [], controls.permutations

    def permuted(n: int, times: int, seed: int, strata: np.ndarray, clusters: object) -> object:
        dealt.append(len(np.unique(strata)))
        return real(n, times, seed, strata, clusters)

    monkeypatch.setattr(controls, "permutations", permuted)
    within = run_stratified(tmp_path, confounded(), covariates=["clinical:sex"])
    assert within.numbers["primary.effect"].value == pytest.approx(1.0, abs=0.35)
    assert within.verdict.verdict != "supported"
    # the permutation keeps the strata, so its p-value agrees with the stratified test's
    assert dealt[0] == 4
    assert within.numbers["control.permuted.p"].value == pytest.approx(
        within.numbers["primary.p"].value, abs=0.08
    )
    assert within.numbers["control.permuted.false_positive_rate"].value < 0.1


def test_the_flow_says_who_has_no_stratum(tmp_path: Path) -> None:
    raw = patients(120)
    raw.loc[:4, "stage"] = np.nan
    found = run_stratified(tmp_path, raw)
    lost = [join for join in found.joins if join.step == "stratum"]
    assert [(item.before, item.after) for item in lost] == [(120, 115)]


def test_strata_that_hold_the_exposure_are_refused_before_anything_runs(tmp_path: Path) -> None:
    raw = patients(200)
    raw["stage"] = (raw["marker"] > raw["marker"].median()).astype(int)
    with pytest.raises(InputError):
        run_stratified(tmp_path, raw)


def test_events_in_strata_that_hardly_compare_are_no_evidence_against(tmp_path: Path) -> None:
    """Strata that nearly decide the exposure leave little to see, whatever the events."""
    rng = np.random.default_rng(4)
    raw = patients(900, seed=1)
    near = (raw["marker"] > raw["marker"].median()).astype(int)
    flipped = np.where(rng.random(len(raw)) < 0.03, 1 - near, near)
    raw["sex"] = np.where(flipped == 1, "male", "female")
    given = claim(strata=["clinical:sex"], covariates=["clinical:stage"])
    power = frozen_for(load(tmp_path, raw), given).contract.power
    assert (power.events or 0) > 400
    assert power.minimum_detectable > 1.8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strata": ["clinical:marker"]}, "clinical:marker"),
        ({"strata": ["clinical:stage"], "covariates": ["clinical:stage"]}, "clinical:stage"),
    ],
)
def test_a_variable_has_one_part_in_a_hypothesis(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        claim(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strata": ["clinical:size"]}, "clinical:size"),
        ({"strata": ["clinical:age"]}, "continuous"),
        ({"strata": ["clinical:stage"], "endpoint": "node"}, "survival"),
        (
            {
                "strata": ["clinical:stage"],
                "exposures": [{"variable": "clinical:marker", "label": "m", "cut": "optimal"}],
            },
            "strata",
        ),
        (
            {
                "strata": ["clinical:sex"],
                "population": {
                    "description": "men",
                    "filters": [{"variable": "clinical:sex", "op": "eq", "value": "male"}],
                },
            },
            "clinical:sex",
        ),
    ],
)
def test_strata_that_cannot_work_are_refused_with_the_remedy(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    age = """
[variables.age]
table = "clinical"
column = "size"
kind = "continuous"
label = "Age"
"""
    cohort = load(tmp_path, patients(), endpoint=NODE, more=age)
    with pytest.raises(InputError, match=words):
        draft(claim(**changes), cohort.dictionary())


def test_a_second_cohort_without_the_stratum_is_compared_without_and_says_so(
    tmp_path: Path,
) -> None:
    first = load(tmp_path / "a", patients(300, log_hr=0.9))
    folder = write(tmp_path / "b", patients(200, log_hr=0.9, seed=8).drop(columns="stage"))
    text = (folder / "cohort.toml").read_text()
    begin, end = text.index("[variables.stage]"), text.index("[variables.sex]")
    text = (text[:begin] + text[end:]).replace('risk_factors = ["clinical:stage"]', "")
    (folder / "cohort.toml").write_text(text.replace('"toy"', '"other"'))
    from validation import cohort as cohorts

    frozen = frozen_for(first, claim(**STRATIFIED))
    found = run(
        frozen,
        first,
        tmp_path / "out",
        ledger=Ledger(tmp_path / "ledger.jsonl"),
        replicate=cohorts.load(folder),
    )
    second = next(
        test for test in found.tests if test.part == "replication" and test.method == "logrank"
    )
    assert second.status == "ok"
    assert any("clinical:stage" in note for note in second.notes)
