"""From a frozen contract to a verdict: what runs, what is refused, what survives."""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation.conftest import Strong
from tests.validation.core_help import (
    NODE,
    STRONG,
    claim,
    frozen_for,
    keep_claim_tests,
    load,
    patients,
    run,
    run_once,
)
from validation.analysis.analysis import Analysis, execute
from validation.ledger.ledger import Ledger
from validation.results.results import Results
from validation.run.prepare import prepare, render_program
from validation.run.runner import collect


def test_results_are_the_same_bytes_when_run_again(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(log_hr=STRONG))
    frozen = frozen_for(cohort)
    texts = []
    for name in ("one", "two"):
        ledger = Ledger(tmp_path / f"{name}.jsonl")
        run(frozen, cohort, tmp_path / name, ledger=ledger)
        folder = tmp_path / name
        texts.append({
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.suffix in (".json", ".jsonl")
        })  # fmt: skip
    assert texts[0] == texts[1]
    assert "results.json" in texts[0]


def test_every_number_has_a_key_a_unit_and_a_printed_form(strong: Strong) -> None:
    found = strong.found
    keys = "primary.p primary.effect primary.q groups.exposed.n adjusted.effect schoenfeld.p "
    keys += "kaplan_meier.exposed.median control.permuted.p specification.expected_sign "
    keys += "power.minimum_detectable"
    assert set(keys.split()) <= set(found.numbers)
    assert all(
        number.unit and number.text for key, number in found.numbers.items() if "cut." not in key
    )
    again = Results.load(strong.folder / "out" / "results.json")
    assert again.numbers["primary.p"].text == found.numbers["primary.p"].text
    with pytest.raises(InputError, match=r"primary\.magic"):
        found.number("primary.magic")
    assert "ID00" not in (strong.folder / "out" / "results.json").read_text()


def test_the_simulated_mark_reaches_results_limits_and_figures(tmp_path: Path) -> None:
    from validation import cohort as cohorts
    from validation.simulate import write_world

    write_world(tmp_path / "world", seed=5, patients=60)
    cohort = cohorts.load(tmp_path / "world")
    hypothesis = claim(exposures=[{"variable": "expression:FABP5", "label": "FABP5"}])
    frozen = keep_claim_tests(frozen_for(cohort, hypothesis), cohort)
    ledger = Ledger(tmp_path / "l")
    found = run(frozen, cohort, tmp_path / "out", ledger=ledger, figures=True)
    assert found.simulated
    assert any(limit.startswith("simulated data") for limit in found.verdict.limits)
    assert "SIMULATED" in (tmp_path / "out" / "figures" / "specification.svg").read_text()


# -- the analysis that the sandbox runs ----------------------------------------------------------


def test_the_compiled_code_gives_the_same_analysis_as_the_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = load(tmp_path / "cohort", patients(log_hr=STRONG))
    frozen = keep_claim_tests(frozen_for(cohort), cohort)
    prepare(frozen, cohort, tmp_path / "inputs")
    (tmp_path / "analysis.py").write_text(render_program(frozen))
    program = [str(tmp_path / name) for name in ("analysis.py", "inputs", "out")]
    monkeypatch.setattr(sys, "argv", program)
    with contextlib.suppress(SystemExit):
        runpy.run_path(program[0], run_name="__main__")
    here = execute(tmp_path / "inputs", tmp_path / "here")
    there = (tmp_path / "out" / "analysis.json").read_text()
    assert there == (tmp_path / "here" / "analysis.json").read_text()
    found = collect(frozen, tmp_path / "out", tmp_path / "final", ledger=Ledger(tmp_path / "l"))
    # No second implementation ran: that alone keeps the claim from being supported.
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "reproduction")
    ledger = Ledger(tmp_path / "again")
    found = collect(frozen, tmp_path / "out", tmp_path / "final", ledger=ledger, reproduce=False)
    assert found.verdict.verdict == "supported"
    assert (tmp_path / "final" / "figures" / "specification.svg").is_file()
    assert here.test("primary") is not None


def test_a_statement_cannot_break_out_of_the_compiled_code(tmp_path: Path) -> None:
    wicked = claim(statement='x""" + __import__("os").system("true") + """\\')
    text = render_program(frozen_for(load(tmp_path, patients()), wicked))
    import ast

    tree = ast.parse(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assert "__import__" not in {node.id for node in calls}


def test_prepared_inputs_that_were_changed_are_refused(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients())
    frozen = frozen_for(cohort)
    prepare(frozen, cohort, tmp_path / "inputs")
    table = pd.read_parquet(tmp_path / "inputs" / "table.parquet")
    table["OS.event"] = 1 - table["OS.event"]
    table.to_parquet(tmp_path / "inputs" / "table.parquet")
    with pytest.raises(InputError):
        Analysis.open(tmp_path / "inputs")


def test_inputs_hold_only_what_the_contract_names(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(), more=NODE)
    frozen = frozen_for(cohort)
    prepare(frozen, cohort, tmp_path / "inputs")
    columns = set(pd.read_parquet(tmp_path / "inputs" / "table.parquet").columns)
    assert columns == {
        "clinical:marker", "clinical:sex", "clinical:stage", "OS.time", "OS.event"
    }  # fmt: skip


def test_the_analysis_runs_registered_tests_only(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients())
    prepare(frozen_for(cohort), cohort, tmp_path / "inputs")
    analysis = Analysis.open(tmp_path / "inputs")
    with pytest.raises(InputError, match="optimal_cutpoint"):
        analysis.run(["optimal_cutpoint"])


def test_results_of_a_test_that_is_not_registered_are_refused(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients())
    frozen = keep_claim_tests(frozen_for(cohort), cohort)
    prepare(frozen, cohort, tmp_path / "inputs")
    execute(tmp_path / "inputs", tmp_path / "out", figures=False)
    path = tmp_path / "out" / "analysis.json"
    value = json.loads(path.read_text())
    value["tests"][0]["id"] = "best_of_many"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match="best_of_many"):
        collect(frozen, tmp_path / "out", tmp_path / "final", ledger=Ledger(tmp_path / "l"))


# -- other endpoints and comparisons -------------------------------------------------------------


def test_values_that_long_survivors_lack_prevent_a_claim(tmp_path: Path) -> None:
    raw = patients(400, log_hr=STRONG)
    late = (raw["months"] > raw["months"].median()) & (raw.index % 2 == 0)
    found = run_once(tmp_path, raw.assign(marker=raw["marker"].where(~late)))
    assert found.controls is not None and found.controls.missingness is not None
    assert found.controls.missingness.missing == int(late.sum())
    assert "missingness" in {reason.rule for reason in found.verdict.reasons}
    assert found.verdict.verdict != "supported"
