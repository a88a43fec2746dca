"""The table of runs: owner, state, and the lease of whoever works on each."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from sage.core.models import Strict
from sage.run.folder import Manifest, RunStatus
from sage.run.queue.database import Database, Execute, open_database

if TYPE_CHECKING:
    from sage.settings import Settings

TABLES = """
CREATE TABLE IF NOT EXISTS sage_runs (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, folder TEXT NOT NULL, owner TEXT NOT NULL,
  prompt TEXT NOT NULL, state TEXT NOT NULL, pooled INTEGER NOT NULL, worker TEXT NOT NULL,
  leased_until DOUBLE PRECISION NOT NULL, not_before DOUBLE PRECISION NOT NULL,
  attempts INTEGER NOT NULL, answer TEXT NOT NULL, problem TEXT NOT NULL,
  created DOUBLE PRECISION NOT NULL, updated DOUBLE PRECISION NOT NULL);
CREATE INDEX IF NOT EXISTS sage_runs_state ON sage_runs (state, created)
"""
ATTEMPTS = 5
"""So often a worker may die over one step, or find a fault, before the run counts as failed."""


class KnownRun(Strict):
    """A row of the table. Times are seconds since 1970, by the database's clock.

    `pooled` runs are for workers; others are worked on by who started them. `answer` is what a
    person decided at a checkpoint, until a worker took it on.
    """

    id: str
    name: str
    folder: str
    owner: str
    prompt: str
    state: RunStatus
    pooled: bool
    worker: str
    leased_until: float
    not_before: float
    attempts: int
    answer: dict[str, Any] | None
    problem: str
    created: float
    updated: float


def _row(values: dict[str, Any]) -> KnownRun:
    answer = json.loads(values["answer"]) if values["answer"] else None
    return KnownRun.model_validate({**values, "answer": answer, "pooled": bool(values["pooled"])})


def this_worker() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


class Runs:
    """The runs that a database knows."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def add(self, manifest: Manifest, owner: str) -> None:
        """Put a run in the queue; one that is there already stays as it is."""
        self.database.transaction(
            lambda execute: _insert(execute, manifest, owner, "queued", pooled=True)
        )

    def claim(self, worker: str, lease_s: float) -> KnownRun | None:
        """The oldest run that waits, or whose worker's lease ended, now this worker's; or None.

        A worker has one run at a time: asked again, it gets the one that it has.
        """

        def body(execute: Execute) -> list[dict[str, Any]]:
            died = f"its worker died {ATTEMPTS} times; it may need more memory than there is"
            execute(
                "UPDATE sage_runs SET state = 'failed', worker = '', updated = {now}, problem = ?"
                " WHERE pooled = 1 AND state = 'running' AND leased_until < {now}"
                " AND attempts >= ?",
                [died, ATTEMPTS],
            )
            return execute(
                "UPDATE sage_runs SET state = 'running', worker = ?, leased_until = {now} + ?,"
                " attempts = attempts + 1, updated = {now} WHERE id = (SELECT id FROM sage_runs"
                " WHERE pooled = 1 AND ((state = 'queued' AND not_before <= {now}) OR (state ="
                " 'running' AND (worker = ? OR leased_until < {now})))"
                " ORDER BY CASE WHEN worker = ? THEN 0 ELSE 1 END, created, id LIMIT 1 {skip})"
                " RETURNING *",
                [worker, lease_s, worker, worker],
            )

        found = self.database.transaction(body)
        return _row(found[0]) if found else None

    def take(self, manifest: Manifest, owner: str, worker: str, lease_s: float) -> KnownRun:
        """Have this process work on one run, whether it waits or is new to the table.

        Parameters
        ----------
        manifest : of the run
        owner : whose it is, where the table does not know it yet
        worker : this process
        lease_s : seconds until another may take it over, unless renewed

        Raises
        ------
        InputError
            If another works on it.
        """

        def body(execute: Execute) -> list[dict[str, Any]]:
            _insert(execute, manifest, owner, "stopped", pooled=False)
            return execute(
                "UPDATE sage_runs SET state = 'running', worker = ?, leased_until = {now} + ?,"
                " folder = ?, name = ?, problem = '', updated = {now} WHERE id = ?"
                " AND (state <> 'running' OR worker = ? OR leased_until < {now}) RETURNING *",
                [worker, lease_s, manifest.place, manifest.id, manifest.run_id, worker],
            )

        found = self.database.transaction(body)
        if not found:
            known = self.get(manifest.run_id)
            raise InputError(
                f"run {manifest.id} is worked on by {known.worker if known else 'another process'};"
                " wait until it ends, or stop it"
            )
        return _row(found[0])

    def renew(self, run_id: str, worker: str, lease_s: float) -> bool:
        """Keep a run for longer; False where it is no longer this worker's."""
        return bool(
            self.database.one(
                "UPDATE sage_runs SET leased_until = {now} + ? WHERE id = ? AND worker = ?"
                " AND state = 'running' RETURNING id",
                [lease_s, run_id, worker],
            )
        )

    def progressed(self, run_id: str, worker: str) -> None:
        """A step ended: what happened before does not count against the next one."""
        self.database.one(
            "UPDATE sage_runs SET attempts = 1, updated = {now} WHERE id = ? AND worker = ?"
            " RETURNING id",
            [run_id, worker],
        )

    def settle(
        self,
        run_id: str,
        worker: str,
        state: RunStatus,
        problem: str = "",
        *,
        delay_s: float = 0.0,
        answered: bool = True,
    ) -> None:
        """Say how a run stands that this worker lets go; nothing where it is another's by now.

        Parameters
        ----------
        run_id, worker : which run, held by whom
        state : "queued" puts it back
        problem : why, where it failed
        delay_s : seconds until somebody may claim it again; 0 also forgets how often it was tried
        answered : whether a person's answer was taken on
        """
        self.database.one(
            "UPDATE sage_runs SET state = ?, problem = ?, worker = '', leased_until = 0,"
            " not_before = {now} + ?, updated = {now}, answer = CASE WHEN ? = 1 THEN ''"
            " ELSE answer END, attempts = CASE WHEN ? = 1 THEN attempts ELSE 0 END"
            " WHERE id = ? AND worker = ? RETURNING id",
            [state, problem[:1000], delay_s, int(answered), int(delay_s > 0), run_id, worker],
        )

    def answer(self, manifest: Manifest, owner: str, answer: dict[str, Any]) -> None:
        """Queue a run that waited for a person, with what the person decided.

        Raises
        ------
        InputError
            If somebody works on it, or a decision waits for a worker already.
        """

        def body(execute: Execute) -> list[dict[str, Any]]:
            _insert(execute, manifest, owner, "stopped", pooled=True)
            return execute(
                "UPDATE sage_runs SET state = 'queued', pooled = 1, worker = '', not_before = 0,"
                " attempts = 0, updated = {now}, answer = ?, folder = ?, name = ? WHERE id = ?"
                " AND (state <> 'running' OR leased_until < {now})"
                " AND (state <> 'queued' OR answer = '') RETURNING id",
                [json.dumps(answer), manifest.place, manifest.id, manifest.run_id],
            )

        if not self.database.transaction(body):
            known = self.get(manifest.run_id)
            decided = known is not None and known.state == "queued"
            raise InputError(
                f"run {manifest.id} was decided on already, and waits for a worker"
                if decided
                else f"run {manifest.id} is being worked on already"
            )

    def get(self, run_id: str) -> KnownRun | None:
        """A run by its identity."""
        found = self.database.one("SELECT * FROM sage_runs WHERE id = ?", [run_id])
        return _row(found[0]) if found else None

    def newest(self, limit: int) -> list[KnownRun]:
        """The runs that were queued or begun last, newest first."""
        text = "SELECT * FROM sage_runs ORDER BY created DESC, id LIMIT ?"
        return [_row(row) for row in self.database.one(text, [limit])]

    def folders(self) -> list[str]:
        """Folders of all runs."""
        return [row["folder"] for row in self.database.one("SELECT folder FROM sage_runs")]

    def under_way(self) -> int:
        """Count runs that wait for a worker or are held by one."""
        text = (
            "SELECT COUNT(*) AS n FROM sage_runs WHERE pooled = 1 AND state IN ('queued','running')"
        )
        return int(self.database.one(text)[0]["n"])

    def counts(self) -> dict[str, int]:
        """Count runs by state."""
        found = self.database.one("SELECT state, COUNT(*) AS n FROM sage_runs GROUP BY state")
        return {row["state"]: int(row["n"]) for row in found}


