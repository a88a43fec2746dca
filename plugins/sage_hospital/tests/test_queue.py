"""The table of runs, on SQLite and on a PostgreSQL server alike."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sage.cli.app import app
from sage.core.errors import InputError
from sage.run.folder import Manifest
from sage.run.spec import RunSpec
from sage.settings import Settings
from sage_hospital.lease import LOST
from sage_hospital.runs import ATTEMPTS, Runs, open_runs
from tests.end_to_end.harness import environment
from tests.postgres import NEEDED, Line, server

LONG = 600.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """One server for the tests of this file."""
    with server() as found:
        yield found


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=NEEDED)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings of either kind, with an empty table."""
    if request.param == "sqlite":
        return Settings(runs_dir=tmp_path)
    from psycopg import connect

    address = request.getfixturevalue("url")
    with connect(address) as live:
        live.execute("DROP TABLE IF EXISTS sage_runs")
    return Settings.model_validate({"runs_dir": tmp_path, "checkpoint_url": address})


@pytest.fixture
def runs(settings: Settings) -> Iterator[Runs]:
    """The table."""
    with open_runs(settings, new=True) as found:
        assert found is not None
        yield found


def manifest(number: int) -> Manifest:
    """A run of the queue."""
    return Manifest(
        id=f"run-{number}", run_id=f"id-{number:03d}", place=f"/runs/run-{number}",
        spec=RunSpec(prompt="Does it matter?"), created="", reasoner="rules",
    )  # fmt: skip


def test_workers_that_ask_at_once_share_the_runs_without_one_getting_another_s(
    settings: Settings, runs: Runs
) -> None:
    for number in range(20):
        runs.add(manifest(number), "ann")
    got: list[str] = []

    def work(name: str) -> None:
        with open_runs(settings) as mine:
            assert mine is not None
            while (run := mine.claim(name, LONG)) is not None:
                got.append(run.id)
                mine.settle(run.id, name, "finished")

    workers = [threading.Thread(target=work, args=(f"worker-{at}",)) for at in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(got) == [f"id-{number:03d}" for number in range(20)]
    assert runs.count_states() == {"finished": 20}


def test_a_run_is_taken_over_when_its_lease_ends_and_not_before(runs: Runs) -> None:
    runs.add(manifest(1), "ann")
    first = runs.claim("dead", 0.4)
    assert first is not None
    assert runs.claim("other", LONG) is None
    time.sleep(0.5)
    taken = runs.claim("other", LONG)
    assert taken is not None
    assert (taken.id, taken.worker, taken.attempts) == (first.id, "other", 2)
    # Who lost it can neither keep it nor say how it ended.
    assert not runs.renew(first.id, "dead", LONG)
    runs.settle(first.id, "dead", "failed", "late")
    assert runs.count_states() == {"running": 1}
    assert runs.renew(first.id, "other", LONG)


def test_a_worker_whose_answer_was_lost_gets_the_run_that_it_has(runs: Runs) -> None:
    for number in (1, 2):
        runs.add(manifest(number), "ann")
    first, again = runs.claim("worker", LONG), runs.claim("worker", LONG)
    assert first is not None
    assert again is not None
    assert first.id == again.id


def test_a_run_that_kills_its_workers_at_the_same_step_fails_in_the_end(runs: Runs) -> None:
    runs.add(manifest(1), "ann")
    for attempt in range(ATTEMPTS):
        assert runs.claim(f"worker-{attempt}", 0.0) is not None
        time.sleep(0.01)
    assert runs.claim("last", LONG) is None
    known = runs.get("id-001")
    assert known is not None
    assert known.state == "failed"
    assert "died" in known.problem


def test_a_step_that_ended_forgets_the_workers_that_died_before(runs: Runs) -> None:
    runs.add(manifest(1), "ann")
    for attempt in range(3 * ATTEMPTS):
        assert runs.claim(f"worker-{attempt}", 0.0) is not None
        runs.reset_attempts("id-001", f"worker-{attempt}")
        time.sleep(0.01)
    assert runs.count_states() == {"running": 1}


def test_a_run_of_a_person_at_the_shell_is_listed_and_never_claimed(runs: Runs) -> None:
    runs.take(manifest(1), "ann", "shell", 0.0)
    time.sleep(0.01)
    assert runs.claim("worker", LONG) is None
    runs.take(manifest(1), "ann", "another shell", LONG)
    with pytest.raises(InputError, match="another shell"):
        runs.take(manifest(1), "ann", "shell", LONG)
    runs.settle("id-001", "another shell", "waiting for review")
    runs.answer(manifest(1), "bob", {"interrupt": {"decisions": []}})
    taken = runs.claim("worker", LONG)
    assert taken is not None
    assert (taken.owner, taken.answer) == ("ann", {"interrupt": {"decisions": []}})
    with pytest.raises(InputError, match="run-1"):
        runs.answer(manifest(1), "bob", {})


def test_a_run_put_back_after_a_fault_waits_before_it_is_claimed(runs: Runs) -> None:
    runs.add(manifest(1), "ann")
    assert runs.claim("worker", LONG) is not None
    runs.settle("id-001", "worker", "queued", "no disk", delay_s=0.4, answered=False)
    assert runs.claim("worker", LONG) is None
    time.sleep(0.5)
    taken = runs.claim("worker", LONG)
    assert taken is not None
    assert taken.attempts == 2


@pytest.mark.parametrize("settings", [pytest.param("postgres", marks=NEEDED)], indirect=True)
def test_a_connection_that_is_cut_comes_back(settings: Settings, runs: Runs, url: str) -> None:
    from psycopg import connect

    runs.add(manifest(1), "ann")
    with connect(url, autocommit=True) as live:
        live.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
    assert runs.claim("worker", LONG) is not None
    assert runs.count_states() == {"running": 1}


HOLDER = """
import sys, time
from sage_hospital.lease import renewing
from sage_hospital.runs import open_runs
from sage.settings import Settings
from sage_hospital.tests.test_queue import manifest

settings = Settings.model_validate({"runs_dir": sys.argv[1], "checkpoint_url": sys.argv[2]})
with open_runs(settings, new=True) as runs:
    runs.take(manifest(1), "ann", "holder", 3.0)
    with renewing(runs, "id-001", "holder", 3.0):
        print("holds", flush=True)
        time.sleep(120)
"""


@pytest.mark.parametrize("settings", [pytest.param("postgres", marks=NEEDED)], indirect=True)
def test_who_cannot_reach_the_database_ends_when_the_lease_does(
    settings: Settings, runs: Runs, url: str, tmp_path: Path
) -> None:
    """Also where the network falls silent, so that no call of the database ends."""
    line = Line(url)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), line.url],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holds\n"
        time.sleep(4)
        assert holder.poll() is None  # it renews
        line.silent.set()
        said = holder.communicate(timeout=30)[1]
    finally:
        holder.kill()
        line.close()
    assert holder.returncode == LOST
    assert "another worker may have taken over the run" in said


