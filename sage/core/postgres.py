"""A PostgreSQL database that many processes share: options of its connections, and its encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError

if TYPE_CHECKING:
    from psycopg import Connection

WAITING_S = 10.0
"""How long a connection may take to be made."""
KEPT_ALIVE: dict[str, Any] = {
    "connect_timeout": int(WAITING_S),
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 40_000,
}
"""Of a connection, as libpq names them: a server that went away without a word is noticed within a
minute, not within the hours of the system's own limits."""
ABANDONED = (
    "SELECT set_config('idle_in_transaction_session_timeout', '60s', false),"
    " set_config('tcp_keepalives_idle', '20', false),"
    " set_config('tcp_keepalives_interval', '5', false),"
    " set_config('tcp_keepalives_count', '4', false)"
)
"""The same for the server: what a lost or stopped process had locked is free after a minute."""


def refuse_other_text(live: Connection[Any], what: str) -> None:
    """Refuse a database that cannot keep every letter: SQL_ASCII gives bytes back for text."""
    encoding = live.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InputError(
            f"{what} keeps text as {encoding}, and SAGE needs UTF8; make another database:"
            " createdb --encoding UTF8 --template template0 NAME"
        )
