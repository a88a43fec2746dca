"""Drives a Ray cluster from a process of its own, inside a network namespace; see the test beside.

`python driver.py WORKERS IN OUT`: lines of JSON on standard output, one for each thing that
happened; it goes on past a stage when a line comes on standard input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from mcp_servers.roots import Roots
from mcp_servers.workers.jobs import Job, Recipe, State
from sage.core.errors import SageError
from sage_ray.workers import RayWorkers

TOOLS = str(Path(__file__).resolve().parents[3] / "tests" / "mcp_servers" / "tools")
LIMIT = 60.0


def send(stage: str, **values: Any) -> None:
    """One line for the test."""
    print(json.dumps({"stage": stage} | values), flush=True)


def ended(jobs: list[Job], limit: float = LIMIT) -> list[dict[str, Any]]:
    """How each job ended."""
    until = time.monotonic() + limit
    for job in jobs:
        job.wait(max(0.0, until - time.monotonic()))
    return [
        {"state": job.state.value, "attempts": job.attempts, "error": str(job.error or "")}
        for job in jobs
    ]


def refused(workers: RayWorkers, tool: str, arguments: dict[str, Any], roots: Roots) -> str:
    """The message with which a job is refused."""
    try:
        workers.submit(tool, arguments, roots)
    except SageError as error:
        return str(error)
    return ""


def drive(workers: RayWorkers, roots: Roots) -> None:
    """The stages of the test, in order."""
    send("joined", nodes=sorted(node.address for node in workers.nodes), size=workers.size)
    send("refused", message=refused(workers, "gorge", {}, roots))
    looks = [workers.submit("preview", {"slide": "a.png"}, roots) for _ in range(4)]
    nowhere = workers.submit("preview", {"slide": "gone.png"}, roots)
    send("files", looks=ended(looks), nowhere=ended([nowhere]))

    waits = [workers.submit("wait", {"seconds": 2}, roots) for _ in range(3)]
    heavy = workers.submit("heavy_wait", {"seconds": 30}, roots)
    while not (waits[0].fraction and waits[1].fraction and heavy.fraction):
        time.sleep(0.05)
    send("working")
    sys.stdin.readline()
    send("node lost", waits=ended(waits), heavy=ended([heavy]))
    send("refused then", message=refused(workers, "heavy_wait", {"seconds": 1}, roots))

    last = [workers.submit("wait", {"seconds": 30}, roots) for _ in range(3)]
    while last[0].state is State.QUEUED:
        time.sleep(0.05)
    send("working again")
    sys.stdin.readline()
    started = time.monotonic()
    ends = ended(last)
    send("head lost", last=ends, seconds=time.monotonic() - started)
    send("refused at last", message=refused(workers, "wait", {"seconds": 1}, roots))


def main() -> None:
    """See the module."""
    address, inputs, output = sys.argv[1:]
    roots = Roots.resolve([inputs], output)
    recipe = Recipe(tool_folders=(TOOLS,))
    with RayWorkers(recipe, address, grace=1.0, silence=4.0, patience=2.0) as workers:
        drive(workers, roots)
    send("closed")


if __name__ == "__main__":
    main()
