"""What must not slip into a verdict: leftovers, patients seen before, names that lead elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from sage.cli.validate import app
from sage.core.errors import InputError
from tests.validation.core_help import STRONG, claim, frozen_for, load, patients, validate, write
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.contracts.contract import FrozenContract, SplitRule
from validation.drafting.draft import draft
from validation.drafting.freezing import freeze
from validation.inputs.population import in_confirmation
from validation.ledger.ledger import Ledger
from validation.run.overlap import require_other_patients
from validation.run.prepare import confirmation_key, prepare

runner = CliRunner()


# -- leftovers of an earlier run -----------------------------------------------------------------


def test_an_earlier_replication_does_not_enter_a_run_without_one(tmp_path: Path) -> None:
    cohort = write(tmp_path / "cohort", patients(240, log_hr=STRONG))
    other = write(tmp_path / "other", patients(240, log_hr=-STRONG, seed=9))
    before = validate(tmp_path, cohort, "--replicate", str(other))
    assert before["verdict"]["because"] == "replication"
    after = validate(tmp_path, cohort)
    assert after["verdict"]["verdict"] == "supported"
    assert after["replicate"] is None
    assert {test["part"] for test in after["tests"]} == {"all"}


def test_another_seed_or_share_cannot_open_the_confirmation_again(tmp_path: Path) -> None:
    """Only the second call is refused, before it touches the first one's results."""
    cohort = load(tmp_path / "cohort", patients(100))
    ledger = Ledger(tmp_path / "out" / "ledger.jsonl")
    rule = SplitRule(policy="discovery_confirmation", confirmation=0.5)
    first = freeze(draft(claim(), cohort.dictionary(), split=rule), cohort)
    ledger.unlock(confirmation_key(first), first)
    kept = tmp_path / "out" / "marker-os" / "results.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    for again in (("--split", "0.5", "--seed", "2"), ("--split", "0.4")):
        with pytest.raises(InputError, match="opened"):
            validate(tmp_path, tmp_path / "cohort", *again)
    assert kept.read_text() == "{}"
    assert not ledger.entries


