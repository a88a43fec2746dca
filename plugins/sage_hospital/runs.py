"""Table of runs, with each run's owner, state, and lease of the process working on it."""

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
from sage_hospital.database import Database, Execute, open_database

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
"""Number of worker deaths or faults in a step before the run counts as failed."""


class KnownRun(Strict):
    """A row in the table of runs; times are seconds since 1970, by the database's clock.

    `pooled` runs are for workers; others belong to the process that started them. `answer` is
    a person's decision until a worker has used it.
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
    """Return a unique name for this process."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"


class Runs:
    """Table of runs stored in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def add(self, manifest: Manifest, owner: str) -> None:
        """Queue a run; a run that is already in the table is left unchanged."""
        self.database.transaction(
            lambda execute: _insert(execute, manifest, owner, "queued", pooled=True)
        )

    def claim(self, worker: str, lease_s: float) -> KnownRun | None:
        """Claim the oldest run that is queued or whose lease expired; None if there is none.

        A worker has only one run at a time, so a repeated call returns the same run.
        """

        def body(execute: Execute) -> list[dict[str, Any]]:
            died = f"its worker died {ATTEMPTS} times; it may need more memory than available"
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
        """Claim a given run, queued or new to the table, for this process.

        Parameters
        ----------
        owner : used if the run is new to the table
        lease_s : seconds until others may take it over, unless renewed

        Raises
        ------
        InputError
            If another process is working on the run.
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
                f"run {manifest.id} is in use by "
                f"{(known.worker if known else 'another process')}; wait until it ends, or stop "
                "it"
            )
        return _row(found[0])

    def renew(self, run_id: str, worker: str, lease_s: float) -> bool:
        """Renew a lease; return False if the run no longer belongs to this worker."""
        return bool(
            self.database.run(
                "UPDATE sage_runs SET leased_until = {now} + ? WHERE id = ? AND worker = ?"
                " AND state = 'running' RETURNING id",
                [lease_s, run_id, worker],
            )
        )

    def reset_attempts(self, run_id: str, worker: str) -> None:
        """Reset the number of attempts after a finished step."""
        self.database.run(
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
        """Release a run with its new state; do nothing if it now belongs to another worker.

        Parameters
        ----------
        state : "queued" puts it back
        problem : reason for a failure
        delay_s : seconds until it may be claimed again; 0 also resets the attempts
        answered : whether a person's answer was used
        """
        self.database.run(
            "UPDATE sage_runs SET state = ?, problem = ?, worker = '', leased_until = 0,"
            " not_before = {now} + ?, updated = {now}, answer = CASE WHEN ? = 1 THEN ''"
            " ELSE answer END, attempts = CASE WHEN ? = 1 THEN attempts ELSE 0 END"
            " WHERE id = ? AND worker = ? RETURNING id",
            [state, problem[:1000], delay_s, int(answered), int(delay_s > 0), run_id, worker],
        )

    def answer(self, manifest: Manifest, owner: str, answer: dict[str, Any]) -> None:
        """Queue a run that waited for a person, together with the person's decision.

        Raises
        ------
        InputError
            If a process is working on the run, or an earlier decision is waiting for a worker.
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
                f"run {manifest.id} already has a decision and is waiting for a worker"
                if decided
                else f"run {manifest.id} is already in progress"
            )

    def get(self, run_id: str) -> KnownRun | None:
        """Look up a run by its identity; None if unknown."""
        found = self.database.run("SELECT * FROM sage_runs WHERE id = ?", [run_id])
        return _row(found[0]) if found else None

    def newest(self, limit: int) -> list[KnownRun]:
        """List the `limit` most recent runs, newest first."""
        text = "SELECT * FROM sage_runs ORDER BY created DESC, id LIMIT ?"
        return [_row(row) for row in self.database.run(text, [limit])]

    def folders(self) -> list[str]:
        """List the folders of all runs in the table."""
        return [row["folder"] for row in self.database.run("SELECT folder FROM sage_runs")]

    def count_active(self) -> int:
        """Count the runs that are queued or claimed by workers."""
        text = (
            "SELECT COUNT(*) AS n FROM sage_runs WHERE pooled = 1 AND state IN ('queued','running')"
        )
        return int(self.database.run(text)[0]["n"])

    def count_states(self) -> dict[str, int]:
        """Count the runs in each state."""
        found = self.database.run("SELECT state, COUNT(*) AS n FROM sage_runs GROUP BY state")
        return {row["state"]: int(row["n"]) for row in found}


def list_owned(execute: Execute, owner: str, within_s: float) -> list[KnownRun]:
    """List a person's runs from the last `within_s` seconds.

    A run without a worker counts as stopped once its lease has expired.
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
    """Open the table of runs; None if there is no database and `new` is false."""
    with open_database(settings, TABLES, new=new) as database:
        yield Runs(database) if database is not None else None
