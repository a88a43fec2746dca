"""PostgreSQL database shared by many processes: reconnection, and setup by one process."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sage.core.errors import FaultError
from sage.core.extras import require_extra
from sage.core.log import logger
from sage.core.postgres import ABANDONED, KEPT_ALIVE, WAITING_S, refuse_other_text

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

log = logger(__name__)

T = TypeVar("T")

PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, *(2.0,) * 8)
"""Pauses in seconds between retries after a broken connection, enough for a server restart."""
POLL_S = 0.1


def retry(call: Callable[[], T]) -> T:
    """Return `call()`, retrying if its connection breaks; the call must be safe to repeat."""
    import psycopg

    for pause in PAUSES_S:
        try:
            return call()
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            log.info("retrying the database", reason=reason_of(error), pause_s=pause)
            time.sleep(pause)
    return call()


def reason_of(error: Exception) -> str:
    """Return the first line of a database error, without its address and password."""
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def reconnecting(url: str, what: str) -> Iterator[ConnectionPool[Connection[dict[str, Any]]]]:
    """Open connections to the database at `url`, replaced if broken; rows are dictionaries.

    Parameters
    ----------
    what : name for the SAGE data stored in the database, used in error messages

    Raises
    ------
    InputError
        If the database stores text in an encoding other than UTF-8.
    FaultError
        If the database cannot be reached, initially or for longer than `retry` keeps trying,
        or does not allow its user to create or alter tables.
    """
    require_extra("postgres", what)
    import psycopg
    from psycopg.errors import InsufficientPrivilege, InvalidSchemaName, ReadOnlySqlTransaction
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # `retry` says what matters
    given: dict[str, Any] = {
        "autocommit": True,
        "prepare_threshold": 0,
        "row_factory": dict_row,
        **KEPT_ALIVE,
    }

    def configure(live: Connection[Any]) -> None:
        live.execute(ABANDONED)

    try:
        with psycopg.connect(url, **given) as first:  # which says why, where it cannot
            refuse_other_text(first, what)
        with ConnectionPool(
            url,
            min_size=1,
            max_size=4,
            kwargs=given,
            configure=configure,
            timeout=WAITING_S,
            check=ConnectionPool.check_connection,
        ) as pool:
            yield cast("ConnectionPool[Connection[dict[str, Any]]]", pool)
    except psycopg.OperationalError as error:
        raise FaultError(f"{what} cannot be reached: {reason_of(error)}") from None
    except (InsufficientPrivilege, InvalidSchemaName, ReadOnlySqlTransaction) as error:
        raise FaultError(
            f"{what} refused the request: {reason_of(error)}; its user must own the database, or "
            "be granted CREATE and USAGE on its schema"
        ) from None


@contextmanager
def hold_lock(live: Connection[dict[str, Any]], key: int) -> Iterator[None]:
    """Acquire the database-wide advisory lock `key`, which other processes wait for.

    They poll, because a process waiting inside a statement would hold a snapshot, and an
    index being built at the same time waits for all snapshots.
    """
    taken = "SELECT pg_try_advisory_lock(%s) AS taken"
    while not (live.execute(taken, [key]).fetchone() or {})["taken"]:
        time.sleep(POLL_S)
    try:
        yield
    finally:
        if not live.closed:
            live.execute("SELECT pg_advisory_unlock(%s)", [key])
