"""Checks for a multi-user server (`sage hospital check`)."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from typing import Literal

from sage.cli.doctor import Check
from sage.core import clock
from sage.core.errors import InputError, SageError
from sage.core.extras import absent, install
from sage.core.printable import count_noun
from sage.run.folder import list_runs
from sage.settings import Settings, config_file
from sage_hospital.audit import open_audit
from sage_hospital.runs import open_runs

ROOM = 20 << 30
"""Minimum free space where runs are written, in bytes."""
OFF_S = 30.0
"""Maximum difference between this machine's clock and the database's, in seconds."""


def check_deployment(settings: Settings) -> list[Check]:
    """Run all checks; a check that cannot run counts as failed."""
    found = []
    for what, check in CHECKS.items():
        try:
            found += list(check(settings))
        except (SageError, OSError) as error:
            asked = settings.checkpoint_url is not None and isinstance(error, SageError)
            remedy = (
                "start the server, or correct checkpoint_url" if asked
                else "make sure that this user can write to runs_dir"
            )  # fmt: skip
            found.append(Check(what=what, state="broken", found=str(error), remedy=remedy))
    return found


def _check(what: str, good: bool, found: str, remedy: str = "", *, needed: bool = True) -> Check:
    state: Literal["ok", "missing", "broken"] = "ok" if good else "broken" if needed else "missing"
    return Check(what=what, state=state, found=found, remedy="" if good else remedy)


def _database(settings: Settings) -> Iterator[Check]:
    what = "database of runs"
    if settings.checkpoint_url is None:
        yield _check(what, False, "SQLite files, for a single machine", "set checkpoint_url to "
                     "postgresql://… for several machines and to recover broken connections",
                     needed=False)  # fmt: skip
        return
    if gone := absent("postgres"):
        yield _check(what, False, f"absent: {', '.join(gone)}", install("postgres"))
        return
    with open_runs(settings, new=True) as runs:
        assert runs is not None
        (row,) = runs.database.run("SELECT {now} AS now, version() AS version")
    off = abs(clock.seconds() - float(row["now"]))
    yield _check(what, True, " ".join(str(row["version"]).split()[:2]))
    yield _check(
        "clock",
        off < OFF_S,
        f"{off:.1f} s apart from the database's clock",
        "synchronize both with NTP",
    )


def _queue(settings: Settings) -> Iterator[Check]:
    with open_runs(settings) as runs:
        if runs is None:
            yield _check("queue of runs", True, "none; `sage run --queue` adds runs")
            return
        counts = runs.count_states()
        late = runs.database.run(
            "SELECT COUNT(*) AS n FROM sage_runs WHERE pooled = 1 AND ((state = 'queued' AND"
            " updated < {now} - 900 AND not_before < {now}) OR (state = 'running' AND"
            " leased_until < {now} - 900))"
        )[0]["n"]
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "empty"
    yield _check(
        "queue of runs",
        not late,
        states,
        f"{count_noun(late, 'run')} waiting for over 15 minutes: start `sage hospital worker`",
    )


def _ledger(settings: Settings) -> Iterator[Check]:
    shared = "://" in settings.ledger.place
    yield _check("ledger for all", shared, settings.ledger.shown, "a file serves a single "
                 "user; set [ledger] url to postgresql://… to count the claims of several people "
                 "on the same patients together", needed=False)  # fmt: skip


def _audit(settings: Settings) -> Iterator[Check]:
    with open_audit(settings) as audit:
        problem = audit.find_problem() if audit is not None else ""
        rows = len(audit.rows()) if audit is not None else 0
    yield _check("audit log", not problem, problem or f"{count_noun(rows, 'row')}, whole",
                 "restore it from a backup")  # fmt: skip


def _storage(settings: Settings) -> Iterator[Check]:
    import fcntl

    runs = settings.runs_dir.resolve()
    runs.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=runs, prefix=".doctor-") as file:
        file.write(b"x")
        os.fsync(file.fileno())
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    free = shutil.disk_usage(runs).free
    yield _check("folder of runs", free > ROOM, f"{runs}: {free / 2**30:.0f} GiB free, "
                 "writable and lockable", f"free at least {ROOM >> 30} GiB",
                 needed=free < 1 << 30)  # fmt: skip


def _runs(settings: Settings) -> Iterator[Check]:
    runs, problems = list_runs(settings.runs_dir), []
    for run in runs:
        try:
            run.manifest()
        except InputError as error:
            problems.append(str(error))
    unreadable = f", of which {len(problems)} cannot be read: {problems[0]}" if problems else ""
    yield _check("manifests of runs", not problems, count_noun(len(runs), "run") + unreadable,
                 "restore it, or move its folder out of runs_dir; lists skip it")  # fmt: skip


def _secrets(settings: Settings) -> Iterator[Check]:
    path = config_file()
    if not path.is_file():
        yield _check(
            "settings with secrets", True, f"{path} (not found); environment variables are used"
        )
        return
    secret = any(word in path.read_text(encoding="utf-8") for word in ("api_key", "_key", "://"))
    open_to_all = bool(path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))
    yield _check("settings with secrets", not (secret and open_to_all), str(path),
                 f"other users can read it: chmod 640 {path}")  # fmt: skip


def _user(settings: Settings) -> Iterator[Check]:
    name = "root" if os.geteuid() == 0 else str(os.geteuid())
    yield _check("user", os.geteuid() != 0, f"runs as {name}", "run the server as a separate user",
                 needed=False)  # fmt: skip


CHECKS = {
    "database of runs": _database,
    "queue of runs": _queue,
    "ledger for all": _ledger,
    "audit log": _audit,
    "folder of runs": _storage,
    "manifests of runs": _runs,
    "settings with secrets": _secrets,
    "user": _user,
}
"""Check functions by subject, in report order."""
