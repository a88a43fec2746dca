"""Comments and votes of reviewers, in a run's folder or in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sage.core import clock
from sage.core.files import append_line
from sage.run.folder import RunFolder
from sage.run.queue.database import Database, Execute, open_database

if TYPE_CHECKING:
    from sage.settings import Settings

FILE = "reviews.jsonl"
"""In a run's folder: a JSON object per line, oldest first."""
TABLES = """
CREATE TABLE IF NOT EXISTS sage_reviews (
  run TEXT NOT NULL, seq BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run, seq))
"""


class Reviews:
    """A file in each run's folder."""

    def add(self, run: RunFolder, who: str, **fields: Any) -> None:
        """Keep what a reviewer said; when this returns, it is on disk."""
        self._write(run, _line(who, fields))

    def entries(self, run: RunFolder) -> list[dict[str, Any]]:
        """Comments and votes of a run, oldest first."""
        return [json.loads(line) for line in _lines(run)]

    def _write(self, run: RunFolder, line: str) -> None:
        append_line(run.root / FILE, line)


class SharedReviews(Reviews):
    """A table that many machines share; the file in the run's folder is a copy.

    What a folder held before its run was known to the table counts as said.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    def add(self, run: RunFolder, who: str, **fields: Any) -> None:
        """See `Reviews.add`."""
        line, before, known = _line(who, fields), _lines(run), _identify(run)

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


def _line(who: str, fields: dict[str, Any]) -> str:
    line = {"time": clock.stamp(), "reviewer": who, **fields}
    return json.dumps(line)


def _lines(run: RunFolder) -> list[str]:
    path = run.root / FILE
    # No splitlines: it also ends lines at separators that a comment may hold.
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n") if path.is_file() else []


@contextmanager
def open_reviews(settings: Settings) -> Iterator[Reviews]:
    """Of all runs: in PostgreSQL where the settings name a database, else in the runs' folders."""
    if settings.checkpoint_url is None:
        yield Reviews()
        return
    with open_database(settings, TABLES, new=True) as database:
        assert database is not None
        yield SharedReviews(database)
