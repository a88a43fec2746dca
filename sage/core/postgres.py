"""Connection options and encoding checks for a PostgreSQL database shared by many processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError

if TYPE_CHECKING:
    from psycopg import Connection

WAITING_S = 10.0
"""Maximum time in seconds to establish a connection."""
KEPT_ALIVE: dict[str, Any] = {
    "connect_timeout": int(WAITING_S),
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 40_000,
}
"""Connection options, named as in libpq.

They detect a server that disappeared silently within a minute instead of after the hours
that the system defaults allow.
"""
ABANDONED = (
    "SELECT set_config('idle_in_transaction_session_timeout', '60s', false),"
    " set_config('tcp_keepalives_idle', '20', false),"
    " set_config('tcp_keepalives_interval', '5', false),"
    " set_config('tcp_keepalives_count', '4', false)"
)
"""Server-side counterpart: locks held by a lost or stopped process expire after a minute."""


def refuse_other_text(live: Connection[Any], what: str) -> None:
    """Reject a database not encoded in UTF-8, such as SQL_ASCII, which returns bytes for text."""
    encoding = live.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InputError(
            f"{what} uses the encoding {encoding}, but SAGE requires UTF8; create another "
            "database: createdb --encoding UTF8 --template template0 NAME"
        )
