"""A small database for runs, in an SQLite file or in PostgreSQL for several machines."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from sage.core.errors import FaultError, InputError
from sage_hospital.postgres import reconnecting, retry

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

    from sage.settings import Settings

T = TypeVar("T")
FILE = "control.sqlite"
"""Name of the hidden file in runs_dir that is used without PostgreSQL."""
SETUP_LOCK = 0x5A6EC0DE


class Execute(Protocol):
    """Callable that runs a statement, with `?` per value, in a transaction and returns its rows."""

    def __call__(self, text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Run the statement."""
        ...


class Database(ABC):
    """Database whose transactions are retried if a connection breaks.

    In a statement, `{now}` is the database's clock (seconds since 1970), since workers'
    clocks differ; `{skip}` ends a selection that several workers make concurrently.
    """

    where: str

    @abstractmethod
    def transaction(self, body: Callable[[Execute], T]) -> T:
        """Run `body` in a transaction and return its result."""

    def serialize(self, execute: Execute, table: str) -> None:
        """Prevent other transactions from writing to the table until this one ends."""
        return

    def run(self, text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Run a single statement and return its rows."""
        return self.transaction(lambda execute: execute(text, values))


class SqliteDatabase(Database):
    """SQLite file shared by processes on one machine."""

    def __init__(self, path: Path, tables: str) -> None:
        self.where = str(path)
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

        def make(execute: Execute) -> None:
            for statement in tables.split(";"):
                execute(statement)

        self.transaction(make)

    def transaction(self, body: Callable[[Execute], T]) -> T:
        """See `Database.transaction`; writers wait for each other."""
        try:
            live = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        except sqlite3.Error as error:
            raise FaultError(f"{self.path} cannot be opened: {error}") from None
        live.row_factory = sqlite3.Row

        def execute(text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
            now = "((julianday('now') - 2440587.5) * 86400.0)"
            statement = text.replace("{now}", now).replace("{skip}", "")
            return [dict(row) for row in live.execute(statement, tuple(values)).fetchall()]

        try:
            live.execute("PRAGMA secure_delete = ON")  # deleted text does not remain in the file
            live.execute("BEGIN IMMEDIATE")
            found = body(execute)
            live.execute("COMMIT")
            return found
        except sqlite3.Error as error:
            raise FaultError(f"{self.path} cannot be used: {error}") from None
        finally:
            live.close()


class PostgresDatabase(Database):
    """PostgreSQL server shared by several machines."""

    def __init__(self, pool: ConnectionPool[Connection[dict[str, Any]]], tables: str) -> None:
        self.pool = pool
        self.where = "PostgreSQL"

        def make(execute: Execute) -> None:
            execute("SELECT pg_advisory_xact_lock(?)", [SETUP_LOCK])
            for statement in tables.split(";"):
                execute(statement)

        self.transaction(make)

    def transaction(self, body: Callable[[Execute], T]) -> T:
        """See `Database.transaction`; if the connection breaks, reconnect and retry.

        First check whether the changes were committed before the connection broke, so that no row
        is added twice.
        """
        tried: list[tuple[str, T]] = []

        def whole() -> T:
            with self.pool.connection() as live:
                if tried and _was_committed(live, tried[-1][0]):
                    return tried[-1][1]
                with live.transaction(), live.cursor() as cursor:

                    def execute(text: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
                        now = "EXTRACT(EPOCH FROM clock_timestamp())::float8"
                        skip = "FOR UPDATE SKIP LOCKED"
                        statement = text.replace("{now}", now).replace("{skip}", skip)
                        # Statements are literals of this package.
                        cursor.execute(statement.replace("?", "%s").encode(), list(values))
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


def _was_committed(live: Connection[dict[str, Any]], number: str) -> bool:
    """Return True if the transaction with this number was committed.

    Raises
    ------
    psycopg.OperationalError
        If it is still in progress because the server has not noticed the broken connection.
    """
    from psycopg import OperationalError

    row = live.execute("SELECT txid_status(%s::bigint) AS status", [number]).fetchone()
    status = row["status"] if row else None
    if status == "in progress":
        raise OperationalError("a transaction with a lost connection is still in progress")
    return bool(status == "committed")


@contextmanager
def open_database(settings: Settings, tables: str, *, new: bool) -> Iterator[Database | None]:
    """Open the settings' database; None if there is no file and `new` is false.

    Parameters
    ----------
    settings : `checkpoint_url` names a PostgreSQL server; without it, a file in runs_dir is
        used

    Raises
    ------
    FaultError
        If the database cannot be reached.
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
