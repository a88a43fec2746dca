"""Attacks on the queue and its log: forged folders, names and lines that a terminal would obey."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sage.cli.app import app
from sage.core.hooks import OWNER, current_owner
from sage.run.begin import reopen
from sage.run.folder import Manifest, RunFolder
from sage.settings import Settings
from sage_hospital.audit import open_audit
from sage_hospital.runs import open_runs
from sage_hospital.worker import Worker


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Runs of this test, also for the command line."""
    monkeypatch.setenv("SAGE_RUNS_DIR", str(tmp_path / "runs"))
    return Settings(runs_dir=tmp_path / "runs")


def write_run(root: Path, **fields: object) -> Manifest:
    """A whole record of a run that somebody made by hand."""
    run = RunFolder(root)
    run.root.mkdir(parents=True)
    given = {"id": root.name, "run_id": root.name, "place": str(root), "created": "",
             "reasoner": "rules", "spec": {"prompt": "q"}} | fields  # fmt: skip
    run.save(Manifest.model_validate(given))
    return run.update(sealed=run.record.head())


def test_a_folder_says_neither_where_prompts_go_nor_with_which_key(settings: Settings) -> None:
    own = {"base_url": "http://attacker.example", "api_key": "x", "revisions": 1}
    write_run(settings.runs_dir / "forged", settings=own)
    services = reopen(str(settings.runs_dir / "forged"))
    try:
        assert services.settings.base_url is None
        assert services.settings.api_key is None
        assert services.settings.revisions == 1
    finally:
        services.folder.release()


def test_a_worker_does_not_work_on_another_run_that_lies_in_the_folder_of_one(
    settings: Settings,
) -> None:
    manifest = write_run(settings.runs_dir / "first", run_id="another")
    messages: list[str] = []
    with open_runs(settings, new=True) as runs:
        assert runs is not None
        runs.add(manifest.model_copy(update={"run_id": "queued"}), "ann")
        assert Worker(runs, messages.append).work(most=1) == 1
        known = runs.get("queued")
    assert known is not None
    assert known.state == "failed"
    assert "another run" in known.problem


@pytest.mark.parametrize("other", [False, True])
def test_a_worker_finds_a_run_that_was_moved_while_it_waited(
    settings: Settings, other: bool
) -> None:
    """Also where another run has the folder's name by now."""
    manifest = write_run(settings.runs_dir / "first", run_id="first")
    with open_runs(settings, new=True) as runs:
        assert runs is not None
        runs.add(manifest, "ann")
        (settings.runs_dir / "first").rename(settings.runs_dir / "two")
        if other:
            write_run(settings.runs_dir / "first", run_id="second")
        Worker(runs, lambda line: None).work(most=1)
    # It was begun there; that it has no cohort to go on with is another matter.
    assert (settings.runs_dir / "two" / "run.lock").exists()
    assert not (settings.runs_dir / "first" / "run.lock").exists()


def test_names_and_addresses_in_the_log_and_the_queue_forge_no_line_and_break_no_list(
    settings: Settings,
) -> None:
    with open_audit(settings, new=True) as audit:
        assert audit is not None
        audit.add("eve [/dim]", "exported", "x\n2026-01-01  boss  approved  run-1\x1b[2J")
    with open_runs(settings, new=True) as runs:
        assert runs is not None
        runs.add(write_run(settings.runs_dir / "first"), "eve [/bold]")
    ran = CliRunner().invoke(app, ["hospital", "audit"])
    assert ran.exit_code == 0, ran.output
    assert len(ran.output.splitlines()) == 1
    assert "\x1b" not in ran.output
    listed = CliRunner().invoke(app, ["hospital", "queue"])
    assert listed.exit_code == 0, listed.output
    assert "requested by eve [/bold]" in listed.output


def test_a_row_of_the_log_that_cannot_be_read_is_told_in_a_sentence(settings: Settings) -> None:
    with open_audit(settings, new=True) as audit:
        assert audit is not None
        audit.add("ann", "asked", "run-1")
        audit.database.run("UPDATE sage_audit SET detail = '{' RETURNING seq")
    ran = CliRunner().invoke(app, ["hospital", "audit"])
    assert ran.exit_code != 0
    assert "edited" in str(ran.exception) + ran.output


def test_what_a_command_takes_away_is_logged_once_and_by_the_server_that_started_it(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(settings.runs_dir / "first")
    (settings.runs_dir / "first" / "trace.jsonl").touch()
    words = ["exchange", "trace", "first", "--out", str(tmp_path / "spans.json")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert not (settings.runs_dir / ".control.sqlite").exists()  # no log is kept here
    with open_audit(settings, new=True) as audit:
        assert audit is not None
        assert CliRunner().invoke(app, words).exit_code == 0
        monkeypatch.setenv(OWNER, "ann")
        assert CliRunner().invoke(app, words).exit_code == 0
        monkeypatch.delenv(OWNER)
        (row,) = audit.rows()
        assert (row.who, row.what, row.about) == (current_owner(), "exported", "first")
        (tmp_path / "spans.json").unlink()
        audit.database.run("DROP TABLE sage_audit")
        audit.database.run("CREATE VIEW sage_audit AS SELECT 1 AS seq, 'x' AS chain, '' AS at")
        assert CliRunner().invoke(app, words).exit_code == 1
        assert not (tmp_path / "spans.json").exists()  # what cannot be written down is not done
