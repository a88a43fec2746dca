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

from tests.end_to_end.harness import PROMPT, begin, die, estimates, events, sage
from tests.openai_server import Answer, serve

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


@pytest.mark.slow
def test_killed_in_every_node_and_interrupted_a_run_still_ends_as_an_unbroken_one(
    finished: Path, tmp_path: Path
) -> None:
    """Also with the same numbers, though `finished` had another seed of the hashes."""
    run = tmp_path / "run"
    for index, node in enumerate(NODES):
        begun = ("run", PROMPT, "--auto-approve", "--out") if index == 0 else ("resume",)
        if node == "judge":
            die("end", "coding", "resume", str(run), cwd=tmp_path)  # its tests are in the ledger
        die("start", node, *begun, str(run), cwd=tmp_path)
        if node == "coding":
            process = begin("resume", str(run), cwd=tmp_path)
            _wait_for(run, node, times=2)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=600)
            assert process.returncode == 130 and "sage resume" in err, err
    assert sage("resume", str(run), cwd=tmp_path).code == 0
    assert (run / "report.html").exists()
    once = _ended(finished)
    assert {node for node, _ in once} == {"question", *NODES}
    assert _ended(run) == once + Counter({("coding", "h1"): 1})
    assert estimates(run) == estimates(finished)
    ledger = [json.loads(line) for line in (run / "ledger.jsonl").read_text().splitlines()]
    registered = Counter(item["registered"] for item in ledger if "registered" in item)
    assert set(registered.values()) == {1}
    tests = [item for item in ledger if "test" in item]
    attempts = Counter((test["contract"], test["test"], test["part"]) for test in tests)
    assert set(attempts.values()) == {1}


def _ended(run: Path) -> Counter[tuple[str, str | None]]:
    """How often each node ran to its end, for the first hypothesis."""
    ends = [event for event in events(run) if event["event"] == "end"]
    return Counter((e["node"], e.get("hypothesis")) for e in ends if e.get("hypothesis") != "h2")


def _wait_for(run: Path, node: str, times: int) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        log = run / "events.jsonl"
        if log.read_text().count(f'"start", "node": "{node}"') >= times:
            return
        time.sleep(0.02)
    raise AssertionError(f"{node} did not start")


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
    assert process.returncode == 130, err


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
        assert "sage resume" in ended.err
        assert "Traceback" not in ended.err
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        resumed = sage("resume", str(run), cwd=tmp_path)
        assert resumed.code == 0, resumed.err
        assert (run / "report.html").exists()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)
