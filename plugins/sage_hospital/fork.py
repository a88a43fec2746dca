"""Copying a run's checkpoints in a shared database to a separate thread for a copied run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

TABLES = ("checkpoints", "checkpoint_blobs", "checkpoint_writes")
UP_TO = {
    "checkpoints": "checkpoint_id <= %(last)s",
    "checkpoint_blobs": "true",
    # What the first run was answered after the copy was made is not the copy's: of a task that
    # waits in the last checkpoint, only that it waits; of the answer itself, nothing.
    "checkpoint_writes": """checkpoint_id <= %(last)s AND (channel = '__interrupt__'
        OR checkpoint_id < (SELECT max(checkpoint_id) FROM checkpoints AS kept
            WHERE kept.thread_id = %(thread)s AND kept.checkpoint_ns = given.checkpoint_ns
            AND kept.checkpoint_id <= %(last)s)
        OR (channel <> '__resume__' AND NOT EXISTS (SELECT 1 FROM checkpoint_writes AS waits
            WHERE waits.thread_id = %(thread)s AND waits.channel = '__interrupt__'
            AND waits.checkpoint_ns = given.checkpoint_ns
            AND waits.checkpoint_id = given.checkpoint_id
            AND waits.task_id = given.task_id)))""",
}


def fork(live: Connection[Any], thread: str, into: str, last: str) -> None:
    """Give a copied run its own checkpoints, as of the original's last wait for a person.

    Parameters
    ----------
    live : an open connection to the checkpoint database
    thread : thread of the original run, whose rows are only read
    into : thread of the copy; if it already has checkpoints, nothing is done
    last : the newest checkpoint known to the copied folder; "" if the run never waited, so
        that the copy starts over
    """
    given: dict[str, Any] = {"thread": thread, "into": into, "last": last}
    with live.transaction(), live.cursor() as cursor:
        cursor.execute("SELECT 1 FROM checkpoints WHERE thread_id = %(into)s LIMIT 1", given)
        if cursor.fetchone() is not None or not last:
            return
        for table in TABLES:
            cursor.execute(f"SELECT * FROM {table} LIMIT 0")  # noqa: S608 (a name of ours)
            columns = [column.name for column in cursor.description or ()]
            values = ", ".join(
                "%(into)s" if column == "thread_id" else column for column in columns
            )
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {table} AS given"  # noqa: S608
                f" WHERE thread_id = %(thread)s AND {UP_TO[table]} ON CONFLICT DO NOTHING",
                given,
            )
