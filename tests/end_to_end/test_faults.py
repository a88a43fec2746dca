"""Kill, full disk, Ctrl-C: nothing finished is lost, nothing finished runs twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import PROMPT, begin, events, sage
from tests.openai_server import Answer, serve

# The process kills itself at the given event: a kill from outside cannot hit a node of a few
# milliseconds. Nothing in SAGE knows of it.
DIES = """
import os, signal, sys
from sage.run.folder import RunFolder

kind, node = sys.argv[1], sys.argv[2]
log = RunFolder.event

def event(self, told, /, **fields):
    log(self, told, **fields)
    if told == kind and fields.get("node") == node:
        os.kill(os.getpid(), signal.SIGKILL)

RunFolder.event = event
sys.argv = ["sage", *sys.argv[3:]]
from sage.__main__ import main

main()
"""
NODES = (
    "path_generation",
    "ontologist",
    "scientist",
    "expansion",
    "novelty",
    "feasibility",
    "coding_instructions",
    "coding",
    "judge",
    "interpreter",
    "summary",
    "report",
)


def _dying(kind: str, node: str, *args: str, cwd: Path) -> int:
    return begin("-c", DIES, kind, node, *args, cwd=cwd).wait(240)


@pytest.mark.slow
def test_killed_in_every_node_a_run_still_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    start = ("run", PROMPT, "--auto-approve", "--out")
    for index, node in enumerate(NODES):
        args = (*start, str(broken)) if index == 0 else ("resume", str(broken))
        assert _dying("start", node, *args, cwd=tmp_path) == -signal.SIGKILL, node
    assert sage("resume", str(broken), cwd=tmp_path).code == 0
    assert sage(*start, str(whole), cwd=tmp_path).code == 0
    assert _ended(broken) == _ended(whole)
    assert set(_ended(whole)) == {"question", *NODES}
    name = "hypotheses/h1/results/results.json"
    assert (broken / name).read_bytes() == (whole / name).read_bytes()


def _ended(run: Path) -> Counter[str]:
    """How often each node ran to its end; a revision runs some of them twice by design."""
    return Counter(event["node"] for event in events(run) if event["event"] == "end")


def test_killed_right_after_a_node_it_does_not_lose_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    died = _dying("end", "coding", "run", PROMPT, "--auto-approve", "--out", str(run), cwd=tmp_path)
    assert died == -signal.SIGKILL
    assert sage("resume", str(run), cwd=tmp_path).code == 0
    ledger = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    registered = Counter(item["registered"] for item in ledger if "registered" in item)
    assert set(registered.values()) == {1}
    tests = [item for item in ledger if "test" in item]
    attempts = Counter((test["contract"], test["test"], test["part"]) for test in tests)
    assert set(attempts.values()) == {1}


def test_ctrl_c_stops_cleanly_and_names_the_way_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = begin("run", PROMPT, "--auto-approve", "--out", str(run), cwd=tmp_path)
    _wait_for(run, "coding")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    assert "sage resume" in err
    assert sage("resume", str(run), cwd=tmp_path).code == 0
    assert (run / "report.html").exists()


def test_ctrl_c_is_answered_by_commands_without_a_way_on_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "slide.png").touch()
    asked = threading.Event()

    def silent(body: dict[str, Any]) -> Answer:
        asked.set()
        return Answer(silent=60.0)

    with serve(silent) as server:
        process = begin("nova", "ask", "What is it?", "slide.png", cwd=tmp_path,
                        SAGE_BASE_URL=server.url, SAGE_API_KEY="none")  # fmt: skip
        assert asked.wait(120)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted; nothing finished is lost" in err, err


def _wait_for(run: Path, node: str) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        log = run / "events.jsonl"
        if log.exists() and f'"start", "node": "{node}"' in log.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"{node} did not start")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_one_clear_fault_and_the_run_goes_on_after_it(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this system does not allow mounting a tmpfs")
    try:
        run = small / "run"
        ended = sage("run", PROMPT, "--auto-approve", "--out", str(run), cwd=tmp_path)
        assert ended.code == 1, ended.err
        assert "no space left" in ended.err or "disk is full" in ended.err
        assert "Traceback" not in ended.err
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        resumed = sage("resume", str(run), cwd=tmp_path)
        assert resumed.code == 0, resumed.err
        assert (run / "report.html").exists()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)
