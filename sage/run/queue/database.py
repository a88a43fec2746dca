"""Database of a server of runs: an SQLite file, or PostgreSQL for many machines."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sage.core.errors import FaultError, InputError
from sage.core.postgres import reconnecting, retry

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

    from sage.settings import Settings

T = TypeVar("T")
FILE = "control.sqlite"
"""In the folder of runs, hidden; where no PostgreSQL is given."""
SETUP_LOCK = 0x5A6EC0DE


class Execute(Protocol):
    """Runs one statement of a transaction, with `?` for each value; returns its rows."""

    def __call__(self, text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Run it."""
        ...


class Database(ABC):
    """Transactions, each of which may be tried twice where a connection breaks.

    `{now}` in a statement is the database's clock (seconds since 1970), since those of workers
    differ; `{skip}` ends a choice of rows that several make at once.
    """

    where: str

    @abstractmethod
    def transaction(self, body: Callable[[Execute], T]) -> T:
        """Run `body` in a transaction and return its result."""

    def serialize(self, execute: Execute, table: str) -> None:
        """Have one transaction at a time write to the table from here on."""
        return

    def one(self, text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """The rows of a single statement."""
        return self.transaction(lambda execute: execute(text, values))


class SqliteDatabase(Database):
    """A file, for the processes of one machine."""

    def __init__(self, path: Path, tables: str) -> None:
        self.where = str(path)
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

        def make(execute: Execute) -> None:
            for statement in tables.split(";"):
                execute(statement)

        self.transaction(make)

    def transaction(self, body: Callable[[Execute], T]) -> T:
        """See `Database.transaction`; writers wait for one another."""
        try:
            live = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        except sqlite3.Error as error:
            raise FaultError(f"{self.path} cannot be opened: {error}") from None
        live.row_factory = sqlite3.Row

        def execute(text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
            now = "((julianday('now') - 2440587.5) * 86400.0)"
            said = text.replace("{now}", now).replace("{skip}", "")
            return [dict(row) for row in live.execute(said, tuple(values)).fetchall()]

        try:
            live.execute("PRAGMA secure_delete = ON")  # what is struck out is not left in the file
            live.execute("BEGIN IMMEDIATE")
            found = body(execute)
            live.execute("COMMIT")
            return found
        except sqlite3.Error as error:
            raise FaultError(f"{self.path} cannot be used: {error}") from None
        finally:
            live.close()


class PostgresDatabase(Database):
    """A server that many machines share."""

    def __init__(self, pool: ConnectionPool[Connection[dict[str, Any]]], tables: str) -> None:
        self.pool = pool
        self.where = "PostgreSQL"

        def make(execute: Execute) -> None:
            execute("SELECT pg_advisory_xact_lock(?)", [SETUP_LOCK])
            for statement in tables.split(";"):
                execute(statement)

        self.transaction(make)

    def transaction(self, body: Callable[[Execute], T]) -> T:
        """See `Database.transaction`; a broken connection is replaced and the body run again.

        Not where it broke after the changes were kept: the server is asked about that first, so
        that a row whose answer was lost is not added twice.
        """
        tried: list[tuple[str, T]] = []

        def whole() -> T:
            with self.pool.connection() as live:
                if tried and _was_kept(live, tried[-1][0]):
                    return tried[-1][1]
                with live.transaction(), live.cursor() as cursor:

                    def execute(text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
                        now = "EXTRACT(EPOCH FROM clock_timestamp())::float8"
                        skip = "FOR UPDATE SKIP LOCKED"
                        said = text.replace("{now}", now).replace("{skip}", skip)
                        # What stands in a statement is a literal of this package's.
                        cursor.execute(said.replace("?", "%s").encode(), list(values))
                        return cursor.fetchall() if cursor.description else []

                    found = body(execute)
                    (row,) = execute("SELECT txid_current_if_assigned()::text AS number")
                    if row["number"] is not None:  # it wrote
                        tried.append((row["number"], found))
                return found

        return retry(whole)

    def serialize(self, execute: Execute, table: str) -> None:
        """See `Database.serialize`."""
        execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")


def _was_kept(live: Connection[dict[str, Any]], number: str) -> bool:
    """True if the transaction with this number was committed.

    Raises
    ------
    psycopg.OperationalError
        While it is under way: the server has not noticed that its connection broke.
    """
    from psycopg import OperationalError

    row = live.execute("SELECT txid_status(%s::bigint) AS status", [number]).fetchone()
    status = row["status"] if row else None
    if status == "in progress":
        raise OperationalError("a transaction whose connection broke is still under way")
    return bool(status == "committed")


@contextmanager
def open_database(settings: Settings, tables: str, *, new: bool) -> Iterator[Database | None]:
    """The database that settings name; None where none is in use and no `new` one is wanted.

    Parameters
    ----------
    settings : `checkpoint_url` names a PostgreSQL server; without it a file lies with the runs
    tables : statements that make the tables where they are not there
    new : make the file where there is none

    Raises
    ------
    FaultError
        If it cannot be reached.
    """
    url = settings.checkpoint_url
    if url is not None:
        with reconnecting(url.get_secret_value(), "the checkpoint database") as pool:
            yield PostgresDatabase(pool, tables)
        return
    path = settings.runs_dir.resolve() / f".{FILE}"
    if not new and not path.is_file():
        yield None
        return
    try:
        database = SqliteDatabase(path, tables)
    except OSError as error:
        raise InputError(f"runs_dir {settings.runs_dir}: {error.strerror}") from None
    yield database
