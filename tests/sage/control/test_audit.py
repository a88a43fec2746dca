"""The audit log, on SQLite and PostgreSQL: added to by many at once, and every edit is found."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sage.control.audit import open_audit
from sage.settings import Settings
from tests.postgres import NEEDED, server


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
        assert audit.problem() == ""
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
            audit.database.one(f"{change} RETURNING seq")
            assert audit.problem() == said.replace(" was", " of the audit log was")
