"""`sage validate gate`, then `sage slides measure`: what passes becomes variables of the cohort."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcp_servers.measures.maps import write_maps
from sage.cli.app import app
from sage.core.errors import InputError
from tests.mcp_servers.measures.test_gate import patients

BASE = """
id = "measured"
title = "Measured"
patient = { table = "clinical", ids = "exact" }

[tables.clinical]
file = "clinical.csv"
key = "patient"

[endpoints.OS]
kind = "survival"
table = "clinical"
time = "days"
time_unit = "days"
event = "dead"
event_values = [1]
censored_values = [0]

"""
FORMULAS = """
mean(density(cells.b))
mean(ripley_l(cells.a, 60))
mean(nearest(cells.a, cells.c, mean))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Maps of 24 patients, of whom 16 are in the cohort, and three measurements."""
    for maps in patients(24):
        write_maps(maps, tmp_path / "maps" / maps.slide)
    rows = [f"P{i:02},{100 + i},{i % 2}" for i in range(16)]
    (tmp_path / "cohort").mkdir()
    (tmp_path / "cohort" / "clinical.csv").write_text("patient,days,dead\n" + "\n".join(rows))
    (tmp_path / "cohort" / "cohort.toml").write_text(BASE)
    (tmp_path / "define.txt").write_text(FORMULAS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


def test_slides_made_again_are_compared(folder: Path) -> None:
    line = ["validate", "gate", "-", "--maps", "maps", "--define", "define.txt", "--json"]
    report = json.loads(run(*line, "--shifted", "stain=maps"))
    assert report["measurements"][0]["stability"]["stain"]["icc"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--maps", "maps"], "--define"),
        (["--maps", "maps", "--suite", "large"], "standard or full"),
        (["--maps", "cohort", "--suite", "full"], "cohort"),
        (["--maps", "maps", "--suite", "full", "--shifted", "ink=maps"], "resolution, stain"),
    ],
)
def test_bad_input_is_refused(folder: Path, words: list[str], named: str) -> None:
    with pytest.raises(InputError, match=named):
        CliRunner().invoke(app, ["validate", "gate", "-", *words], catch_exceptions=False)