def test_a_new_title_or_feature_table_opens_no_new_patients(tmp_path: Path) -> None:
    folder = write(tmp_path / "cohort", patients(100))
    table = tmp_path / "score.csv"
    patients(100)[["patient", "size"]].to_csv(table, index=False)
    plain = frozen_for(cohorts.load(folder))
    text = (folder / "cohort.toml").read_text(encoding="utf-8")
    (folder / "cohort.toml").write_text(text.replace("Toy cohort", "Another title"))
    renamed = frozen_for(cohorts.load(folder).with_features(table))
    assert renamed.data_hashes != plain.data_hashes
    assert confirmation_key(renamed) == confirmation_key(plain)
    other = frozen_for(load(tmp_path / "other", patients(100, seed=4)))
    assert confirmation_key(other) != confirmation_key(plain)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('id = "toy"', 'id = "renamed"'),
        ("[variables.marker]", '[tables.more]\nfile = "more.csv"\nkey = "patient"\n\n'
         "[variables.marker]"),
    ],
)  # fmt: skip
def test_what_a_description_says_draws_no_other_patients(
    tmp_path: Path, old: str, new: str
) -> None:
    folder = write(tmp_path / "cohort", patients(100))
    patients(100).to_csv(folder / "more.csv", index=False)
    told = folder / "cohort.toml"
    before = cohorts.load(folder)
    told.write_text(told.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    after = cohorts.load(folder)
    assert after.hashes()["cohort.toml"] != before.hashes()["cohort.toml"]
    assert held(after) == held(before)
    table = folder / "score.csv"
    patients(100)[["patient", "size"]].to_csv(table, index=False)
    assert held(after.with_features(table)) == held(before)


def held(cohort: Cohort) -> set[str]:
    """Identifiers of the patients that a split of this cohort holds back."""
    rule = SplitRule(policy="discovery_confirmation", confirmation=0.5)
    contract = draft(claim(), cohort.dictionary(), split=rule)
    names = cohort.pseudonyms.items()
    return {patient for patient, name in names if in_confirmation(name, contract)}


# -- the same patients again ---------------------------------------------------------------------


def test_a_renamed_copy_is_no_second_cohort_and_leaves_earlier_results(tmp_path: Path) -> None:
    folder = write(tmp_path / "cohort", patients(100))
    copy = write(tmp_path / "copy", patients(100))
    (copy / "clinical.csv").rename(copy / "other.csv")
    text = (copy / "cohort.toml").read_text(encoding="utf-8")
    text = text.replace('id = "toy"', 'id = "elsewhere"').replace("clinical.csv", "other.csv")
    (copy / "cohort.toml").write_text(text, encoding="utf-8")
    kept = tmp_path / "out" / "marker-os" / "results.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    with pytest.raises(InputError, match='"elsewhere"'):
        validate(tmp_path, folder, "--replicate", str(copy))
    assert kept.read_text() == "{}"
    with pytest.raises(InputError):
        prepare(frozen_for(cohorts.load(folder)), cohorts.load(copy), tmp_path / "i",
                part="replication")  # fmt: skip


def test_records_that_hardly_differ_are_no_sign_of_a_copy(tmp_path: Path) -> None:
    few = {"marker": lambda table: table["marker"].round(), "months": 12.0, "sex": "male"}
    one, two = (
        load(tmp_path / str(seed), patients(200, seed=seed).assign(**few)) for seed in (3, 4)
    )
    require_other_patients(frozen_for(one), two, one)


def test_cohorts_may_take_their_own_rows_of_one_file(tmp_path: Path) -> None:
    """As TCGA's tables of all tumors: the same file, other patients; overlap is still seen."""
    raw = patients(120).assign(tumor=["A", "B"] * 60)
    one, two, both = (
        load(tmp_path / name, raw, extra_table=f"where = {{ tumor = {rows} }}")
        for name, rows in (("one", '"A"'), ("two", '"B"'), ("both", '["A", "B"]'))
    )
    frozen = frozen_for(one)
    require_other_patients(frozen, two, one)
    with pytest.raises(InputError):
        require_other_patients(frozen, both, one)


# -- crashes -------------------------------------------------------------------------------------


def test_any_crash_of_a_test_is_an_attempt_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from validation import methods

    def explode(*_: object) -> object:
        raise AssertionError("on purpose")

    monkeypatch.setitem(methods.METHODS, "logrank", explode)
    folder = write(tmp_path / "cohort", patients(60))
    found = validate(tmp_path, folder)
    assert found["verdict"]["verdict"] == "inconclusive"
    ledger = Ledger(tmp_path / "out" / "ledger.jsonl")
    primary = next(entry for entry in ledger.entries if entry.test == "primary")
    assert primary.status == "crashed" and "AssertionError" in primary.reason
    assert ledger.adjust()[0].p == 1.0


def test_a_study_that_crashes_is_on_record_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> object:
        raise TypeError("on purpose")

    monkeypatch.setattr("validation.inputs.study.Study.build", explode)
    found = validate(tmp_path, write(tmp_path / "cohort", patients(60)))
    assert {test["status"] for test in found["tests"]} == {"crashed"}


def test_a_figure_that_fails_leaves_a_note_and_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from validation.figures import kaplan_meier

    def half(*_: object, path: Path, **__: object) -> None:
        path.with_suffix(".svg").write_text("half")
        raise RuntimeError("on purpose")

    monkeypatch.setattr(kaplan_meier, "kaplan_meier_figure", half)
    found = validate(tmp_path, write(tmp_path / "cohort", patients(60)), figures=True)
    assert any("kaplan_meier" in note for note in found["notes"])
    assert "kaplan_meier" not in found["figures"]
    assert "specification" in found["figures"]
    assert not list((tmp_path / "out").rglob("kaplan_meier.*"))


# -- what a hypothesis may say -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", "a ", "..", ".hidden", "../../escape", "/tmp/escape", "a\\b", "a\nb", "a\x00b",
     "\x1b[31mred", "\u6f22" * 80, "ledger.jsonl"],
)  # fmt: skip
def test_an_id_that_is_no_plain_name_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "h.json"
    path.write_text(json.dumps(claim().model_dump(mode="json") | {"id": name}))
    options = ["--cohort", "gbsg2", "--out", str(tmp_path / "deep" / "er" / "out")]
    done = runner.invoke(app, ["run", str(path), *options])
    assert isinstance(done.exception, InputError)
    assert "id" in str(done.exception)
    assert [path.name for path in tmp_path.rglob("*") if path.name != "cache"] == ["h.json"]


AGE = {"variable": "clinical:marker", "label": "marker"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"negative_endpoint": "OS"}, 'negative_endpoint "OS"'),
        ({"secondary_endpoints": ["OS"]}, 'endpoint "OS"'),
        ({"covariates": ["clinical:age", "clinical:age"]}, 'covariate "clinical:age"'),
        ({"strata": ["clinical:sex", "clinical:sex"]}, 'stratum "clinical:sex"'),
        ({"exposures": [AGE, AGE | {"level": "low"}]}, 'exposure variable "clinical:marker"'),
    ],
)
def test_one_thing_named_twice_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        claim(**changes)


def test_the_contract_shown_is_the_contract_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, ran = ("--split", "0.4", "--impute", "--seed", "3"), []

    def stop(frozen: FrozenContract, *_: object, **__: object) -> None:
        ran.append(frozen.sha256)
        raise InputError("stopped before the tests")

    monkeypatch.setattr("validation.run.runner.run", stop)
    folder = write(tmp_path / "cohort", patients(120))
    with pytest.raises(InputError, match="stopped"):
        validate(tmp_path, folder, *options)
    given = [str(tmp_path / "h.json"), "--cohort", str(folder), "--json", *options]
    shown = runner.invoke(app, ["contract", *given])
    assert [json.loads(shown.stdout)["sha256"]] == ran


# -- the outcome as its own predictor --------------------------------------------------------------