def of_owner(execute: Execute, owner: str, within_s: float) -> list[KnownRun]:
    """A person's runs that were begun within so many seconds.

    One that no worker takes over is stopped where the lease of who worked on it ended.
    """
    (clock,) = execute("SELECT {now} AS now")
    text = "SELECT * FROM sage_runs WHERE owner = ? AND created >= {now} - ?"
    found = [_row(row) for row in execute(text, [owner, within_s])]
    return [
        run.model_copy(update={"state": "stopped"})
        if run.state == "running" and not run.pooled and run.leased_until < clock["now"]
        else run
        for run in found
    ]


def _insert(
    execute: Execute, manifest: Manifest, owner: str, state: RunStatus, *, pooled: bool
) -> None:
    prompt = manifest.spec.prompt
    execute(
        "INSERT INTO sage_runs (id, name, folder, owner, prompt, state, pooled, worker,"
        " leased_until, not_before, attempts, answer, problem, created, updated) VALUES"
        " (?, ?, ?, ?, ?, ?, ?, '', 0, 0, 0, '', '', {now}, {now}) ON CONFLICT (id) DO NOTHING",
        [
            manifest.run_id,
            manifest.id,
            manifest.place,
            owner,
            prompt,
            state,
            int(pooled),
        ],
    )


@contextmanager
def open_runs(settings: Settings, *, new: bool = False) -> Iterator[Runs | None]:
    """The runs of the settings' database; None where there is none and no `new` one is wanted."""
    with open_database(settings, TABLES, new=new) as database:
        yield Runs(database) if database is not None else None
