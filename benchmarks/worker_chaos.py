"""Many runs by several workers, which are killed at random while connections are cut.

    python benchmarks/worker_chaos.py --runs 50 --workers 8 [--model]

A PostgreSQL server of its own holds the queue, the checkpoints and the ledger. Every run is a whole
one (rules reasoner, demonstration cohort) with its own seed, so that its contract is its own. At
the end it is counted which runs ended, how often each step did, and what the ledger holds.

With --model an endpoint of its own answers, a second after each request, what the recorded model
answered in the first round of data/recordings/gbsg2-campaign, and what was asked of it is counted
too: a reply that a run has kept may not be asked for again, whoever goes on with the run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.openai_server import Answer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PROMPT = "Link tertiary lymphoid structures and genes in bladder cancer"
RECORDED = ROOT / "data" / "recordings" / "gbsg2-campaign"
HASH = re.compile(r"\b[0-9a-f]{64}\b")


def recorded() -> Callable[[dict[str, Any]], Answer]:
    """Replies of the recording's first round: by schema, and by how many were given before."""
    from tests.openai_server import Answer

    replies: dict[str, list[str]] = {}
    for line in (RECORDED / "calls.jsonl").read_text(encoding="utf-8").splitlines():
        call = json.loads(line)
        text = (RECORDED / f"{call['key']}.reply.txt").read_text(encoding="utf-8")
        replies.setdefault(call["schema"], []).append(text)
        if call["schema"] == "Summary":
            break

    def answer(body: dict[str, Any]) -> Answer:
        texts = replies[body["response_format"]["json_schema"]["name"]]
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        text = texts[min(turn, len(texts) - 1)]
        asked = HASH.search(body["messages"][-1]["content"])
        if asked is not None:  # the hash of this run's contract
            text = HASH.sub(asked.group(), text)
        return Answer(content=text, silent=1.0)

    return answer


def queue(runs: int, place: Path, prompt: str, cohort: str) -> None:
    """Put the runs in."""
    from sage.control.people import owner
    from sage.control.runs import open_runs
    from sage.run.begin import Request, begin
    from sage.run.questions import Corrections
    from sage.settings import load

    settings = load()
    with open_runs(settings, new=True) as table:
        assert table is not None
        for seed in range(runs):
            request = Request(
                prompt=prompt, cohort=cohort, seed=seed, auto_approve=True,
                out=place / "runs" / f"run-{seed:03d}", corrections=Corrections(yes=True),
            )  # fmt: skip
            services = begin(request, settings, lambda what, done, total: None)
            services.folder.update(status="queued")
            services.folder.release()
            table.add(services.manifest, owner())


def disturb(url: str, workers: list[subprocess.Popen[bytes]], rng: random.Random) -> str:
    """Kill a worker, or cut some connections; say which."""
    from psycopg import connect

    if rng.random() < 0.5:
        worker = rng.choice(workers)
        worker.kill()
        worker.wait()
        return "killed"
    with connect(url, autocommit=True) as live:
        found = live.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
            " AND pid <> pg_backend_pid()"
        ).fetchall()
        for (process,) in found:
            if rng.random() < 0.4:
                live.execute("SELECT pg_terminate_backend(%s)", [process])
    return "cut"


def paid(place: Path, asked: int) -> dict[str, int]:
    """Calls of a model: what was asked of it, what the runs kept, and what was asked for twice.

    A reply that was under way when its worker died was kept by nobody, so it is asked for again.
    """
    kept = answered = over = 0
    for run in (place / "runs").glob("run-*"):
        mine = len(list((run / "replies").glob("*.json")))
        rows = (run / "spending.jsonl").read_text(encoding="utf-8").splitlines()
        said = sum(json.loads(row)["outcome"] == "answered" for row in rows)
        kept, answered, over = kept + mine, answered + said, over + max(said - mine, 0)
    return {
        "calls asked of the model": asked,
        "calls answered and booked": answered,
        "replies kept": kept,
        "booked more often than kept": over,
        "asked again": asked - kept,
    }


