"""Ways to a better verdict that must not work: asking again, padding, leaking, copying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from agents.findings.answer import answer_results
from sage.cli.validate import app
from sage.core.errors import InputError
from tests.validation.core_help import (
    STRONG,
    claim,
    frozen_for,
    keep_claim_tests,
    load,
    patients,
    run,
    run_once,
    validate,
    write,
)
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.cohort.copies import find_copies
from validation.contracts.contract import FrozenContract
from validation.ledger.ledger import Ledger
from validation.run.overlap import require_other_cohort, require_other_patients
from validation.run.runner import record_crash

runner = CliRunner()


# -- asking again -----


def test_a_claim_turned_round_after_its_result_is_exploratory(tmp_path: Path) -> None:
    cohort = write(tmp_path / "cohort", patients(300, log_hr=STRONG))
    first = validate(tmp_path, cohort, direction="lower_risk")
    assert first["verdict"]["verdict"] == "not_supported"
    exposure = {"variable": "clinical:marker", "label": "marker", "cut": "continuous"}
    changes = {"id": "another-name", "comparison": "per_sd", "exposures": [exposure]}
    verdict = validate(tmp_path, cohort, "--split", "0.5", **changes)["verdict"]
    assert (verdict["verdict"], verdict["because"]) == ("inconclusive", "registration")


# -- looking without being counted -----


def test_a_second_cohort_that_lacks_the_marker_is_refused_before_any_result(tmp_path: Path) -> None:
    cohort = write(tmp_path / "cohort", patients(240))
    other = write(tmp_path / "other", patients(240, seed=9))
    text = (other / "cohort.toml").read_text(encoding="utf-8")
    (other / "cohort.toml").write_text(text.replace("[variables.marker]", "[variables.thing]"))
    with pytest.raises(InputError, match="clinical:marker"):
        validate(tmp_path, cohort, "--replicate", str(other))
    assert not (tmp_path / "out" / "marker-os").exists()


def test_the_tests_of_a_part_are_on_record_before_the_next_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import validation.run.runner as module

    cohort = load(tmp_path / "one", patients(300, log_hr=STRONG))
    other = load(tmp_path / "two", patients(300, log_hr=STRONG, seed=9))
    prepare = module.prepare

    def interrupted(*given: Any, **options: Any) -> Any:
        if options["part"] == "replication":
            raise KeyboardInterrupt
        return prepare(*given, **options)

    frozen = keep_claim_tests(frozen_for(cohort), cohort)
    path = tmp_path / "ledger.jsonl"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "prepare", interrupted)
        run(frozen, cohort, tmp_path / "out", ledger=Ledger(path), replicate=other)
    kept = [entry for entry in Ledger(path).entries if entry.test == "primary"]
    assert [(item.part, item.status) for item in kept] == [("all", "ok")]
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(path), replicate=other)
    assert found.verdict.verdict == "supported"
    assert "replication" in {reason.rule for reason in found.verdict.reasons}
    assert "replicate.primary.effect" in found.numbers
    keys = [entry.key for entry in Ledger(path).entries]
    assert len(keys) == len(set(keys))


def test_a_mended_program_is_judged_by_its_own_p(tmp_path: Path) -> None:
    cohort = load(tmp_path / "one", patients(100))
    frozen, ledger = keep_claim_tests(frozen_for(cohort), cohort), Ledger(tmp_path / "l")
    record_crash(frozen, ledger, "confirmation: exit code", "confirmation")
    found = run(frozen, cohort, tmp_path / "o", ledger=ledger)
    q, p = (found.numbers[f"primary.{name}"].value for name in ("q", "p"))
    assert q == pytest.approx(p)


# -- the outcome among its predictors -----


@pytest.mark.parametrize(("column", "role"), [("months", "exposure"), ("dead", "covariate")])
def test_a_column_of_the_outcome_predicts_nothing(tmp_path: Path, column: str, role: str) -> None:
    more = f"""
