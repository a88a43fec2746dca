"""Reviewers' comments and votes in a table shared by many machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sage.web.reviews import Reviews, list_lines, make_line
from sage_hospital.database import Database, Execute, open_database

if TYPE_CHECKING:
    from sage.run.folder import RunFolder
    from sage.settings import Settings

TABLES = """
CREATE TABLE IF NOT EXISTS sage_reviews (
  run TEXT NOT NULL, seq BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run, seq))
"""


class SharedReviews(Reviews):
    """Reviews in a table shared by many machines; the file in the run's folder is a copy.

    Entries that were in a run's folder before the run was added to the table are included.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def add(self, run: RunFolder, who: str, **fields: Any) -> None:
        """See `Reviews.add`."""
        line, before, known = make_line(who, fields), list_lines(run), _identify(run)

        def body(execute: Execute) -> None:
            self.database.serialize(execute, "sage_reviews")
            said = len(self._select(execute, known))
            for at, text in enumerate([line] if said else [*before, line], start=said + 1):
                execute("INSERT INTO sage_reviews VALUES (?, ?, ?)", [known, at, text])

        self.database.transaction(body)
        self._write(run, line)

    def entries(self, run: RunFolder) -> list[dict[str, Any]]:
        """See `Reviews.entries`."""
        known = _identify(run)
        rows = self.database.transaction(lambda execute: self._select(execute, known))
        return [json.loads(row["body"]) for row in rows] or super().entries(run)

    def _select(self, execute: Execute, known: str) -> list[dict[str, Any]]:
        return execute("SELECT body FROM sage_reviews WHERE run = ? ORDER BY seq", [known])


def _identify(run: RunFolder) -> str:
    manifest = run.manifest()
    return manifest.run_id or manifest.id


@contextmanager
def open_reviews(settings: Settings) -> Iterator[Reviews]:
    """Open the reviews of all runs."""
    with open_database(settings, TABLES, new=True) as database:
        assert database is not None
        yield SharedReviews(database)
