"""Calibration as a registered test: inside a cohort, on held-back patients, in a second cohort."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.draws import draw_few
from tests.validation.core_help import claim, frozen_for, load, patients, run
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.contracts.contract import SplitRule
from validation.inputs.prediction import PredictionModel
from validation.ledger.ledger import Ledger
from validation.results.results import Results

ADJUSTED = {"covariates": ["clinical:sex", "clinical:stage"]}


def go(tmp_path: Path, cohort: Cohort, other: Cohort | None = None, **options: object) -> Results:
    frozen = frozen_for(cohort, claim(**ADJUSTED), **options)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    return run(frozen, cohort, tmp_path / "out", ledger=ledger, replicate=other)


def other_cohort(folder: Path, raw: pd.DataFrame) -> Cohort:
    cohort_folder = folder / "second"
    load(cohort_folder, raw)
    text = (cohort_folder / "cohort.toml").read_text()
    (cohort_folder / "cohort.toml").write_text(text.replace('id = "toy"', 'id = "other"'))
    return cohorts.load(cohort_folder)


def own_design(raw: pd.DataFrame, model: PredictionModel) -> np.ndarray:
    """The model's columns, made from the raw rows without its code."""
    stage = next(term for term in model.terms if term.key == "clinical:stage")
    return np.column_stack(
        [
            raw["marker"] > raw["marker"].median(),
            raw["sex"] == "female",
            (raw["stage"] - stage.mean) / stage.sd,
        ]
    ).astype(float)


@pytest.fixture(scope="module")
def developed(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Results]:
    """Patients, and the results of a claim in them."""
    place, raw = tmp_path_factory.mktemp("developed"), patients(400, log_hr=0.8)
    with pytest.MonkeyPatch.context() as patch:
        draw_few(patch)
        return raw, go(place, load(place / "cohort", raw))


def test_the_developed_model_is_reported_whole_and_is_the_adjusted_cox_model(
    developed: tuple[pd.DataFrame, Results],
) -> None:
    lifelines = pytest.importorskip("lifelines")
    raw, found = developed
    model = found.model
    assert model is not None
    table = pd.DataFrame(
        {
            "months": raw["months"],
            "dead": raw["dead"],
            "high": (raw["marker"] > raw["marker"].median()).astype(float),
            "female": (raw["sex"] == "female").astype(float),
            "stage": (raw["stage"] - raw["stage"].mean()) / raw["stage"].std(),
        }
    )
    fit = lifelines.CoxPHFitter().fit(table, "months", "dead")
    ours = {term.name: term.coefficient for term in model.terms}
    assert ours["high marker"] == pytest.approx(fit.params_["high"], abs=1e-4)
    assert ours["Sex: female"] == pytest.approx(fit.params_["female"], abs=1e-4)
    assert ours["Stage (per SD)"] == pytest.approx(fit.params_["stage"], abs=1e-4)
    theirs = fit.predict_survival_function(table, times=[model.horizon]).to_numpy()[0]
    X = table[["high", "female", "stage"]].to_numpy()
    assert model.survival(X) == pytest.approx(theirs, abs=5e-3)


def test_the_corrected_slope_and_concordance_are_those_of_a_bootstrap_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Harrell's bootstrap, written out with lifelines, one resample after the other."""
    lifelines = pytest.importorskip("lifelines")
    from lifelines.utils import concordance_index

    monkeypatch.setattr("validation.methods.prediction.RESAMPLES", 15)
    found = go(tmp_path, load(tmp_path / "cohort", patients(150, log_hr=0.4, seed=4)))
    # the resamples count patients in the order of the prepared table
    raw = pd.read_parquet(tmp_path / "out/inputs/all/table.parquet")
    raw = raw.rename(columns={"OS.time": "months", "OS.event": "dead"})
    marker, stage = raw["clinical:marker"], raw["clinical:stage"]
    X = pd.DataFrame(
        {
            "high": (marker > marker.median()).astype(float),
            "female": (raw["clinical:sex"] == "female").astype(float),
            "stage": (stage - stage.mean()) / stage.std(),
        }
    )
    table = X.assign(months=raw["months"], dead=raw["dead"])
    horizon = found.numbers["calibration.horizon"].value
    until = pd.DataFrame(
        {
            "months": np.minimum(raw["months"], horizon),
            "dead": raw["dead"] * (raw["months"] <= horizon),
        }
    )
    rng = np.random.default_rng([1, len(raw), 7])
    slopes, drops = [], []
    for _ in range(15):
        rows = rng.integers(0, len(raw), len(raw))
        boot = table.iloc[rows]
        fit = lifelines.CoxPHFitter().fit(boot, "months", "dead")
        risk = X.to_numpy() @ fit.params_.to_numpy()
        again = lifelines.CoxPHFitter().fit(until.assign(risk=risk), "months", "dead")
        slopes.append(again.params_["risk"])
        here = concordance_index(boot["months"], -risk[rows], boot["dead"])
        drops.append(here - concordance_index(raw["months"], -risk, raw["dead"]))
    numbers = found.numbers
    assert numbers["calibration.slope"].value == pytest.approx(np.mean(slopes), abs=1e-3)
    drop = numbers["calibration.harrell_apparent"].value - numbers["calibration.harrell"].value
    assert drop == pytest.approx(np.mean(drops), abs=1e-4)
    assert numbers["calibration.slope"].value < 1


