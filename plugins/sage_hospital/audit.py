"""Append-only log of people's actions: asked, edited, approved, exported.

As in the ledger, each row is hashed together with the previous row, so that edits and
removals are detected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sage.core import clock
from sage.core.errors import FaultError
from sage.core.hashes import hash_text
from sage.core.models import Strict
from sage_hospital.database import Database, Execute, open_database
from validation.core.types import canonical_json

if TYPE_CHECKING:
    import sage.web.people as web
    from sage.settings import Settings

TABLES = """
CREATE TABLE IF NOT EXISTS sage_audit (
  seq BIGINT PRIMARY KEY, at TEXT NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL,
  about TEXT NOT NULL, detail TEXT NOT NULL, chain TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS sage_audit_who ON sage_audit (who, what, at)
"""
FIRST = hash_text("sage audit 1")
REFUSED = "refused"
"""Action logged for a request beyond a quota; `about` is that request's row number."""


class Entry(Strict):
    """A row in the audit log."""

    seq: int
    at: str
    who: str
    what: str
    about: str
    detail: dict[str, Any]
    chain: str

    def hash_after(self, before: str) -> str:
        """Return the hash of this row together with all rows before it."""
        values = [self.seq, self.at, self.who, self.what, self.about, self.detail]
        return hash_text(before + canonical_json(values))


class Audit:
    """Append-only audit log stored in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def add(self, who: str, what: str, about: str = "", **detail: Any) -> Entry:
        """Append a row; it is on disk when this returns.

        Parameters
        ----------
        what : action in the past tense, such as "asked" or "exported"
        about : run, cohort or file
        detail : JSON values
        """

        def body(execute: Execute) -> Entry:
            self.database.serialize(execute, "sage_audit")
            last = execute("SELECT seq, chain, at FROM sage_audit ORDER BY seq DESC LIMIT 1")
            seq, chain, at = (
                (last[0][name] for name in ("seq", "chain", "at")) if last else (0, FIRST, "")
            )
            entry = Entry(
                seq=seq + 1, at=max(clock.stamp(), at), who=who, what=what, about=about,
                detail=detail, chain="",
            )  # fmt: skip
            entry = entry.model_copy(update={"chain": entry.hash_after(chain)})
            execute(
                "INSERT INTO sage_audit (seq, at, who, what, about, detail, chain)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                [entry.seq, entry.at, who, what, about, canonical_json(detail), entry.chain],
            )
            return entry

        return self.database.transaction(body)

    def rows(self) -> list[Entry]:
        """Return all rows, oldest first."""
        found = self.database.run("SELECT * FROM sage_audit ORDER BY seq")
        return [_entry(row) for row in found]

    def refuse(self, entry: web.Entry) -> None:
        """Log that the request in a row was refused, so that it does not count toward quotas."""
        self.add(entry.who, REFUSED, str(entry.seq), request=entry.what)

    def count(self, entry: web.Entry, since: str) -> int:
        """Count the same person's uses of an entry's action since a time (ISO 8601), up to its row.

        The entry's row is included; refused requests are not.
        """
        text = (
            "SELECT COUNT(*) AS n FROM sage_audit WHERE who = ? AND what = ? AND at >= ?"
            " AND seq <= ? AND CAST(seq AS TEXT) NOT IN"
            " (SELECT about FROM sage_audit WHERE who = ? AND what = ? AND at >= ?)"
        )
        values = [entry.who, entry.what, since, entry.seq, entry.who, REFUSED, since]
        return int(self.database.run(text, values)[0]["n"])

    def find_problem(self) -> str:
        """Describe the first break in the chain, or return an empty string if there is none."""
        chain = FIRST
        found = self.database.run("SELECT * FROM sage_audit ORDER BY seq")
        for at, row in enumerate(found, start=1):
            try:
                entry = _entry(row)
            except FaultError:
                return f"row {at} of the audit log was edited"
            if entry.seq != at:
                return f"row {at} of the audit log was removed"
            chain = entry.hash_after(chain)
            if entry.chain != chain:
                return f"row {at} of the audit log was edited"
        return ""


def _entry(row: dict[str, Any]) -> Entry:
    try:
        return Entry.model_validate({**row, "detail": json.loads(row["detail"])})
    except (ValueError, TypeError, RecursionError):
        raise FaultError(
            "a row of the audit log was edited and cannot be read; restore it from a backup"
        ) from None


@contextmanager
def open_audit(settings: Settings, *, new: bool = False) -> Iterator[Audit | None]:
    """Open the log in the settings' database; None if there is none and `new` is false."""
    with open_database(settings, TABLES, new=new) as database:
        yield Audit(database) if database is not None else None