def counted(url: str, place: Path) -> dict[str, object]:
    """What came of it."""
    from psycopg import connect

    from sage.control.runs import open_runs
    from sage.settings import load

    with open_runs(load()) as table:
        assert table is not None
        states = table.counts()
    contracts, steps, again, reports = [], 0, 0, 0
    for run in sorted((place / "runs").glob("run-*")):
        events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        ended = Counter(
            (event["node"], event.get("hypothesis")) for event in events if event["event"] == "end"
        )
        steps += len(ended)
        again += sum(ended.values()) - len(ended)
        contracts += sorted({event["sha256"] for event in events if event["event"] == "frozen"})
        reports += (run / "report.html").is_file()
    with connect(url) as live:
        rows = live.execute("SELECT kind, contract, body FROM sage_ledger").fetchall()
    registered = Counter(contract for kind, contract, _ in rows if kind == "registration")
    entries = Counter(
        (contract, json.loads(body)["test"]) for kind, contract, body in rows if kind == "entry"
    )
    tests = {name for _, name in entries}
    return {
        "states": states,
        "reports": reports,
        "steps": steps,
        "steps whose end was noted twice": again,
        "contracts": len(set(contracts)),
        "registered once": sum(registered[contract] == 1 for contract in set(contracts)),
        "registered by no run": len(set(registered) - set(contracts)),
        "entries": sum(entries.values()),
        "tests twice": sum(count > 1 for count in entries.values()),
        "tests missing": sum(
            (contract, name) not in entries for contract in set(contracts) for name in tests
        ),
    }


def end(number: int, _frame: object) -> None:
    """Leave as an error does, so that workers and server are stopped; once."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main() -> None:
    """Print what came of it as JSON; exit code 1 where a run or a row is lost or twice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between disturbances")
    parser.add_argument("--lease", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", action="store_true", help="ask a recorded model over HTTP")
    given = parser.parse_args()
    from tests.openai_server import serve
    from tests.postgres import server

    signal.signal(signal.SIGTERM, end)
    rng = random.Random(given.seed)
    asked = (
        "Does age at diagnosis relate to recurrence-free survival in node-positive breast cancer?",
        "gbsg2",
    )
    with (
        server() as url,
        tempfile.TemporaryDirectory() as folder,
        serve(recorded()) as model,
    ):
        place = Path(folder)
        os.environ |= {
            "SAGE_CHECKPOINT_URL": url,
            "SAGE_LEDGER": url,
            "SAGE_RUNS_DIR": str(place / "runs"),
            "SAGE_REASONER": "chat" if given.model else "rules",
            "SAGE_BASE_URL": model.url,
            "SAGE_API_KEY": "none",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        os.environ.setdefault("SAGE_CACHE_DIR", str(place / "cache"))
        start = time.perf_counter()
        queue(given.runs, place, *(asked if given.model else (PROMPT, "demo")))
        print(f"{given.runs} runs queued in {time.perf_counter() - start:.0f} s", flush=True)
        start = time.perf_counter()
        command = [sys.executable, "-m", "sage", "admin", "worker", "--lease", str(given.lease)]

        def begun() -> subprocess.Popen[bytes]:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL)

        workers: list[subprocess.Popen[bytes]] = []
        told: Counter[str] = Counter()
        from sage.control.runs import open_runs
        from sage.settings import load

        try:
            workers += [begun() for _ in range(given.workers)]
            with open_runs(load()) as table:
                assert table is not None
                while table.under_way():
                    time.sleep(rng.uniform(0.5, 1.5) * given.every)
                    told[disturb(url, workers, rng)] += 1
                    for at, worker in enumerate(workers):
                        if worker.poll() is not None:
                            told[f"ended with {worker.returncode}"] += 1
                            workers[at] = begun()
                    print(table.counts(), dict(told), flush=True)
            seconds = time.perf_counter() - start
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
            for worker in workers:
                worker.wait(60)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        found = counted(url, place)
        if given.model:
            found |= paid(place, len(model.requests))
        print(json.dumps({"seconds": round(seconds), "disturbed": told, **found}, indent=1))
        clean = (
            found["states"] == {"finished": given.runs}
            and found["reports"] == found["contracts"] == found["registered once"] == given.runs
            and not (
                found["registered by no run"] or found["tests twice"] or found["tests missing"]
            )
            and not found.get("booked more often than kept")
        )
        raise SystemExit(0 if clean else 1)


if __name__ == "__main__":
    main()
