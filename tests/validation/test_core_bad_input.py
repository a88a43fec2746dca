"""Data that cannot bear a number: a named refusal or an inconclusive verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import (
    claim,
    frozen_for,
    load,
    patients,
    run,
    run_once,
    validate,
    write,
)
from validation.ledger.ledger import Ledger


def fixed(threshold: float) -> dict[str, object]:
    cut = {"variable": "clinical:marker", "label": "m", "cut": "fixed", "threshold": threshold}
    return {"exposures": [cut]}


RAW = patients()
FIFTH = float(RAW["marker"].nlargest(5).min()) - 1e-6


@pytest.mark.parametrize(
    ("changed", "claimed"),
    [
        ({"dead": 0}, {}),
        ({"dead": (RAW.index < 6).astype(int)}, {}),
        ({"marker": 1.0}, {}),
        ({"marker": RAW["marker"].where(RAW.index % 20 == 0)}, {}),
        ({}, fixed(99.0)),
        ({}, fixed(FIFTH)),
    ],
    ids=["no events", "few events", "constant", "missing", "empty group", "small group"],
)
def test_data_that_bear_no_number_give_none(
    tmp_path: Path, changed: dict[str, object], claimed: dict[str, object]
) -> None:
    try:
        found = run_once(tmp_path, RAW.assign(**changed), hypothesis=claim(**claimed))
    except InputError:
        return
    assert found.verdict.verdict == "inconclusive", found.verdict
    assert "primary.p" not in found.numbers


def test_more_covariates_than_events_are_penalized_or_refused(tmp_path: Path) -> None:
    raw = patients(160)
    more = ""
    rng = np.random.default_rng(0)
    for at in range(30):
        raw[f"c{at}"] = rng.normal(size=len(raw))
        more += f'\n[variables.c{at}]\ntable = "clinical"\ncolumn = "c{at}"\nkind = "continuous"\n'
    raw["dead"] = 0
    raw.loc[:13, "dead"] = 1
    raw.loc[:13, "stage"] = [1, 4] * 7
    cohort = load(tmp_path / "cohort", raw, more=more)
    wide = claim(covariates=[f"clinical:c{at}" for at in range(30)])
    found = run(frozen_for(cohort, wide), cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"))
    adjusted = found.test("adjusted")
    assert adjusted is not None
    assert adjusted.status == "refused"
    assert adjusted.code == "too_many_covariates"
    assert "adjusted.effect" not in found.numbers


def test_an_outcome_that_contradicts_the_known_positive_is_in_doubt(tmp_path: Path) -> None:
    raw = patients(400, log_hr=1.0)
    order = np.random.default_rng(1).permutation(len(raw))
    raw["stage"] = raw["stage"].to_numpy()[order]
    found = run_once(tmp_path, raw)
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "control")


def test_a_follow_up_of_one_length_gives_no_verdict(tmp_path: Path) -> None:
    cohort = write(tmp_path / "cohort", patients(200).assign(months=0.0))
    found = validate(tmp_path, cohort)
    assert (found["verdict"]["verdict"], found["verdict"]["because"]) == ("inconclusive", "data")


def test_an_outcome_that_most_patients_lack_is_a_limit(tmp_path: Path) -> None:
    raw = patients(300, log_hr=2.0)
    raw["months"] = raw["months"].where(raw.index % 5 == 0)
    found = validate(tmp_path, write(tmp_path / "cohort", raw))
    assert any("60 of 300 patients" in limit for limit in found["verdict"]["limits"])
