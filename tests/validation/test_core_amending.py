"""Amendments are versions: what they may change, what they name, and what they cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sage.cli.validate import app
from sage.core.errors import InputError
from tests.validation.core_help import NODE, claim, frozen_for, load, patients, run, write
from validation.contracts.contract import FrozenContract, SplitRule
from validation.drafting.amending import amend
from validation.ledger.ledger import Ledger
from validation.run.prepare import prepare

STRONG = 1.1
runner = CliRunner()


def test_a_version_names_its_parent_its_reason_and_every_change(tmp_path: Path) -> None:
    cohort = load(tmp_path, patients())
    first = frozen_for(cohort)
    changes = {"hypothesis.covariates": ["clinical:stage"], "rules.relevant_ratio": 1.4}
    second = amend(first, cohort, reason=" sex is unreliable ", changes=changes)
    plan = second.contract
    assert (plan.version, plan.parent, plan.amendment) == (2, first.sha256, "sex is unreliable")
    assert (plan.name, first.contract.name) == ("marker-os.v2", "marker-os")
    assert plan.covariates == ("clinical:stage",)
    assert plan.test("adjusted").covariates == ("clinical:stage",)
    assert plan.specification.covariate_sets == ((), ("clinical:stage",))
    assert plan.power.required_events != first.contract.power.required_events
    assert any("rules.relevant_ratio from 1.5 to 1.4" in note for note in plan.notes)
    third = amend(second, cohort, reason="back", changes={"rules.relevant_ratio": 1.5}).contract
    assert (third.version, third.parent) == (3, second.sha256)
    assert third.controls.permutations == first.contract.controls.permutations == 400


def test_what_may_not_be_changed_is_refused(tmp_path: Path) -> None:
    cohort = load(tmp_path, patients(), more=NODE)
    first = frozen_for(cohort)
    for changes, message in (
        ({"hypothesis.id": "other"}, "ID"),
        ({"tests": []}, "tests"),
        ({"rules.alfa": 0.1}, "alfa"),
        ({"rules.alpha": 0.9}, "alpha"),
        ({"hypothesis.endpoint": "nowhere"}, "nowhere"),
        ({"controls.negative_endpoint": "node"}, r"hypothesis\.negative_endpoint"),
        ({"specification.covariate_sets": [[], ["clinical:age"]]}, "clinical:age"),
        ({}, None),
    ):
        with pytest.raises(InputError, match=message):
            amend(first, cohort, reason="why not", changes=changes)
    with pytest.raises(InputError, match="reason"):
        amend(first, cohort, reason=" ", changes={"seed": 3})


def test_changed_data_need_a_version_and_are_named_in_it(tmp_path: Path) -> None:
    cohort = load(tmp_path, patients())
    first = frozen_for(cohort)
    raw = patients()
    raw.loc[0, "months"] = 3.0
    later = load(tmp_path, raw)
    with pytest.raises(InputError, match=r"clinical\.csv"):
        prepare(first, later, tmp_path / "inputs")
    second = amend(first, later, reason="one date was wrong", changes={})
    assert any("clinical.csv" in note for note in second.contract.notes)
    prepare(second, later, tmp_path / "inputs")


def test_a_version_may_be_confirmed_in_patients_that_none_has_seen(tmp_path: Path) -> None:
    """The discovery part of the first version failed; the same patients are held back again."""
    cohort = load(tmp_path / "cohort", patients(400, log_hr=STRONG))
    split = SplitRule(policy="discovery_confirmation", confirmation=0.5)
    wrong = frozen_for(cohort, claim(direction="lower_risk"), split=split)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    assert run(wrong, cohort, tmp_path / "one", ledger=ledger).verdict.verdict == "not_supported"
    turned = {"hypothesis.direction": "higher_risk"}
    second = amend(wrong, cohort, reason="the sign was wrong", changes=turned)
    assert run(second, cohort, tmp_path / "two", ledger=ledger).verdict.verdict == "supported"
    redrawn = amend(wrong, cohort, reason="other draw", changes=turned | {"seed": 9})
    with pytest.raises(InputError, match="opened"):
        run(redrawn, cohort, tmp_path / "three", ledger=ledger)


def test_freeze_amend_and_run_from_the_command_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "cohort", patients(240, log_hr=STRONG))
    path = tmp_path / "h.json"
    path.write_text(claim().model_dump_json())
    one, two, out = tmp_path / "one.json", tmp_path / "two.json", tmp_path / "out"
    data = ["--cohort", str(folder)]
    runner.invoke(app, ["contract", str(path), *data, "--seed", "4", "--out", str(one)])
    change = ["--set", 'hypothesis.covariates=["clinical:sex"]', "--reason", "stage is disputed"]
    first = runner.invoke(app, [str(one), *data, "--out", str(out), "--json", "--no-figures"])
    found = json.loads(first.stdout)[0]
    assert found["contract_sha256"] == FrozenContract.load(one).sha256
    shown = runner.invoke(app, ["amend", str(one), *data, *change, "--out", str(two)])
    assert shown.exit_code == 0, shown.output
    second = runner.invoke(app, ["run", str(two), *data, "--out", str(out), "--no-figures"])
    assert "Inconclusive: the claim was written after" in second.stdout
    assert (out / "marker-os" / "results.json").is_file()
    assert (out / "marker-os.v2" / "results.json").is_file()


def test_a_frozen_contract_runs_as_it_is_or_not_at_all(tmp_path: Path) -> None:
    folder = write(tmp_path / "cohort", patients())
    path = frozen_for(load(tmp_path / "cohort", patients())).save(tmp_path / "c.json")
    out = ["--cohort", str(folder), "--out", str(tmp_path / "out")]
    for option in (["--seed", "0"], ["--alpha", "0.1"], ["--split", "0.5"], ["--impute"]):
        done = runner.invoke(app, [str(path), *out, *option])
        assert option[0] in str(done.exception)
    text = path.read_text()
    path.write_text(text.replace('"seed": 1', '"seed": 2'))
    done = runner.invoke(app, [str(path), *out])
    assert isinstance(done.exception, InputError)
    path.write_text(text)
    write(tmp_path / "cohort", patients(seed=8))
    done = runner.invoke(app, [str(path), *out])
    assert "clinical.csv" in str(done.exception)
    assert not (tmp_path / "out").exists()
