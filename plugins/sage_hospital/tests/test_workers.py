"""Runs begun at once, and runs that workers take from the queue, with a real PostgreSQL server."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import PROMPT, begin, events, sage
from tests.postgres import NEEDED, server
from tests.warm import Warm

pytestmark = NEEDED
CUT = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
ENDED = (
    "SELECT COUNT(*) FROM sage_runs WHERE name IN ('a', 'b', 'c')"
    " AND state IN ('finished', 'waiting for review')"
)
FINISHED = "SELECT COUNT(*) FROM sage_runs WHERE name IN ('a', 'b', 'c') AND state = 'finished'"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """One server for both tests, which share no run."""
    with server() as found:
        yield found


def test_runs_begun_at_once_share_graph_cohort_and_database(url: str, tmp_path: Path) -> None:
    given = {"SAGE_CHECKPOINT_URL": url, "SAGE_CACHE_DIR": str(tmp_path / "cache")}

    def finish(number: int) -> Any:
        out = str(tmp_path / f"run-{number}")
        return sage("run", PROMPT, "--out", out, "--json", cwd=tmp_path, **given)

    assert sage("show", cwd=tmp_path).code == 0  # the warm process is there, once for all threads
    with ThreadPoolExecutor(2) as threads:
        ended = list(threads.map(finish, range(2)))
    assert [item.err for item in ended if item.code] == []
    assert {item.json["status"] for item in ended} == {"waiting for review"}
    assert len(list((tmp_path / "cache/graphs").glob("corpus-*/report.json"))) == 1


def listed(cwd: Path, given: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What `sage show` says of the runs in this folder, by their names."""
    shown = sage("show", "--json", cwd=cwd, **given).json
    return {item["id"]: item for item in shown if item["id"] in ("a", "b", "c")}


def test_killed_workers_and_cut_connections_lose_no_run_and_no_row(
    url: str, tmp_path: Path
) -> None:
    from psycopg import connect

    given = {"SAGE_CHECKPOINT_URL": url, "SAGE_LEDGER": url}
    whole = {"a": 1, "b": 2}
    for name in ("a", "b", "c"):
        words = ["--auto-approve", f"--seed={whole[name]}"] if name in whole else []
        queued = sage("run", PROMPT, "--queue", "--json", "--out", str(tmp_path / "runs" / name),
                      *words, cwd=tmp_path, **given)  # fmt: skip
        assert queued.json["status"] == "queued", queued.err
    assert {item["status"] for item in listed(tmp_path, given).values()} == {"queued"}

    def worker() -> Warm:
        return begin("hospital", "worker", "--lease", "4", cwd=tmp_path, **given)

    workers = [worker(), worker()]
    try:
        until = time.monotonic() + 300

        def wait_for(what: str, seen: Any) -> None:
            while not seen():
                assert time.monotonic() < until, what
                time.sleep(0.2)

        log = tmp_path / "runs/a/events.jsonl"
        wait_for("the first run is computed", lambda: '"compute"' in log.read_text())
        queued = sage("hospital", "queue", "--json", cwd=tmp_path, **given).json
        holder = next(item["worker"] for item in queued if item["name"] == "a")
        dead = next(item for item in workers if f":{item.pid}:" in holder)
        dead.kill()
        dead.wait()
        workers.append(worker())
        with connect(url, autocommit=True) as live:
            live.execute(CUT)
            wait_for("every run ends", lambda: (live.execute(ENDED).fetchone() or [0])[0] == 3)
            answered = sage("review", str(tmp_path / "runs/c"), "--reject", "no", "--queue",
                            cwd=tmp_path, **given)  # fmt: skip
            assert answered.code == 0, answered.err
            wait_for("the answer", lambda: (live.execute(FINISHED).fetchone() or [0])[0] == 3)
            rows = live.execute("SELECT kind, contract, body FROM sage_ledger").fetchall()
        living = [item for item in workers if item.poll() is None]
        assert living
        for item in living:
            item.send_signal(signal.SIGTERM)
        assert {item.wait(60) for item in living} == {0}
    finally:
        for item in workers:
            item.kill()
    assert {item["status"] for item in listed(tmp_path, given).values()} == {"finished"}
    frozen = set()
    for name in ("a", "b", "c"):
        shown = events(tmp_path / "runs" / name)
        ended = Counter(
            (event["node"], event.get("hypothesis")) for event in shown if event["event"] == "end"
        )
        assert set(ended.values()) == {1}
        assert ("report", None) in ended
        frozen |= {event["sha256"] for event in shown if event["event"] == "frozen"}
    assert len(frozen) == 2
    registered = [contract for kind, contract, _ in rows if kind == "registration"]
    assert sorted(registered) == sorted(frozen)
    entries = Counter(
        (contract, json.loads(body)["test"]) for kind, contract, body in rows if kind == "entry"
    )
    assert set(entries.values()) == {1}
    tests = {contract: {name for at, name in entries if at == contract} for contract in frozen}
    assert len({frozenset(names) for names in tests.values()}) == 1
