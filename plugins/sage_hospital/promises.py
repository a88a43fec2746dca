"""Budgets reserved for runs, in a database that all servers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sage.core.models import Strict
from sage_hospital.database import Database, Execute, open_database
from sage_hospital.runs import TABLES as RUNS
from sage_hospital.runs import KnownRun, list_owned

if TYPE_CHECKING:
    from sage.settings import Settings

TABLES = """
CREATE TABLE IF NOT EXISTS sage_promises (
  run TEXT PRIMARY KEY, who TEXT NOT NULL, usd DOUBLE PRECISION NOT NULL,
  made DOUBLE PRECISION NOT NULL, holds_until DOUBLE PRECISION NOT NULL)
"""
STARTS_S = 600.0
"""Seconds within which a started run appears in the table of runs, unless it failed."""


class Promise(Strict):
    """Money reserved for a run; `holds` is true until the run can no longer begin."""

    usd: float
    made: float
    holds: bool


Decide = Callable[[Sequence[KnownRun], Mapping[str, Promise]], float | None]


class Promises:
    """Budget reservations for runs, in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def make(self, run: str, who: str, within_s: float, decide: Decide) -> float | None:
        """Reserve for a run the amount that `decide` returns; decisions are serialized.

        Decisions do not overlap, even across processes.

        Parameters
        ----------
        run : folder of the run
        within_s : period in seconds whose runs and reservations are passed to `decide`
        decide : maps the person's runs and reservations to USD; may raise

        Returns
        -------
        The reserved amount in USD; None if `decide` sets no limit.
        """

        def body(execute: Execute) -> float | None:
            self.database.serialize(execute, "sage_promises")
            made = execute(
                "SELECT *, CASE WHEN holds_until > {now} THEN 1 ELSE 0 END AS holds"
                " FROM sage_promises WHERE who = ? AND made >= {now} - ?",
                [who, within_s],
            )
            usd = decide(
                list_owned(execute, who, within_s), {row["run"]: _promise(row) for row in made}
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
        """End the reservation for a run that failed to start."""
        self.database.run(
            "UPDATE sage_promises SET holds_until = {now} WHERE run = ? RETURNING run", [run]
        )

    def waiting(self) -> list[str]:
        """List the folders of runs whose reservations are still valid."""
        text = "SELECT run FROM sage_promises WHERE holds_until > {now}"
        return [row["run"] for row in self.database.run(text)]


def _promise(row: dict[str, Any]) -> Promise:
    return Promise(usd=row["usd"], made=row["made"], holds=bool(row["holds"]))


@contextmanager
def open_promises(settings: Settings) -> Iterator[Promises]:
    """Open the reservations in the settings' database, creating it if necessary."""
    with open_database(settings, f"{RUNS};{TABLES}", new=True) as database:
        assert database is not None
        yield Promises(database)
