"""`sage show`: the state of each run."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sage.cli.app import app
from sage.run.folder import Manifest, RunFolder
from sage.run.spec import RunSpec


def test_a_run_that_was_killed_is_not_listed_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_RUNS_DIR", str(tmp_path))
    run = RunFolder(tmp_path / "run-1")
    run.root.mkdir()
    run.save(
        Manifest(
            id="run-1",
            run_id="id-001",
            place=str(run.root),
            created="",
            reasoner="rules",
            spec=RunSpec(prompt="Does it matter?"),
        )
    )
    run.hold()
    assert "run-1  running" in CliRunner().invoke(app, ["show"]).output
    run.release()
    assert "run-1  interrupted" in CliRunner().invoke(app, ["show"]).output
