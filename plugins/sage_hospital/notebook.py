"""Campaign notebooks in a PostgreSQL database that many machines can write to concurrently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sage.core.files import write_json
from sage.run.campaign.notebook import Asked, Finding, Notebook, Pages
from sage_hospital.database import Database, Execute, open_database

if TYPE_CHECKING:
    from sage.settings import Settings

TABLES = """
CREATE TABLE IF NOT EXISTS sage_campaigns (
  notebook TEXT NOT NULL, id TEXT NOT NULL, seq BIGINT NOT NULL, rounds BIGINT, body TEXT,
  PRIMARY KEY (notebook, id));
CREATE TABLE IF NOT EXISTS sage_findings (
  notebook TEXT NOT NULL, name TEXT NOT NULL, seq BIGINT NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (notebook, name))
"""


class SharedNotebook(Notebook):
    """A notebook in the runs' PostgreSQL database, which many machines can write concurrently.

    The database is authoritative; the file is a copy, written after each change so that the
    folder and its backups stay complete. A notebook that was previously a file starts with
    that file's contents.

    Parameters
    ----------
    path : the JSON file, which identifies the notebook in the database
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        super().__init__(path)
        self.settings = settings

    @contextmanager
    def _database(self) -> Iterator[Database]:
        with open_database(self.settings, TABLES, new=True) as database:
            assert database is not None
            yield database

    def load(self) -> Pages:
        """See `Notebook.read`."""
        with self._database() as database:
            return database.transaction(self._pages) or super().load()

    def enter(self, asked: Asked) -> None:
        """See `Notebook.enter`."""
        self._change(partial(self._enter, asked=asked))

    def add(self, campaign: str, number: int, findings: Iterable[Finding]) -> None:
        """See `Notebook.add`."""
        self._change(partial(self._add, campaign=campaign, number=number, findings=tuple(findings)))

    def _change(self, change: Callable[[Execute], None]) -> None:
        before = super().load()

        def body(execute: Execute) -> None:
            database.serialize(execute, "sage_campaigns")
            if self._pages(execute) is None:
                for asked in before.campaigns:
                    self._enter(execute, asked)
                for finding in before.findings:
                    self._add(execute, finding.campaign, finding.round, [finding])
                for campaign, number in before.rounds.items():
                    self._add(execute, campaign, number, ())
            change(execute)

        with self._database() as database:
            database.transaction(body)
        with self.change_pages() as pages:
            write_json(self.path, pages)

    def _enter(self, execute: Execute, asked: Asked) -> None:
        execute(
            "INSERT INTO sage_campaigns (notebook, id, seq, rounds, body) VALUES (?, ?, (SELECT"
            " COALESCE(MAX(seq), 0) + 1 FROM sage_campaigns), NULL, ?)"
            " ON CONFLICT (notebook, id) DO UPDATE SET body = excluded.body",
            [str(self.path), asked.id, asked.model_dump_json()],
        )

    def _add(
        self, execute: Execute, campaign: str, number: int, findings: Iterable[Finding]
    ) -> None:
        for finding in findings:
            execute(
                "INSERT INTO sage_findings (notebook, name, seq, body) VALUES (?, ?, (SELECT"
                " COALESCE(MAX(seq), 0) + 1 FROM sage_findings), ?) ON CONFLICT DO NOTHING",
                [str(self.path), finding.name, finding.model_dump_json()],
            )
        execute(
            "INSERT INTO sage_campaigns AS known (notebook, id, seq, rounds, body) VALUES (?, ?,"
            " (SELECT COALESCE(MAX(seq), 0) + 1 FROM sage_campaigns), ?, NULL)"
            " ON CONFLICT (notebook, id) DO UPDATE SET rounds ="
            " CASE WHEN known.rounds > excluded.rounds THEN known.rounds ELSE excluded.rounds END",
            [str(self.path), campaign, number],
        )

    def _pages(self, execute: Execute) -> Pages | None:
        mine = [str(self.path)]
        campaigns = execute("SELECT * FROM sage_campaigns WHERE notebook = ? ORDER BY seq", mine)
        findings = execute("SELECT body FROM sage_findings WHERE notebook = ? ORDER BY seq", mine)
        if not campaigns:
            return None
        return Pages(
            campaigns=tuple(
                Asked.model_validate_json(row["body"]) for row in campaigns if row["body"]
            ),
            findings=tuple(Finding.model_validate_json(row["body"]) for row in findings),
            rounds={row["id"]: row["rounds"] for row in campaigns if row["rounds"] is not None},
        )
