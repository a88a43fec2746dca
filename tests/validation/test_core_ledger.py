"""Splits, replication, imputation, and the ledger that counts every attempt."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation.conftest import Strong
from tests.validation.core_help import (
    STRONG,
    claim,
    frozen_for,
    keep_claim_tests,
    load,
    patients,
    run,
    run_once,
)
from validation.contracts.contract import FrozenContract, SplitRule
from validation.ledger.ledger import Ledger
from validation.ledger.lines import Entry
from validation.run.prepare import confirmation_key, prepare
from validation.run.runner import finalize


def split_contract(tmp_path: Path, raw: pd.DataFrame) -> tuple[object, FrozenContract]:
    cohort = load(tmp_path / "cohort", raw)
    rule = SplitRule(policy="discovery_confirmation")
    return cohort, keep_claim_tests(frozen_for(cohort, split=rule), cohort)


def test_confirmation_patients_are_never_prepared_before_the_unlock(tmp_path: Path) -> None:
    cohort, frozen = split_contract(tmp_path, patients(500, log_hr=STRONG))
    ledger = Ledger(tmp_path / "l.jsonl")
    prepare(frozen, cohort, tmp_path / "d", part="discovery")  # type: ignore[arg-type]
    rows = set(pd.read_parquet(tmp_path / "d" / "table.parquet").index)
    for part in ("confirmation", "all"):
        with pytest.raises(InputError, match=part):
            prepare(frozen, cohort, tmp_path / "c", part=part, ledger=ledger)  # type: ignore[arg-type]
    ledger.unlock(confirmation_key(frozen), frozen)
    prepare(frozen, cohort, tmp_path / "c", part="confirmation", ledger=ledger)  # type: ignore[arg-type]
    confirmation = set(pd.read_parquet(tmp_path / "c" / "table.parquet").index)
    assert not rows & confirmation
    assert len(rows) + len(confirmation) == 500


def test_a_discovery_is_confirmed_on_the_held_back_patients(tmp_path: Path) -> None:
    cohort, frozen = split_contract(tmp_path, patients(500, log_hr=STRONG))
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"))  # type: ignore[arg-type]
    assert found.verdict.verdict == "supported"
    assert found.tests[0].part == "confirmation"
    assert "discovery.primary.p" in found.numbers
    discovery = json.loads((tmp_path / "out/inputs/discovery/provenance.json").read_text())
    confirmation = json.loads((tmp_path / "out/inputs/confirmation/provenance.json").read_text())
    assert discovery["cuts"] == confirmation["cuts"]


def test_a_failed_discovery_leaves_the_confirmation_locked(tmp_path: Path) -> None:
    cohort, frozen = split_contract(tmp_path, patients(300, log_hr=-1.0))
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"))  # type: ignore[arg-type]
    assert found.verdict.verdict == "not_supported"
    assert not (tmp_path / "out" / "inputs" / "confirmation").exists()


def entry(name: str, p: float | None, **changes: object) -> Entry:
    values = {"contract": name, "hypothesis": name, "cohort": "c", "test": "primary",
              "role": "primary", "part": "all", "claim": True, "status": "ok", "p": p}  # fmt: skip
    return Entry.model_validate(values | changes)


def test_claims_are_adjusted_by_holm_over_all_claims_crashed_ones_too(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.jsonl")
    for name, p in (("a", 0.01), ("b", 0.02), ("c", 0.9)):
        ledger.record(entry(name, p))
    ledger.record(entry("d", None, status="crashed"))
    found = {item.hypothesis: item for item in Ledger(tmp_path / "l.jsonl").adjust()}
    assert found["a"].q == pytest.approx(0.04)
    assert found["b"].q == pytest.approx(0.06)
    assert found["d"].q == 1.0
    assert found["a"].family == 4


def test_a_verdict_is_judged_again_when_more_hypotheses_join_the_ledger(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(400, log_hr=0.5, seed=4))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    first = frozen_for(cohort)
    alone = run(first, cohort, tmp_path / "one", ledger=ledger)
    p = alone.numbers["primary.p"].value
    assert p is not None
    assert p < 0.05
    for at in range(30):
        ledger.record(entry(f"other{at}", 0.9))
    again = finalize([(first, tmp_path / "one")], ledger)[0]
    assert again.numbers["primary.q"].value == pytest.approx(min(1.0, 31 * p), rel=1e-6)
    assert again.verdict.because == "multiplicity"


def test_what_the_exposure_adds_to_a_prediction_is_reported(strong: Strong) -> None:
    numbers = {key: number.value for key, number in strong.found.numbers.items()}
    assert numbers["concordance.with.harrell"] > numbers["concordance.without.harrell"]
    assert numbers["concordance.gain"] == pytest.approx(
        numbers["concordance.with.harrell"] - numbers["concordance.without.harrell"], abs=1e-6
    )
    assert numbers["concordance.gain_lower"] < numbers["concordance.gain"]
    assert numbers["concordance.gain"] < numbers["concordance.gain_upper"]
    assert 0.5 < numbers["concordance.with.auc"] < 1
    assert numbers["decision_curve.gain"] > 0.01


def test_a_searched_cut_point_pays_for_the_search(tmp_path: Path) -> None:
    exposure = {"variable": "clinical:marker", "label": "marker", "cut": "optimal"}
    given = claim(exposures=[exposure])
    found = run_once(tmp_path, patients(200), hypothesis=given, claim_tests=True)
    primary = found.test("primary")
    assert primary.method == "maximally_selected"
    uncorrected = found.number("primary.p_uncorrected").value
    assert found.number("primary.p").value == pytest.approx(primary.p)
    assert primary.p > uncorrected