def test_a_decision_that_waits_for_a_worker_is_not_replaced_by_the_next_person_s(
    runs: Runs,
) -> None:
    runs.take(manifest(1), "ann", "shell", LONG)
    runs.settle("id-001", "shell", "waiting for review")
    runs.answer(manifest(1), "ann", {"interrupt": {"decisions": ["approve"]}})
    with pytest.raises(InputError, match="run-1 already has a decision"):
        runs.answer(manifest(1), "bob", {"interrupt": {"decisions": ["reject"]}})
    taken = runs.claim("worker", LONG)
    assert taken is not None
    assert taken.answer == {"interrupt": {"decisions": ["approve"]}}


def test_an_answer_tells_where_the_run_lies_now(runs: Runs) -> None:
    runs.take(manifest(1), "ann", "shell", LONG)
    runs.settle("id-001", "shell", "waiting for review")
    moved = manifest(1).model_copy(update={"place": "/elsewhere/better-name", "id": "better-name"})
    runs.answer(moved, "ann", {"interrupt": {}})
    known = runs.get("id-001")
    assert known is not None
    assert (known.folder, known.name) == ("/elsewhere/better-name", "better-name")


def test_without_a_queue_nothing_is_made(tmp_path: Path) -> None:
    with open_runs(Settings(runs_dir=tmp_path / "runs")) as runs:
        assert runs is None
    assert not (tmp_path / "runs").exists()


def test_a_round_is_listed_with_its_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAGE_RUNS_DIR", str(tmp_path))
    with open_runs(Settings(runs_dir=tmp_path), new=True) as runs:
        assert runs is not None
        for number, campaign in enumerate(("tls-campaign", "fabp5-campaign")):
            of = {"id": "round-1", "place": f"/runs/{campaign}/round-1"}
            runs.add(manifest(number).model_copy(update=of), "ann")
    listed = CliRunner().invoke(app, ["hospital", "queue"]).output
    assert "round-1 of tls-campaign " in listed and "round-1 of fabp5-campaign " in listed
