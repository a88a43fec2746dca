"""Data that cannot bear a number: a named refusal or an inconclusive verdict."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd

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


def refusal(tmp_path: Path, raw: pd.DataFrame, **changes: object) -> str:
    """The reason of an inconclusive verdict, or the refusal on the way to it."""
    try:
        found = run_once(tmp_path, raw, hypothesis=claim(**changes))
    except InputError as error:
        return f"refused: {error}"
    assert found.verdict.verdict == "inconclusive", found.verdict
    assert "primary.p" not in found.numbers
    return f"{found.verdict.because}: {found.verdict.reasons[0].text}"


def test_zero_events_give_no_number(tmp_path: Path) -> None:
    assert "no events" in refusal(tmp_path, patients().assign(dead=0))


def test_an_empty_group_gives_no_number(tmp_path: Path) -> None:
    exposure = {"variable": "clinical:marker", "label": "m", "cut": "fixed", "threshold": 99.0}
    assert "one side empty" in refusal(tmp_path, patients(), exposures=[exposure])


def test_a_group_too_small_gives_no_number(tmp_path: Path) -> None:
    raw = patients()
    threshold = float(raw["marker"].nlargest(5).min()) - 1e-6
    exposure = {"variable": "clinical:marker", "label": "m", "cut": "fixed",
                "threshold": threshold}  # fmt: skip
    assert "at least 10" in refusal(tmp_path, raw, exposures=[exposure])


def test_a_constant_feature_gives_no_number(tmp_path: Path) -> None:
    assert "constant (1)" in refusal(tmp_path, patients().assign(marker=1.0))


def test_too_few_events_give_no_number(tmp_path: Path) -> None:
    raw = patients()
    raw["dead"] = 0
    raw.loc[:5, "dead"] = 1
    assert "the contract asks for at least 10" in refusal(tmp_path, raw)


def test_ninety_percent_missing_gives_no_number_or_says_so(tmp_path: Path) -> None:
    raw = patients()
    raw["marker"] = raw["marker"].where(raw.index % 20 == 0)
    text = refusal(tmp_path, raw)
    assert "data" in text or "refused" in text


def test_a_group_without_events_is_met_with_a_penalty_and_a_note(tmp_path: Path) -> None:
    raw = patients(200)
    high = raw["marker"] > raw["marker"].median()
    raw["dead"] = (high & (raw.index % 4 != 0)).astype(int)
    found = run_once(tmp_path, raw)
    primary = found.test("primary")
    assert primary is not None
    assert primary.effect is not None
    assert math.isfinite(primary.effect.value)
    assert any("Firth" in note for note in primary.notes)


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
    raw = patients(600, log_hr=1.0)
    order = np.random.default_rng(1).permutation(len(raw))
    raw["stage"] = raw["stage"].to_numpy()[order]
    found = run_once(tmp_path, raw)
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "control")
    assert "known positive" in found.verdict.reasons[0].rule


def test_a_follow_up_of_one_length_gives_no_verdict(tmp_path: Path) -> None:
    cohort = write(tmp_path / "cohort", patients(200).assign(months=0.0))
    found = validate(tmp_path, cohort)
    assert (found["verdict"]["verdict"], found["verdict"]["because"]) == ("inconclusive", "data")
    assert "all 200 patients have the same time" in found["verdict"]["reasons"][0]["text"]


def test_an_outcome_that_most_patients_lack_is_a_limit(tmp_path: Path) -> None:
    raw = patients(300, log_hr=2.0)
    raw["months"] = raw["months"].where(raw.index % 5 == 0)
    found = validate(tmp_path, write(tmp_path / "cohort", raw))
    assert "OS known in 60 of 300 patients only" in found["verdict"]["limits"]