[variables.same]
table = "clinical"
column = "{column}"
kind = "continuous"
"""
    cohort = write(tmp_path / "cohort", patients(240), more=more)
    used = (
        {"exposures": [{"variable": "clinical:same", "label": "same"}]}
        if role == "exposure"
        else {"covariates": ["clinical:same"]}
    )
    with pytest.raises(InputError, match="clinical:same"):
        validate(tmp_path, cohort, **used)


def test_a_copy_of_the_follow_up_is_refused_by_its_order(tmp_path: Path) -> None:
    raw = patients(240)
    raw["marker"] = -(raw["months"] ** 0.5) + np.linspace(0, 0.01, len(raw))
    found = validate(tmp_path, write(tmp_path / "cohort", raw))
    assert found["verdict"]["because"] == "data"


def test_a_code_of_the_outcome_is_refused_whatever_its_order(tmp_path: Path) -> None:
    raw = patients(240)
    raw["marker"] = np.where(raw["dead"] == 1, 1, np.where(raw.index % 2 == 0, 0, 2))
    exposure = {"variable": "clinical:marker", "label": "m", "cut": "fixed", "threshold": 0.5}
    found = validate(tmp_path, write(tmp_path / "cohort", raw), exposures=[exposure])
    assert found["verdict"]["because"] == "data"


# -- the same patients -----


def test_barcodes_and_a_newer_follow_up_are_recognized(tmp_path: Path) -> None:
    raw = patients(240)
    raw["patient"] = [f"TCGA-AB-{at:04d}" for at in range(len(raw))]
    newer = raw.iloc[::8].assign(months=raw["months"] * 1.1 + 1, marker=np.arange(30) * 1.7)
    first, second = load(tmp_path / "one", raw), load(tmp_path / "two", newer)
    with pytest.raises(InputError, match="TCGA-AB-0000"):
        require_other_patients(frozen_for(first), second, first)
    later = raw.assign(patient=[f"Y{at}" for at in range(len(raw))], months=raw["months"] * 1.1 + 1)
    with pytest.raises(InputError):
        require_other_patients(frozen_for(first), load(tmp_path / "three", later), first)


def test_an_altered_copy_is_refused_before_anything_runs(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    more = "".join(
        f'[variables.{name}]\ntable = "clinical"\ncolumn = "{name}"\nkind = "continuous"\n'
        for name in ("size", "ki67")
    )

    def stored(name: str, table: pd.DataFrame) -> Cohort:
        return cohorts.load(write(tmp_path / name, table, more=more))

    raw = patients(240).assign(ki67=rng.gamma(2.0, 10.0, 240).round(3))
    amounts = ["marker", "size", "ki67"]
    altered = raw.assign(patient=[f"Z{at}" for at in range(len(raw))])
    altered[amounts] *= 1 + rng.normal(0, 0.01, (len(raw), 3))
    first = stored("one", raw)
    with pytest.raises(InputError):
        require_other_cohort(first, stored("two", altered))
    others = patients(150, seed=9).assign(ki67=rng.gamma(2.0, 10.0, 150).round(3))
    others["patient"] = [f"W{at}" for at in range(len(others))]
    require_other_cohort(first, stored("three", others))


@given(seed=st.integers(0, 2**31), share=st.sampled_from([0.1, 0.3, 0.5]))
@settings(max_examples=20, deadline=None)
def test_strangers_are_as_near_as_their_own_kind(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    everybody = rng.lognormal(size=(400, 3))
    cut = int(400 * (1 - share))
    time, event = rng.exponential(size=400), rng.integers(0, 2, 400).astype(float)
    assert find_copies(everybody, time, event, np.arange(400) < cut) is None
    copies = np.vstack([everybody, everybody * np.exp(rng.normal(0, 0.02, everybody.shape))])
    found = find_copies(copies, np.tile(time, 2), np.tile(event, 2), np.arange(800) < 400)
    assert found is not None and len(found.pairs) > 280


# -- an exposure that needs no adjustment -----


def randomized(folder: Path, table: pd.DataFrame) -> FrozenContract:
    reason = "the exposure was randomized"
    return frozen_for(load(folder, table), claim(covariates=[], unadjusted_because=reason))


def test_a_balanced_exposure_keeps_its_declaration_and_the_balance_is_noted(tmp_path: Path) -> None:
    contract = randomized(tmp_path, patients(300)).contract
    assert contract.hypothesis.unadjusted_because
    assert any(note.startswith("balance: ") for note in contract.notes)


def test_an_exposure_that_stage_drives_is_not_randomized(tmp_path: Path) -> None:
    raw = patients(300)
    driven = raw.assign(marker=raw["marker"] + 0.5 * raw["stage"])
    contract = randomized(tmp_path / "c", driven).contract
    assert not contract.hypothesis.unadjusted_because
    note = next(note for note in contract.notes if note.startswith("balance: "))
    assert "Stage" in note


# -- what a contract may not leave out -----


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("specification.cuts=[]", "specification"),
        ("specification.follow_up_months=[60]", "specification"),
        ("rules.alpha=0.49", "alpha"),
        ("rules=5", "rules"),
    ],
)
def test_an_amendment_cannot_drop_what_a_verdict_needs(
    tmp_path: Path, setting: str, message: str
) -> None:
    path = frozen_for(load(tmp_path / "one", patients())).save(tmp_path / "c.json")
    given = ["amend", str(path), "--cohort", str(tmp_path / "one"), "--reason", "x"]
    done = runner.invoke(app, [*given, "--set", setting])
    assert message in str(done.exception)
    done = runner.invoke(app, [*given, "--set", "seed=3", "--set", "seed=4"])
    assert "twice" in str(done.exception)


# -- one ratio for hazards that cross -----


def test_hazards_that_cross_are_told_by_period_and_support_no_claim(tmp_path: Path) -> None:
    table, rng, turn = patients(400, seed=4), np.random.default_rng(5), 5.0
    high, risk = table.marker > table.marker.median(), np.exp(0.5 * (table.stage - 2.5))
    first, then = (0.03 * risk * np.where(high, ratio, 1.0) for ratio in (3.0, 0.25))
    unit = rng.exponential(size=len(table))
    time = np.where(unit < first * turn, unit / first, turn + (unit - first * turn) / then)
    stop = rng.uniform(24, 90, size=len(table))
    table["months"] = np.round(np.minimum(time, stop) + 0.1, 2)
    table["dead"] = (time <= stop).astype(int)
    results = run_once(tmp_path, table, hypothesis=claim(covariates=("clinical:stage",)))
    early, late = (results.numbers[f"period_hazards.{part}.effect"].value
                   for part in ("early", "late"))  # fmt: skip
    assert early is not None and late is not None and early > 1 > late
    assert (results.verdict.verdict, results.verdict.because) == ("inconclusive", "assumption")
    contract = FrozenContract.load(tmp_path / "out/inputs/all/contract.json").contract
    answer = answer_results(results, contract)
    assert "[[primary.effect]]" not in answer.sentence + answer.effect
    assert "[[period_hazards.early.effect]]" in answer.effect
