"""What the workers and the MCP servers cost on top of a tool.

    python benchmarks/workers.py            # prints a table, half a minute
    python benchmarks/workers.py --json

The peer is `concurrent.futures.ProcessPoolExecutor` (spawned, warm) with the same function in the
same run: it has no priorities, progress, cancellation, roots, checks of arguments or provenance.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing as mp
import os
import signal
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TOOL = """
import time
from pydantic import BaseModel
from mcp_servers.context import ToolContext
from mcp_servers.spec import InputPath, Resources, tool

class Given(BaseModel):
    seconds: float = 0.0
class Result(BaseModel):
    slept: float
class ReadGiven(BaseModel):
    file: InputPath
class ReadResult(BaseModel):
    size: int

@tool("sleep", "bench", "1", "Sleep.", Resources(memory_mb=64), cacheable=False)
def sleep(given: Given, context: ToolContext) -> Result:
    time.sleep(given.seconds)
    return Result(slept=given.seconds)

@tool("size", "bench", "1", "Size of a file.", Resources(memory_mb=64))
def size(given: ReadGiven, context: ToolContext) -> ReadResult:
    time.sleep(0.5)
    return ReadResult(size=context.input(given.file).stat().st_size)
"""


def sleep(seconds: float) -> float:
    """The peer's job."""
    time.sleep(seconds)
    return seconds


def peer(workers: int, jobs: int) -> dict[str, float]:
    """Latency of one job and jobs per second of the standard library's pool."""
    with ProcessPoolExecutor(workers, mp_context=mp.get_context("spawn")) as pool:
        list(pool.map(sleep, [0.05] * workers))
        each = [timed(lambda: pool.submit(sleep, 0.0).result()) for _ in range(50)]
        started = time.perf_counter()
        list(pool.map(sleep, [0.0] * jobs))
        rate = jobs / (time.perf_counter() - started)
    return {"latency_ms": 1000 * statistics.median(each), "jobs_per_s": rate}


def timed(call) -> float:
    """Seconds that a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def ours(folder: Path, workers: int, jobs: int) -> dict[str, float]:
    """The same of the local pool; a cached result; the time to replace a killed worker."""
    from mcp_servers.roots import Roots
    from mcp_servers.workers.jobs import Recipe
    from mcp_servers.workers.pool import LocalPool

    big = folder / "in" / "big.bin"
    big.write_bytes(os.urandom(64 << 20))
    os.utime(big, (time.time() - 100, time.time() - 100))
    roots = Roots.of([folder / "in"], folder / "out")
    recipe = Recipe("all", (str(folder / "tools"),), str(folder / "cache"))
    started = time.perf_counter()
    with LocalPool(recipe, workers, memory_mb=4096, gpus=0) as pool:
        pool.run("sleep", {}, roots)
        first = time.perf_counter() - started
        for job in [pool.submit("sleep", {"seconds": 0.3}, roots) for _ in range(workers)]:
            job.result()
        each = [timed(lambda: pool.run("sleep", {}, roots)) for _ in range(50)]
        started = time.perf_counter()
        for job in [pool.submit("sleep", {}, roots) for _ in range(jobs)]:
            job.result()
        rate = jobs / (time.perf_counter() - started)
        cold = timed(lambda: pool.run("size", {"file": "big.bin"}, roots))
        warm = timed(lambda: pool.run("size", {"file": "big.bin"}, roots))
        job = pool.submit("sleep", {"seconds": 0.5}, roots)
        time.sleep(0.4)
        os.kill(next(pid for pid in pool.pids() if busy(pool, pid)), signal.SIGKILL)
        killed = time.perf_counter()
        job.result()
        lost = time.perf_counter() - killed - 0.5
    return {
        "first_result_s": first,
        "latency_ms": 1000 * statistics.median(each),
        "jobs_per_s": rate,
        "half_second_tool_s": cold,
        "the_same_from_the_cache_ms": 1000 * warm,
        "overhead_of_a_killed_worker_s": lost,
    }


def busy(pool, pid: int) -> bool:
    """True for the worker that has a job."""
    return any(worker.process.pid == pid and worker.job for worker in pool._workers)


def through_mcp(folder: Path) -> dict[str, float]:
    """Latency of one call by the SDK's client over stdio, to a real server process."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    words = ["-m", "sage", "tools", "serve", "oncology", "--root", str(folder / "in")]
    words += ["--out", str(folder / "out"), "--tools", str(folder / "tools"), "--workers", "1"]
    command = StdioServerParameters(
        command=sys.executable, args=words, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )

    async def main() -> dict[str, float]:
        started = time.perf_counter()
        async with Client(command) as client:
            await client.list_tools()
            ready = time.perf_counter() - started
            await client.call_tool("sleep", {})
            each = []
            for _ in range(50):
                begun = time.perf_counter()
                await client.call_tool("sleep", {})
                each.append(time.perf_counter() - begun)
        return {"ready_s": ready, "latency_ms": 1000 * statistics.median(each)}

    return asyncio.run(main())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=400)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "tools").mkdir()
        (folder / "tools" / "bench_tools.py").write_text(TOOL)
        found = {
            "process pool of the standard library": peer(given.workers, given.jobs),
            "local pool": ours(folder, given.workers, given.jobs),
            "MCP over stdio": through_mcp(folder),
        }
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for title, row in found.items():
        print(title)
        for key, value in row.items():
            print(f"  {key:32s} {value:10.3f}")


if __name__ == "__main__":
    main()
