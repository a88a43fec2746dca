"""Variables that go with the exposure: found by computation, proposed, named, and tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from agents.findings.hold import hold
from agents.findings.types import NotAdjustedFor
from tests.validation.core_help import claim, frozen_for, load, patients, run, run_once
from tests.validation.test_core_sites import VARIABLE
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.contracts.contract import FrozenContract
from validation.drafting.freezing import draft_on
from validation.ledger.ledger import Ledger
from validation.results.results import Results

MORE = VARIABLE.format("q1", "Item 1").replace("categorical", "continuous")
CLINIC = VARIABLE.format("zz", "Unit")


def confounded(n: int = 400, *, log_hr: float = 0.0, by: float = 0.8) -> pd.DataFrame:
    """A marker and a time to death that both follow `q1`; the marker acts by `log_hr` alone."""
    raw, rng = patients(n, seed=8), np.random.default_rng(9)
    cause = rng.normal(size=n)
    marker = by * cause + rng.normal(size=n)
    risk = log_hr * (marker > np.median(marker)) + 0.9 * cause + 0.3 * raw["stage"]
    time, stop = rng.exponential(40 / np.exp(risk - risk.mean())), rng.uniform(12, 90, n)
    return raw.assign(
        q1=cause.round(3), marker=marker, months=np.minimum(time, stop) + 0.1,
        dead=(time <= stop).astype(int),
    )  # fmt: skip


def clinics(n: int = 400) -> pd.DataFrame:
    """Five units that differ in marker and survival; nothing else does."""
    raw, rng = patients(n, seed=8), np.random.default_rng(9)
    unit = rng.integers(0, 5, n)
    time, stop = (
        rng.exponential(40 / np.exp(0.5 * unit - 1 + 0.4 * (raw["stage"] - 2.5))),
        rng.uniform(12, 90, n),
    )
    return raw.assign(
        zz=[f"U{code}" for code in unit], marker=0.7 * unit + rng.normal(size=n),
        months=np.minimum(time, stop) + 0.1, dead=(time <= stop).astype(int),
    )  # fmt: skip


def judged(
    tmp_path: Path, raw: pd.DataFrame, more: str, **changes: object
) -> tuple[FrozenContract, Results]:
    given = claim(covariates=["clinical:stage"], **changes)
    found = run_once(tmp_path, raw, hypothesis=given, claim_tests=True, more=more)
    return FrozenContract.load(tmp_path / "out/inputs/all/contract.json"), found


def unadjusted(frozen: FrozenContract) -> list[str]:
    return [use.key for use in frozen.contract.variables if use.role == "unadjusted"]


def test_a_claim_that_an_unadjusted_variable_turns_is_inconclusive_and_names_it(
    tmp_path: Path,
) -> None:
    label = "Item 1"
    frozen, found = judged(tmp_path, confounded(), MORE)
    assert found.verdict.because == "confounding", found.verdict.badge
    independence = found.verdict.answers[1]
    assert independence.answer == "yes" and label.casefold() in str(independence.unadjusted).lower()
    held = [item.finding for item in hold(found, frozen.contract)]
    assert NotAdjustedFor(subject=label) in held
    rows = found.tables["specification"]
    assert any(row["covariates"] == f"Stage + {label}" for row in rows)


def test_patients_without_the_variable_do_not_cost_a_claim_its_support(tmp_path: Path) -> None:
    raw = patients(300, log_hr=0.75, seed=4)
    rng = np.random.default_rng(1)
    raw["q1"] = (0.2 * raw["marker"] + rng.normal(size=300)).where(rng.random(300) < 0.55)
    frozen, found = judged(tmp_path, raw, MORE)
    assert unadjusted(frozen) == ["clinical:q1"]
    (beside,) = found.controls.specification.unadjusted
    registered = found.test("adjusted")
    assert beside.n < 0.6 * registered.n
    width = np.log(registered.effect.upper / registered.effect.lower)
    assert np.log(beside.upper / beside.lower) == pytest.approx(width, rel=0.15)
    assert found.verdict.verdict == "supported", found.verdict.badge


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ["clinical:q1"]),
        ({"covariates": ["clinical:q1"]}, []),
        ({"covariates": [], "causes": ["clinical:marker -> clinical:q1 -> OS"]}, []),
        ({"exposures": [{"variable": "clinical:sex", "label": "sex"}]}, []),
    ],
)  # fmt: skip
def test_what_goes_with_the_exposure_and_has_no_part_in_the_claim_is_unadjusted(
    tmp_path: Path, change: dict[str, object], expected: list[str]
) -> None:
    given = {"covariates": ["clinical:stage", "clinical:sex"]} | change
    frozen = frozen_for(load(tmp_path, confounded(), more=MORE), claim(**given))
    assert [key for key in unadjusted(frozen) if key == "clinical:q1"] == expected


@pytest.mark.parametrize(
    "column", ['kind = "continuous"', "known_at = 6", 'column = "marker"', 'column = "months"']
)
def test_measurements_of_the_exposure_outcomes_and_late_values_are_not_tried(
    tmp_path: Path, column: str
) -> None:
    raw = confounded().assign(q1=lambda table: 10 * table["marker"] + 3)
    name = column.split(" = ")[0]
    fixed = claim(covariates=["clinical:stage"])
    lines = [line for line in MORE.splitlines() if not line.startswith(f"{name} =")]
    frozen = frozen_for(load(tmp_path, raw, more="\n".join([*lines, column])), fixed)
    assert "clinical:q1" not in unadjusted(frozen)


def test_covariates_and_strata_are_proposed_by_their_relation_to_the_exposure(
    tmp_path: Path,
) -> None:
    plan = draft_on(claim(), load(tmp_path / "one", confounded(), more=MORE))
    assert plan.covariates[0] == "clinical:q1"
    plan = draft_on(claim(), load(tmp_path / "two", clinics(), more=CLINIC))
    assert plan.strata == ("clinical:zz",)


def test_levels_that_follow_from_another_variables_are_not_proposed_beside_it(
    tmp_path: Path,
) -> None:
    raw = clinics()
    raw["half"] = raw["zz"].map(lambda unit: "late" if unit > "U2" else "early")
    cohort = load(tmp_path / "c", raw, more=CLINIC + VARIABLE.format("half", "Half"))
    contract = draft_on(claim(covariates=[]), cohort)
    named = {use.key for use in contract.variables}
    assert len(named & {"clinical:zz", "clinical:half"}) == 1


def test_no_outcome_has_a_part_in_what_is_proposed_or_tried(tmp_path: Path) -> None:
    raw, found = confounded(), []
    other = raw.assign(months=raw["months"].to_numpy()[::-1], dead=raw["dead"].to_numpy()[::-1])
    for at, table in enumerate((raw, other)):
        cohort = load(tmp_path / str(at), table, more=MORE)
        frozen = frozen_for(cohort, claim(covariates=["clinical:stage"]))
        found.append((draft_on(claim(), cohort).covariates, unadjusted(frozen)))
    assert found[0] == found[1]


def gbsg2() -> Cohort:
    return cohorts.load("gbsg2")


def test_each_added_variable_gives_the_figures_of_coxph(tmp_path: Path) -> None:
    """R 4.2 `coxph(Surv(time, cens) ~ (progrec <= median(progrec)) + age + …)`."""
    low = {"variable": "clinical:progesterone_receptor", "label": "PR", "level": "low"}
    given = claim(exposures=[low], endpoint="RFS", covariates=["clinical:age"])
    frozen = frozen_for(gbsg2(), given)
    found = run(frozen, gbsg2(), tmp_path / "out", ledger=Ledger(tmp_path / "ledger.jsonl"))
    r = {
        "Estrogen receptor": (2.14942837, 1.67997489, 2.75006630, 1.15657028e-09),
        "Tumor grade": (1.93750119, 1.51151467, 2.48354247, 1.77910276e-07),
        "Positive lymph nodes": (2.12767197, 1.68419988, 2.68791612, 2.43344852e-10),
        "Tumor size": (2.13233988, 1.68838781, 2.69302666, 2.05108914e-10),
    }
    *alone, together = found.controls.specification.unadjusted
    assert {item.labels[0]: (item.value, item.lower, item.upper, item.p) for item in alone} == {
        label: pytest.approx(numbers, rel=1e-6) for label, numbers in r.items()
    }
    assert set(together.labels) == set(r)
