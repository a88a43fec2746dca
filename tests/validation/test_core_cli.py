"""`sage cohort` and `sage validate` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sage.cli.cohort import app as cohort_app
from sage.cli.validate import app as validate_app
from tests.validation.core_help import ROOT, claim, patients, shared, write

runner = CliRunner()


def hypothesis(folder: Path, name: str = "h.json", **changes: object) -> Path:
    path = folder / name
    path.write_text(claim(**changes).model_dump_json())
    return path


def test_a_hypothesis_that_cannot_be_tested_fails_alone_by_file_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "cohort", patients(240, log_hr=1.1))
    good = hypothesis(tmp_path)
    lacking = hypothesis(tmp_path, "lacking.json", id="lacking", endpoint="PFS")
    second = hypothesis(tmp_path, "two.json", id="second", direction="lower_risk")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    options = ["--cohort", str(folder), "--out", str(tmp_path / "out"), "--json", "--no-figures"]
    given = [str(path) for path in (lacking, good, broken, second)]
    done = runner.invoke(validate_app, ["run", *given, *options])
    assert done.exit_code == 2
    found = json.loads(done.stdout)
    assert [item["hypothesis"] for item in found] == [claim().id, "second"]
    assert [item["numbers"]["ledger.claims"]["value"] for item in found] == [2, 2]
    assert "lacking.json" in done.stderr and "broken.json" in done.stderr
    assert "h.json" not in done.stderr
    assert not (tmp_path / "out" / "lacking").exists()


def test_cohort_check_exits_with_2_on_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "toy", patients().assign(dead=2))
    checked = runner.invoke(cohort_app, ["check", str(folder), "--json"])
    assert checked.exit_code == 2
    assert {load["severity"] for load in json.loads(checked.stdout)} >= {"error"}


@pytest.mark.shared
def test_a_description_apart_from_its_data_gives_the_same_contract() -> None:
    path = ROOT / "docs" / "hypotheses" / "e5_fabp5_tls.json"
    cohort = str(shared("tcga_blca"))
    description = str(ROOT / "docs" / "cohorts" / "tcga-blca")
    direct = runner.invoke(validate_app, ["contract", str(path), "--cohort", cohort, "--json"])
    rooted = runner.invoke(
        validate_app,
        ["contract", str(path), "--cohort", description, "--cohort-root", cohort, "--json"],
    )  # fmt: skip
    assert direct.exit_code == 0, direct.output
    assert json.loads(direct.stdout) == json.loads(rooted.stdout)
