"""What must not slip into a verdict: leftovers, patients seen before, names that lead elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sage.cli.validate import app
from tests.validation.core_help import claim, patients, write

runner = CliRunner()
STRONG = 1.1


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGE_CACHE_DIR", str(tmp_path / "cache"))


def validate(tmp_path: Path, cohort: Path, *options: str, **changes: object) -> dict[str, Any]:
    """Run `sage validate run` in one --out and return its result."""
    path = tmp_path / "h.json"
    path.write_text(claim(**changes).model_dump_json())
    given = [str(path), "--cohort", str(cohort), "--out", str(tmp_path / "out"), "--json"]
    done = runner.invoke(app, ["run", *given, *options])
    if done.exception is not None:
        raise done.exception
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


# -- leftovers of an earlier run -----------------------------------------------------------------


def test_an_earlier_replication_does_not_enter_a_run_without_one(tmp_path: Path) -> None:
    cohort = write(tmp_path / "cohort", patients(240, log_hr=STRONG))
    other = write(tmp_path / "other", patients(240, log_hr=-STRONG, seed=9))
    before = validate(tmp_path, cohort, "--replicate", str(other))
    assert before["verdict"]["because"] == "replication"
    after = validate(tmp_path, cohort)
    assert after["verdict"]["verdict"] == "supported"
    assert after["replicate"] is None
    assert {one["part"] for one in after["tests"]} == {"all"}


def test_one_folder_takes_a_split_and_then_another_seed_without_one(tmp_path: Path) -> None:
    cohort = write(tmp_path / "cohort", patients(500, log_hr=STRONG))
    parts = [
        {one["part"] for one in validate(tmp_path, cohort, *options)["tests"]}
        for options in (("--split", "0.5"), ("--seed", "7"))
    ]
    assert parts == [{"discovery", "confirmation"}, {"all"}]
    assert [one.name for one in (tmp_path / "out" / "marker-os" / "analysis").iterdir()] == ["all"]
