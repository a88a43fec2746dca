"""Checkpoints of a run, stored in SQLite in its folder or in a plugin's database."""

from __future__ import annotations

import enum
import importlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from sage.core.errors import FaultError, InputError
from sage.core.hooks import require_hooks
from sage.run.folder import Manifest

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from sage.run.services import Services

UNUSABLE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
}  # fmt: skip
"""Errors from a disk or another process, after which a file is still intact."""
MODULES = (
    "agents.feasibility.types",
    "agents.interpreter.agent",
    "agents.question.types",
    "agents.summary.agent",
    "agents.core.types",
    "agents.core.words",
    "agents.findings.types",
    "agents.expansion.agent",
    "kg.types",
    "sage.run.state",
    "validation.core.hypothesis",
    "validation.core.dictionary",
)


@lru_cache(maxsize=1)
def allowed() -> tuple[tuple[str, str], ...]:
    """List (module, class) for every model and enum that a checkpoint may contain."""
    found = set()
    for name in MODULES:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, type) and issubclass(value, BaseModel | enum.Enum):
                found.add((value.__module__, value.__name__))
    return tuple(sorted(found))


def serializer() -> JsonPlusSerializer:
    """Make a msgpack serializer, without pickle, that accepts only SAGE's own types."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    return JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=allowed())


@contextmanager
def checkpointer(services: Services) -> Iterator[BaseCheckpointSaver[Any]]:
    """Open the checkpoints in the run folder (SQLite), or a plugin's if the settings give a URL."""
    url = services.settings.checkpoint_url
    if url is None:
        from langgraph.checkpoint.sqlite import SqliteSaver

        path = services.folder.checkpoints
        emptied = path.exists() and not path.stat().st_size and services.folder.events()
        connection = sqlite3.connect(path, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous=FULL")
            if emptied or connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("the contents differ from what was written")
            _rename_thread(connection, services.manifest)
            yield SqliteSaver(connection, serde=serializer())
        except sqlite3.DatabaseError as error:
            if "full" in str(error):
                raise FaultError(
                    f"no space left on the disk ({path}); free some space, then run `sage resume "
                    "RUN`"
                ) from None
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in UNUSABLE:
                raise FaultError(
                    f"{path} cannot be used now ({error}), but is not damaged. End the "
                    "process that has it open, or make it writable, then run `sage "
                    "resume RUN`"
                ) from None
            raise InputError(
                f"{path} is damaged ({error}). Restore it from a backup, or remove it; `sage "
                "resume` then starts the run again and keeps the model's replies"
            ) from None
        finally:
            connection.close()
        return
    own = services.folder.checkpoints
    hooks = require_hooks("checkpoint_url")
    with hooks.open_checkpoints(url.get_secret_value(), serializer(), services.manifest) as saver:
        thread: Any = {"configurable": {"thread_id": services.manifest.thread}}
        if own.exists() and saver.get_tuple(thread) is None:  # else it would begin anew
            raise InputError(
                f"the run's checkpoints are in {own}, not in the database; continue with "
                "SAGE_CHECKPOINT_URL= (empty), or start a new run"
            )
        yield saver


def _rename_thread(connection: sqlite3.Connection, manifest: Manifest) -> None:
    """In a copied run's checkpoint file, rename the original's thread to the copy's.

    A finished run does not continue, and its checkpoints are recorded as they are.
    """
    if manifest.status == "finished":
        return
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for table in ("checkpoints", "writes"):
        if manifest.copied_thread and (table,) in tables:
            connection.execute(
                f"UPDATE {table} SET thread_id = ? WHERE thread_id = ?",  # noqa: S608
                (manifest.thread, manifest.copied_thread),
            )
    connection.commit()
