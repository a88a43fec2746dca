"""Drives a run's state machine: start, go on after a checkpoint, go on after a kill."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sage.core import clock
from sage.core.errors import FaultError, InputError
from sage.core.extras import need
from sage.core.files import read_json
from sage.machine.asking import ask_question
from sage.machine.fork import fork
from sage.machine.state import Decision, ReviewAnswer
from sage.questions import Corrections, refuse
from sage.runfolder import Manifest, RunFolder

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from sage.machine.services import Services


@dataclass(frozen=True)
class Pause:
    """A checkpoint that waits for a person: review of hypotheses, or an escalated analysis."""

    kind: Literal["review", "escalation"]
    waiting: tuple[str, ...]
    interrupts: tuple[str, ...]


@contextmanager
def checkpointer(services: Services) -> Iterator[BaseCheckpointSaver[Any]]:
    """SQLite in the run folder, or Postgres where settings give a URL."""
    from sage.machine.serde import serializer

    url = services.settings.checkpoint_url
    if url is None:
        from langgraph.checkpoint.sqlite import SqliteSaver

        path = services.folder.checkpoints
        emptied = path.exists() and not path.stat().st_size and services.folder.events()
        connection = sqlite3.connect(path, check_same_thread=False)
        try:
            connection.execute("PRAGMA synchronous=FULL")
            if emptied or connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("it does not hold what was written")
            _rename_thread(connection, services.manifest)
            yield SqliteSaver(connection, serde=serializer())
        except sqlite3.DatabaseError as error:
            if "full" in str(error):
                raise FaultError(
                    f"no space left on the disk ({path}); free some, then `sage resume RUN`"
                ) from None
            raise InputError(
                f"{path} is damaged ({error}). Restore it from a backup; or remove it, and"
                " `sage resume` begins the run again, with the model's replies kept"
            ) from None
        finally:
            connection.close()
        return
    need("postgres", "checkpoint_url")
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg import Connection, OperationalError
    from psycopg.rows import dict_row

    try:
        with Connection.connect(
            url.get_secret_value(), autocommit=True, prepare_threshold=0, row_factory=dict_row
        ) as live:
            saver = PostgresSaver(live, serde=serializer())
            saver.setup()
            manifest = services.manifest
            if manifest.copied_thread:
                fork(live, manifest.copied_thread, manifest.thread, manifest.checkpoint)
            yield saver
    except OperationalError as error:
        reason = str(error).splitlines()[0]
        raise FaultError(f"the checkpoint database cannot be reached: {reason}") from None


def _rename_thread(connection: sqlite3.Connection, manifest: Manifest) -> None:
    """In a copied run's own file, the copied thread is the copy's."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for table in ("checkpoints", "writes"):
        if manifest.copied_thread and (table,) in tables:
            connection.execute(
                f"UPDATE {table} SET thread_id = ? WHERE thread_id = ?",  # noqa: S608
                (manifest.thread, manifest.copied_thread),
            )
    connection.commit()


def advance(services: Services, answer: dict[str, Any] | None = None) -> Pause | None:
    """Run until the next checkpoint for a person, or the end (None).

    `answer` maps interrupt ids to the values they waited for. Called without one, a run goes on
    from its last checkpoint; finished nodes do not run again.
    """
    from langgraph.types import Command

    from sage.machine.graph import build

    folder = services.folder
    folder.update(status="running", problem=None)
    with checkpointer(services) as saver:
        machine = build(services).compile(checkpointer=saver)
        config: Any = {
            "configurable": {"thread_id": services.manifest.thread},
            "max_concurrency": 1 if services.manifest.reasoner == "rules" else 4,
            "recursion_limit": 200,
        }
        snapshot = machine.get_state(config)
        begin: Any
        if answer is not None:
            begin = Command(resume=answer)
        elif snapshot.created_at is None:
            if not folder.output(
                "question_contract"
            ).exists():  # stopped before its question was read
                refuse(ask_question(services, Corrections()))
            begin = {"prompt": services.manifest.prompt, "question": services.question}
        else:
            begin = None
        _trace_decisions(services, answer or {})
        try:
            machine.invoke(begin, config, durability="sync")
        except KeyboardInterrupt:
            folder.update(status="stopped")
            raise
        except Exception as error:
            if not isinstance(error, OSError):
                folder.update(status="failed", problem=str(error)[:1000])
            raise
        pause = _pause(machine.get_state(config))
        newest = next(saver.list({"configurable": {"thread_id": services.manifest.thread}}), None)
        if newest is not None:
            folder.update(checkpoint=newest.config["configurable"]["checkpoint_id"])
    if pause is None:
        folder.update(status="finished", finished=clock.stamp(), sealed=folder.record.head())
    else:
        status = "waiting for review" if pause.kind == "review" else "escalated"
        problem = escalation_detail(folder, pause.waiting) if pause.kind == "escalation" else None
        folder.update(status=status, problem=problem, sealed=folder.record.head())
    return pause


def _trace_decisions(services: Services, answer: dict[str, Any]) -> None:
    """What a person decided at a checkpoint is a turn of the trace like any other."""
    for value in answer.values():
        for decision in value.get("decisions", []):
            who = "passed without a person" if decision["automatic"] else decision["action"]
            comment = f": {decision['comment']}" if decision["comment"] else ""
            services.trace.human("review", who + comment, decision["hypothesis_id"], decision)
        if "action" in value:
            services.trace.human("escalation", value["action"], "", value)


def waiting(services: Services) -> Pause | None:
    """What the run waits for, without running anything."""
    from sage.machine.graph import build

    with checkpointer(services) as saver:
        machine = build(services).compile(checkpointer=saver)
        return _pause(machine.get_state({"configurable": {"thread_id": services.manifest.thread}}))


def _pause(snapshot: Any) -> Pause | None:
    interrupts = tuple(snapshot.interrupts)
    if not interrupts:
        return None
    first = interrupts[0].value
    if "escalated" in first:
        return Pause(
            kind="escalation",
            waiting=tuple(interrupt.value["escalated"] for interrupt in interrupts),
            interrupts=tuple(interrupt.id for interrupt in interrupts),
        )
    return Pause(
        kind="review",
        waiting=tuple(first["waiting"]),
        interrupts=tuple(interrupt.id for interrupt in interrupts),
    )


def review_answer(pause: Pause, decisions: tuple[Decision, ...]) -> dict[str, Any]:
    """The value that the review checkpoint waits for.

    Raises
    ------
    InputError
        If a decision is about a hypothesis that does not wait.
    """
    strange = [
        decision.hypothesis_id
        for decision in decisions
        if decision.hypothesis_id not in pause.waiting
    ]
    if strange:
        raise InputError(
            f"hypothesis {strange[0]} does not wait for review; waiting: {', '.join(pause.waiting)}"
        )
    answer = ReviewAnswer(decisions=decisions)
    return {pause.interrupts[0]: answer.model_dump(mode="json")}


def escalation_answer(pause: Pause, action: Literal["retry", "abandon"]) -> dict[str, Any]:
    """The value that every waiting escalation checkpoint gets."""
    return {interrupt: {"action": action} for interrupt in pause.interrupts}


def escalation_detail(folder: RunFolder, waiting_for: tuple[str, ...]) -> str:
    """Why the analyses that wait for a person failed, and which file to mend."""
    found = []
    for name in waiting_for:
        outcome = read_json(folder.output(f"coding-{name}"))["output"]
        found.append(f"{name}: {outcome['message']}")
    return " ".join(found)
