"""The audit log, on SQLite and PostgreSQL: added to by many at once, and every edit is found."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sage.cli.app import app
from sage.settings import Settings
from sage_hospital.audit import open_audit
from tests.postgres import NEEDED, Line, server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=NEEDED)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    """Settings of either kind."""
    if request.param == "sqlite":
        yield Settings(runs_dir=tmp_path)
        return
    with server() as url:
        yield Settings.model_validate({"runs_dir": tmp_path, "checkpoint_url": url})


def test_rows_of_several_at_once_are_one_chain_and_every_edit_is_found(settings: Settings) -> None:
    with open_audit(settings, new=True) as audit:
        assert audit is not None

        def write(who: str) -> None:
            for number in range(10):
                audit.add(who, "asked", f"run-{number}", question="why?")

        people = [threading.Thread(target=write, args=(who,)) for who in ("ann", "bob", "cyd")]
        for person in people:
            person.start()
        for person in people:
            person.join()
        assert audit.find_problem() == ""
        assert [row.seq for row in audit.rows()] == list(range(1, 31))
        bobs = [row for row in audit.rows() if row.who == "bob"]
        assert audit.count(bobs[-1], "2000") == 10
        assert audit.count(bobs[-1], "9999") == 0
        assert audit.count(bobs[3], "2000") == 4  # what came later counts against others only
        audit.refuse(bobs[2])
        audit.refuse(bobs[3])
        assert audit.count(bobs[-1], "2000") == 8
        for change, said in (
            (
                "UPDATE sage_audit SET who = 'eve' WHERE seq = 7",
                "row 7 was edited",
            ),
            ("DELETE FROM sage_audit WHERE seq = 5", "row 5 was removed"),
        ):
            audit.database.run(f"{change} RETURNING seq")
            assert audit.find_problem() == said.replace(" was", " of the audit log was")


@pytest.mark.parametrize("settings", [pytest.param("postgres", marks=NEEDED)], indirect=True)
def test_a_row_whose_answer_was_lost_with_the_connection_is_there_once(settings: Settings) -> None:
    """Otherwise a request counts twice against its sender."""
    assert settings.checkpoint_url is not None
    line = Line(settings.checkpoint_url.get_secret_value())
    given = {"runs_dir": settings.runs_dir, "checkpoint_url": line.url}
    with open_audit(Settings.model_validate(given), new=True) as audit:
        assert audit is not None
        for number in range(3):
            line.cuts = 1
            entry = audit.add("ann", "asked", f"run-{number}")
            assert entry.seq == number + 1
            assert line.cuts == 0
        assert [row.about for row in audit.rows()] == ["run-0", "run-1", "run-2"]
        assert audit.find_problem() == ""
    line.close()


@pytest.mark.parametrize("settings", [pytest.param("postgres", marks=NEEDED)], indirect=True)
def test_a_process_that_stops_inside_a_transaction_is_cut_off_by_the_server(
    settings: Settings,
) -> None:
    """Otherwise its locks would block everybody until it continues."""
    with open_audit(settings, new=True) as audit:
        assert audit is not None
        (row,) = audit.database.run("SHOW idle_in_transaction_session_timeout")
        assert row["idle_in_transaction_session_timeout"] == "1min"
        (row,) = audit.database.run("SHOW tcp_keepalives_idle")
        assert row["tcp_keepalives_idle"] == "20"


def test_a_log_without_rows_of_somebody_is_told_from_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_RUNS_DIR", str(tmp_path))

    def run_audit(*words: str) -> str:
        return CliRunner().invoke(app, ["hospital", "audit", *words]).output

    assert "there is no log" in run_audit()
    with open_audit(Settings(runs_dir=tmp_path), new=True) as audit:
        assert audit is not None
        assert run_audit() == "the log is empty\n"
        audit.add("ann", "asked")
    assert run_audit("--who", "bob") == "the log has no rows for bob\n"
    assert "ann" in run_audit("--who", "ann")