def test_the_external_slope_is_that_of_a_second_library(tmp_path: Path) -> None:
    lifelines = pytest.importorskip("lifelines")
    raw = patients(260, log_hr=0.7, seed=11)
    first = load(tmp_path / "a", patients(400, log_hr=0.7))
    found = go(tmp_path, first, other_cohort(tmp_path, raw))
    model = found.model
    assert model is not None
    X = own_design(raw, model)
    until = np.minimum(raw["months"], model.horizon)
    dead = raw["dead"] * (raw["months"] <= model.horizon)
    fit = lifelines.CoxPHFitter().fit(
        pd.DataFrame({"risk": model.linear(X), "months": until, "dead": dead}), "months", "dead"
    )
    numbers = found.numbers
    assert numbers["replicate.calibration.slope"].value == pytest.approx(
        fit.params_["risk"], abs=1e-3
    )
    low, high = fit.confidence_intervals_.loc["risk"]
    assert numbers["replicate.calibration.slope_lower"].value == pytest.approx(low, abs=2e-3)
    assert numbers["replicate.calibration.slope_upper"].value == pytest.approx(high, abs=2e-3)


def test_held_back_patients_judge_the_discovery_model(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(700, log_hr=0.9))
    split = SplitRule(policy="discovery_confirmation", confirmation=0.5)
    found = go(tmp_path, cohort, split=split)
    parts = {test.part: test for test in found.tests if test.id == "calibration"}
    assert set(parts) == {"discovery", "confirmation"}
    assert "calibration.ratio" in found.numbers
    assert "discovery.calibration.ratio" not in found.numbers
    model = found.model
    assert model is not None
    assert model.n == parts["discovery"].n


def test_a_cohort_that_codes_a_covariate_otherwise_is_refused_by_name(tmp_path: Path) -> None:
    raw = patients(300, log_hr=0.7, seed=11)
    first = load(tmp_path / "a", patients(300, log_hr=0.7))
    coded = raw.assign(sex=raw["sex"].map({"male": "M", "female": "F"}))
    found = go(tmp_path, first, other_cohort(tmp_path, coded))
    outcome = next(
        test for test in found.tests if test.id == "calibration" and test.part == "replication"
    )
    assert outcome.status == "refused"
    assert "clinical:sex" in outcome.reason
    assert "replicate.calibration.slope" not in found.numbers


def test_a_cohort_followed_for_less_is_judged_at_an_earlier_horizon(tmp_path: Path) -> None:
    first = load(tmp_path / "a", patients(400, log_hr=0.7))
    raw = patients(400, log_hr=0.7, seed=11)
    short = raw.assign(
        dead=raw["dead"].where(raw["months"] < 26, 0), months=raw["months"].clip(upper=26)
    )
    found = go(tmp_path, first, other_cohort(tmp_path, short))
    outcome = next(
        test for test in found.tests if test.id == "calibration" and test.part == "replication"
    )
    assert outcome.status == "ok"
    assert found.numbers["replicate.calibration.horizon"].value == 24
    assert found.numbers["replicate.calibration.slope"].value == pytest.approx(1, abs=0.35)
    assert found.numbers["replicate.calibration.ratio"].value == pytest.approx(1, abs=0.25)
    model = found.model
    assert model is not None
    hazards = [hazard for _, hazard in (*model.earlier, (model.horizon, model.baseline))]
    assert hazards == sorted(hazards)
    assert [months for months, _ in model.earlier] == [6, 12, 18, 24, 36][: len(model.earlier)]


def test_four_groups_of_two_exposures_are_compared_side_by_side(tmp_path: Path) -> None:
    lifelines = pytest.importorskip("lifelines")
    from lifelines.statistics import multivariate_logrank_test
    from scipy.stats import chi2

    raw = patients(400, log_hr=0.8)
    both = [
        {"variable": "clinical:marker", "label": "marker"},
        {"variable": "clinical:stage", "label": "stage", "cut": "fixed", "threshold": 2},
    ]
    cohort = load(tmp_path / "cohort", raw)
    frozen = frozen_for(cohort, claim(exposures=both))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    found = run(frozen, cohort, tmp_path / "out", ledger=ledger)
    high, late = raw["marker"] > raw["marker"].median(), raw["stage"] > 2
    group = 2 * high.astype(int) + late.astype(int)
    theirs = multivariate_logrank_test(raw["months"], group, raw["dead"])
    outcome = found.test("joint_groups")
    assert outcome is not None
    assert (outcome.role, outcome.claim, outcome.df) == ("descriptive", False, 3)
    assert outcome.statistic == pytest.approx(theirs.test_statistic, rel=1e-6)
    assert outcome.p == pytest.approx(theirs.p_value, rel=1e-5)
    table = pd.DataFrame(
        {"months": raw["months"], "dead": raw["dead"]}
        | {f"g{code}": (group == code).astype(float) for code in (1, 2, 3)}
    )
    fit = lifelines.CoxPHFitter().fit(table, "months", "dead")
    ours = found.numbers["joint_groups.both.effect"].value
    assert ours == pytest.approx(fit.hazard_ratios_["g3"], rel=1e-4)
    sex = (raw["sex"] == raw["sex"].max()).astype(float)  # the adjusted model's covariate
    table = table[["months", "dead"]].assign(
        sex=sex, high=high.astype(float), late=late.astype(float)
    )
    both = lifelines.CoxPHFitter().fit(table, "months", "dead")
    alone = lifelines.CoxPHFitter().fit(table.drop(columns="late"), "months", "dead")
    numbers = {key: found.numbers[f"joint_groups.{key}"].value for key in (
        "first.effect", "second.beside.effect", "second.beside.p",
    )}  # fmt: skip
    assert numbers["first.effect"] == pytest.approx(alone.hazard_ratios_["high"], rel=1e-4)
    assert numbers["second.beside.effect"] == pytest.approx(both.hazard_ratios_["late"], rel=1e-4)
    gain = 2 * (both.log_likelihood_ - alone.log_likelihood_)
    assert numbers["second.beside.p"] == pytest.approx(chi2.sf(gain, 1), rel=1e-3)
