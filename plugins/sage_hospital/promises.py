"""Money that runs were promised, where every server sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sage.core.models import Strict
from sage.run.queue.database import Database, Execute, open_database
from sage.run.queue.runs import TABLES as RUNS
from sage.run.queue.runs import KnownRun, of_owner

if TYPE_CHECKING:
    from sage.settings import Settings

TABLES = """
CREATE TABLE IF NOT EXISTS sage_promises (
  run TEXT PRIMARY KEY, who TEXT NOT NULL, usd DOUBLE PRECISION NOT NULL,
  made DOUBLE PRECISION NOT NULL, holds_until DOUBLE PRECISION NOT NULL)
"""
STARTS_S = 600.0
"""Within which a run that was started is in the table of runs, unless it failed."""


class Promise(Strict):
    """What a run was promised, and whether it may still begin."""

    usd: float
    made: float
    holds: bool


Decide = Callable[[Sequence[KnownRun], Mapping[str, Promise]], float | None]


class Promises:
    """The promises that a database knows."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def make(self, run: str, who: str, within_s: float, decide: Decide) -> float | None:
        """Promise a run what `decide` says; one promise is decided on at a time, by all processes.

        Parameters
        ----------
        run : its folder
        who : whose it is
        within_s : seconds within which runs were begun and promises made that bear on it
        decide : from the person's runs and promises, what the run gets; it may raise

        Returns
        -------
        What it got, in USD; None where `decide` gives no bound.
        """

        def body(execute: Execute) -> float | None:
            self.database.serialize(execute, "sage_promises")
            made = execute(
                "SELECT *, CASE WHEN holds_until > {now} THEN 1 ELSE 0 END AS holds"
                " FROM sage_promises WHERE who = ? AND made >= {now} - ?",
                [who, within_s],
            )
            usd = decide(
                of_owner(execute, who, within_s), {row["run"]: _promise(row) for row in made}
            )
            if usd is not None:
                execute(
                    "INSERT INTO sage_promises (run, who, usd, made, holds_until)"
                    " VALUES (?, ?, ?, {now}, {now} + ?) ON CONFLICT (run) DO UPDATE SET"
                    " who = EXCLUDED.who, usd = EXCLUDED.usd, made = EXCLUDED.made,"
                    " holds_until = EXCLUDED.holds_until",
                    [run, who, usd, STARTS_S],
                )
            return usd

        return self.database.transaction(body)

    def end(self, run: str) -> None:
        """A run that failed to begin needs nothing more."""
        self.database.one(
            "UPDATE sage_promises SET holds_until = {now} WHERE run = ? RETURNING run", [run]
        )

    def waiting(self) -> list[str]:
        """The folders of the runs whose promises hold."""
        text = "SELECT run FROM sage_promises WHERE holds_until > {now}"
        return [row["run"] for row in self.database.one(text)]


def _promise(row: dict[str, Any]) -> Promise:
    return Promise(usd=row["usd"], made=row["made"], holds=bool(row["holds"]))


@contextmanager
def open_promises(settings: Settings) -> Iterator[Promises]:
    """The promises in the settings' database, which is made where there is none."""
    with open_database(settings, f"{RUNS};{TABLES}", new=True) as database:
        assert database is not None
        yield Promises(database)
