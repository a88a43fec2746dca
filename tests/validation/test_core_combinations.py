"""Options that meet: strata and negative controls, mixed cuts, imputation and competing risks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import (
    NODE,
    cause_of_death,
    claim,
    frozen_for,
    keep_claim_tests,
    load,
    patients,
    run,
    validate,
    write,
)
from validation.contracts.contract import MissingRule
from validation.ledger.ledger import Ledger

MARKER = {"variable": "clinical:marker", "label": "marker"}
CENTER = """
[variables.center]
table = "clinical"
column = "center"
kind = "categorical"
label = "Center"

[endpoints.accident]
kind = "survival"
table = "clinical"
time = "months_to_accident"
time_unit = "months"
event = "accident"
event_values = [1]
censored_values = [0]
label = "Accident"
"""
CAUSE = cause_of_death(1, 2, 0)


def test_a_negative_control_is_compared_within_the_claims_strata(tmp_path: Path) -> None:
    """Where centers differ in marker and accidents, only a comparison within them is clean."""
    from lifelines import CoxPHFitter

    raw = patients(400)
    rng = np.random.default_rng(8)
    center = np.where(raw["marker"] + rng.normal(size=400) > 0, "north", "south")
    time = rng.exponential(np.where(center == "north", 12, 60))
    raw = raw.assign(
        center=center,
        months_to_accident=np.round(np.minimum(time, 90) + 0.1, 2),
        accident=(time < 90).astype(int),
    )
    cohort = write(tmp_path / "cohort", raw, more=CENTER)
    found = validate(
        tmp_path, cohort, strata=["clinical:center"], negative_endpoint="accident"
    )  # fmt: skip
    high = (raw["marker"] > raw["marker"].median()).astype(float)
    theirs = CoxPHFitter().fit(
        raw[["months_to_accident", "accident", "center"]].assign(high=high),
        "months_to_accident",
        "accident",
        strata=["center"],
    )
    assert found["numbers"]["control.negative.effect"]["value"] == pytest.approx(
        float(theirs.hazard_ratios_["high"]), rel=1e-3
    )
    assert found["numbers"]["control.negative.p"]["value"] > 0.05
    assert found["verdict"]["because"] != "control"


def test_what_holds_the_outcome_neither_predicts_nor_adjusts_it(tmp_path: Path) -> None:
    """Stage is made of the nodes: no exposure for them, and no choice of the curve."""
    node = NODE.replace('label = "Node', 'contained_in = ["clinical:stage"]\nlabel = "Node')
    cohort = write(tmp_path / "cohort", patients(), more=node)
    covariates = ["clinical:stage", "clinical:sex"]
    found = validate(tmp_path, cohort, endpoint="node", covariates=covariates)
    choices = {row["covariates"] for row in found["tables"]["specification"]}
    assert choices == {"none", "Sex"}
    stage = {"variable": "clinical:stage", "label": "stage"}
    for endpoints in ({"endpoint": "node"}, {"secondary_endpoints": ["node"]}):
        with pytest.raises(InputError, match=r"stage.*node"):
            validate(tmp_path, cohort, exposures=[stage], **endpoints)


@pytest.mark.parametrize(("cut", "endpoint"), [("optimal", "node"), ("spline", "cause")])
def test_a_cut_rule_that_an_endpoint_lacks_is_refused_and_never_replaced(
    tmp_path: Path, cut: str, endpoint: str
) -> None:
    raw = patients(120).assign(cause=lambda table: table["dead"])
    cohort = write(tmp_path / "cohort", raw, more=NODE + CAUSE)
    with pytest.raises(InputError, match=f'"{cut}".*"{endpoint}"'):
        validate(tmp_path, cohort, exposures=[MARKER | {"cut": cut}], endpoint=endpoint)
    assert not (tmp_path / "out").exists()


def test_the_curve_of_mixed_cuts_holds_the_claim_itself(tmp_path: Path) -> None:
    stage = {"variable": "clinical:stage", "label": "stage", "cut": "fixed", "threshold": 3}
    cohort = write(tmp_path / "cohort", patients(400, log_hr=0.6))
    found = validate(tmp_path, cohort, exposures=[stage, MARKER], covariates=["clinical:sex"])
    rows = [
        row
        for row in found["tables"]["specification"]
        if row["cut-point"] == "as claimed" and row["covariates"] == row["exclusions"] == "none"
        and row["follow-up"] == "all"
    ]  # fmt: skip
    own = found["numbers"]["primary.effect"]["value"]
    assert [float(row["estimate"]) for row in rows] == [pytest.approx(own, abs=6e-4)]
    assert found["numbers"]["specification.own"]["value"] == 1


def test_random_features_keep_the_share_of_a_fixed_cut(tmp_path: Path) -> None:
    """One patient in five lies above the threshold, so one in five of each draw is exposed."""
    from validation import cohort as cohorts
    from validation.controls.run import _rebuilt, exposure_values
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.inputs.population import Cut
    from validation.inputs.study import Study
    from validation.run.prepare import prepare

    raw = patients(300)
    at = float(np.quantile(raw["marker"], 0.8))
    cohort = cohorts.load(write(tmp_path / "cohort", raw))
    fixed = claim(exposures=[MARKER | {"cut": "fixed", "threshold": at}])
    frozen = freeze(draft(fixed, cohort.dictionary()), cohort)
    written = prepare(frozen, cohort, tmp_path / "inputs")
    cuts = tuple(Cut.model_validate(cut) for cut in written["cuts"])
    study = Study.build(frozen.contract, pd.read_parquet(tmp_path / "inputs/table.parquet"), cuts)
    drawn = np.random.default_rng(2).exponential(size=300) * 1000
    table = pd.read_parquet(tmp_path / "inputs/table.parquet")
    values = tuple(exposure_values(table, each) for each in frozen.contract.exposures)
    rebuilt = _rebuilt(study, values, 0, drawn)
    assert rebuilt is not None
    assert np.nansum(rebuilt.x) == np.nansum(study.exposed.x) == 60


def test_imputed_models_take_firths_penalty_where_the_contract_asks_for_it(tmp_path: Path) -> None:
    raw = patients(160)
    rare = raw.index % 4 == 0
    raw = raw.assign(
        dead=np.where(rare, raw["dead"], 0), stage=raw["stage"].where(raw.index % 5 != 0)
    )
    cohort = load(tmp_path / "cohort", raw)
    given = claim(covariates=["clinical:stage", "clinical:sex"])
    few = MissingRule(policy="multiple_imputation", imputations=5)
    frozen = keep_claim_tests(frozen_for(cohort, given, missing=few), cohort)
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"), reproduce=False)
    adjusted = found.test("adjusted")
    assert adjusted is not None and adjusted.status == "ok"
    assert sum("Firth" in note for note in adjusted.notes) == 1


def test_hazards_that_cross_refute_nothing_that_mean_survival_shows(tmp_path: Path) -> None:
    """An early advantage that is lost later: the ratio averages to nothing, the mean does not."""
    raw = patients(600)
    rng = np.random.default_rng(1)
    high = raw["marker"] > raw["marker"].median()
    time = np.where(high, rng.weibull(0.6, 600) * 22, rng.weibull(3, 600) * 30)
    raw = raw.assign(
        months=np.round(np.minimum(time, 90) + 0.1, 2), dead=(time < 90).astype(int)
    ).drop(columns="stage")
    cohort = write(tmp_path / "cohort", raw.assign(stage=1))
    found = validate(tmp_path, cohort)
    tests = {test["id"]: test for test in found["tests"]}
    assert tests["schoenfeld"]["p"] < 0.001
    assert tests["rmst"]["p"] < 0.05 and tests["rmst"]["statistic"] < 0
    assert found["numbers"]["primary.upper"]["value"] < 1.5
    verdict = found["verdict"]
    assert verdict["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("cut", "direction"), [("spline", "higher_risk"), ("optimal", "lower_risk")]
)
def test_a_u_shaped_association_is_of_no_direction(
    tmp_path: Path, cut: str, direction: str
) -> None:
    raw = patients(500, seed=4)
    rng = np.random.default_rng(3)
    time = rng.exponential(40 / np.exp(0.9 * raw["marker"].abs()))
    raw = raw.assign(
        months=np.round(np.minimum(time, 60) + 0.1, 2), dead=(time < 60).astype(int), stage=1
    )
    cohort = write(tmp_path / "cohort", raw)
    exposures = [MARKER | {"cut": cut}]
    found = validate(
        tmp_path, cohort, direction=direction, comparison="per_sd", exposures=exposures
    )
    assert found["numbers"]["primary.p"]["value"] < 0.01
    low, high = (found["numbers"][f"primary.{item}"]["value"] for item in ("lower", "upper"))
    assert low < 1 < high
    assert found["verdict"]["verdict"] == "inconclusive"
