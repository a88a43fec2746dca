"""Measurements over many small simulated slides, killed and taken up again.

    nice -n 19 python -m benchmarks.measure_soak --slides 10000
    nice -n 19 python -m benchmarks.measure_soak --slides 2000 --workers ray

A process measures the slides' maps on the workers and is killed (SIGKILL) when a third and two
thirds are done, then runs to the end. Said are: slides per second, the memory of the driving
process and of its workers along the way, the most jobs in flight, and whether any slide was
measured again after its record, or lost.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FORMULAS = (
    "pooled(density(cells.lymphoid))",
    "mean(nearest(cells.lymphoid, cells.other, median))",
    "mean(ripley_l(cells.lymphoid, 50))",
)
SAMPLE_EVERY = 100


def simulate(folder: Path, count: int) -> None:
    """Maps of `count` slides of 1 mm² with 60 cells each."""
    import numpy as np
    import shapely

    from mcp_servers.measures.maps import CellMap, SlideMaps, write_maps

    window = shapely.MultiPolygon([shapely.box(0, 0, 1000, 1000)])
    rng = np.random.default_rng(11)
    for number in range(count):
        x, y = rng.uniform(0, 1000, (2, 60))
        cells = CellMap(x, y, ("lymphoid", "other"), rng.integers(0, 2, 60))
        name = f"s{number:06d}"
        write_maps(SlideMaps(name, name, window, cells), folder / name)


def resident_mb(pid: int) -> float:
    """Memory of a process and its children, MiB, shared pages counted once for each."""
    from mcp_servers.workers.machine import resident_mb as of_one

    lists = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(word) for path in lists for word in path.read_text().split()]
    return sum(of_one(one) for one in (pid, *children))


def drive(folder: Path, workers: str, jobs: int) -> None:
    """Measure all maps below a folder; a line per slide, and samples of memory and jobs."""
    from mcp_servers.measures import cohort as over
    from mcp_servers.measures.definitions import read_definitions
    from mcp_servers.roots import Roots
    from mcp_servers.workers.choose import open_workers
    from mcp_servers.workers.cohort import Outcome
    from mcp_servers.workers.jobs import Recipe
    from mcp_servers.workers.machine import resident_mb as of_one

    measurements = read_definitions(folder / "formulas.txt")
    items, _ = over.map_items(folder / "maps")
    roots = Roots.of([folder], folder / "out")
    word = str(jobs) if workers == "pool" else workers
    with (
        open_workers(word, Recipe("pathology")) as pool,
        (folder / "computed.txt").open("a", buffering=1) as computed,
        (folder / "samples.jsonl").open("a", buffering=1) as samples,
    ):

        def ended(stage: str, outcome: Outcome, done: int, total: int) -> None:
            if not outcome.resumed:
                computed.write(f"{outcome.item.name} {outcome.error or 'ok'}\n")
            if done % SAMPLE_EVERY == 0:
                in_flight = sum(not job.state.final for job in pool.jobs.copy().values())
                sample = {
                    "done": done,
                    "resumed": outcome.resumed,
                    "driver_mb": round(of_one(os.getpid())),
                    "all_mb": round(resident_mb(os.getpid())),
                    "in_flight": in_flight,
                }
                samples.write(json.dumps(sample) + "\n")

        outcomes = over.compute_values(pool, items, measurements, roots, ended)
    over.write_variables(measurements, outcomes, {}, roots.output, "baseline")


def soak(folder: Path, slides: int, workers: str, jobs: int, kills: int) -> dict[str, Any]:
    """Run to the end with kills on the way; the figures."""
    started = time.monotonic()
    simulate(folder / "maps", slides)
    made = time.monotonic() - started
    (folder / "formulas.txt").write_text("\n".join(FORMULAS))
    words = ["--drive", str(folder), "--workers", workers, "--jobs", str(jobs)]
    records = folder / "out" / "measure_maps"
    seconds = 0.0
    for part in range(1, kills + 2):
        started = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "benchmarks.measure_soak", *words])
        if part <= kills:
            while _records(records) < slides * part // (kills + 1):
                if process.poll() is not None:
                    raise SystemExit(f"ended by itself with code {process.returncode}")
                time.sleep(3.0)
            process.send_signal(signal.SIGKILL)
        if process.wait() and part > kills:
            raise SystemExit(f"ended with code {process.returncode}")
        seconds += time.monotonic() - started
    lines = (folder / "computed.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines]
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    live = [sample for sample in samples if not sample["resumed"]]
    rows = (folder / "out" / "measured.csv").read_text().splitlines()
    quarter = max(1, len(live) // 4)
    return {
        "slides": slides,
        "workers": workers,
        "seconds_to_simulate": round(made),
        "seconds": round(seconds),
        "slides_per_second": round(slides / seconds, 1),
        "failed": sum(not line.endswith(" ok") for line in lines),
        "measured_twice": len(names) - len(set(names)),
        "lost": slides - (len(rows) - 1),
        "most_in_flight": max(sample["in_flight"] for sample in live),
        "driver_mb_first_quarter": max(s["driver_mb"] for s in live[:quarter]),
        "driver_mb_last_quarter": max(s["driver_mb"] for s in live[-quarter:]),
        "all_mb_first_quarter": max(s["all_mb"] for s in live[:quarter]),
        "all_mb_last_quarter": max(s["all_mb"] for s in live[-quarter:]),
    }


def _records(folder: Path) -> int:
    return sum((path / "run.json").exists() for path in folder.iterdir()) if folder.is_dir() else 0


def main() -> None:
    """Soak, or drive one process of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slides", type=int, default=10_000)
    parser.add_argument("--workers", default="pool")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--drive", type=Path)
    given = parser.parse_args()
    if given.drive is not None:
        drive(given.drive, given.workers, given.jobs)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = soak(Path(folder), given.slides, given.workers, given.jobs, given.kills)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
