# ruff: noqa: E501
"""What many slides, users and runs need, from costs per unit that were measured.

    python benchmarks/scale.py --measure --runs 4     # measures runs; writes the results file
    python benchmarks/scale.py                        # writes docs/scale.md from it

A run's costs are those of whole runs by one worker (rules reasoner, demonstration cohort) over a
PostgreSQL server of its own; what the first run loads is told apart from what each run takes. A
slide's are those of `benchmarks/results/large_slide.md`, per mm² of tissue. Tokens are those of the
recorded run that ships with SAGE.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
RESULTS = ROOT / "benchmarks" / "results" / "scale.json"
PAGE = ROOT / "docs" / "scale.md"
SLIDES = ROOT / "benchmarks" / "results" / "large_slide.md"
PROMPT = "Link tertiary lymphoid structures and genes in bladder cancer"
WHOLE_MM2 = 75 * 25
TISSUE_MM2 = 250.0
"""Of one resection slide; what is measured grows with the tissue."""
LOAD = {"slides": 10_000, "users": 100, "runs_per_day": 1_000}
HOURS = 10.0
"""Of a working day, in which the day's runs are asked for."""
PEAK = 3.0
"""The busiest hour over the mean one."""
USE = 0.7
"""Of the processors, so that what is asked for at once waits little."""
PRICE_IN, PRICE_OUT = 1.25, 10.0
"""USD per million tokens, an example; put in what you pay."""
KEPT_DAYS = 365
MODEL_MINUTES = 5.0
"""For which a model keeps a run, an example; a worker waits meanwhile."""


def cpu_of(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of CPU of a process and its children, and its peak memory in MiB."""
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def measure(runs: int) -> dict[str, Any]:
    """Costs of a run, by one worker that takes one run, then by one that takes the others."""
    from psycopg import connect

    from tests.postgres import server

    with server() as url, tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        environment = {
            **os.environ, "SAGE_CHECKPOINT_URL": url, "SAGE_LEDGER": url, "PYTHONPATH": str(ROOT),
            "SAGE_RUNS_DIR": str(place / "runs"), "SAGE_REASONER": "rules", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        environment.setdefault("SAGE_CACHE_DIR", str(place / "cache"))
        sage = [sys.executable, "-m", "sage"]
        size = "SELECT pg_database_size(current_database())"
        asked = []
        for seed in range(runs):
            command = [*sage, "run", PROMPT, "--auto-approve", "--queue", f"--seed={seed}"]
            asked.append(cpu_of(command, environment)[0])
        with connect(url, autocommit=True) as live:
            before = (live.execute(size).fetchone() or (0,))[0]
            first, _ = cpu_of([*sage, "worker", "--most", "1"], environment)
            rest, memory = cpu_of([*sage, "worker", "--most", str(runs - 1)], environment)
            after = (live.execute(size).fetchone() or (0,))[0]
        disk = sum(path.stat().st_size for path in (place / "runs").rglob("*") if path.is_file())
    each = max(0.0, (rest - first) / (runs - 2))
    return {
        "runs": runs,
        "cpu_s_to_ask": min(asked),
        "cpu_s_of_a_run": each,
        "cpu_s_to_load": max(0.0, first - each),
        "memory_mib_of_a_worker": memory,
        "disk_mb_of_a_run": disk / runs / 1e6,
        "database_mb_of_a_run": (after - before) / runs / 1e6,
        "tokens": tokens(),
    }


def tokens() -> dict[str, float]:
    """Tokens of a run with a model that goes as the recorded one went."""
    from sage.run.estimate import estimate
    from sage.settings import load

    rows = estimate(load(reasoner="chat"), 1)
    return {
        "in": sum(row.prompt_tokens for row in rows),
        "out": sum(row.completion_tokens for row in rows),
        "calls": sum(row.calls for row in rows),
    }


def slide_cpu() -> dict[str, float]:
    """Seconds of CPU per mm² of tissue by tool, from the benchmark of a large slide."""
    whole, half = SLIDES.read_text(encoding="utf-8").split("The same as above", 1)
    found = {}
    for text, share, names in (
        (whole, 0.95, ("tls", "tumor", "til", "stroma")),
        (half, 0.45, ("nuclei",)),
    ):
        for name in names:
            row = re.search(rf"^\| `{name}` \|(?:[^|]*\|){{3}} ([\d,.]+) s \|", text, re.MULTILINE)
            if row is None:
                raise SystemExit(f"{SLIDES}: no line of {name}")
            found[name] = float(row[1].replace(",", "")) / (WHOLE_MM2 * share)
    return found


def page(unit: dict[str, Any]) -> str:
    """docs/scale.md: each number with the arithmetic that it comes from."""
    runs = LOAD["runs_per_day"]
    cpu_day = runs * (unit["cpu_s_of_a_run"] + unit["cpu_s_to_ask"])
    cores = runs / HOURS * PEAK * (unit["cpu_s_of_a_run"] + unit["cpu_s_to_ask"]) / 3600 / USE
    workers = max(1, -(-cores // 1))
    waiting = -(-(runs / HOURS * PEAK * MODEL_MINUTES / 60 / USE) // 1)
    mib = unit["memory_mib_of_a_worker"]
    disk = runs * unit["disk_mb_of_a_run"] / 1e3
    rows = runs * unit["database_mb_of_a_run"] / 1e3
    token = unit["tokens"]
    usd = (token["in"] * PRICE_IN + token["out"] * PRICE_OUT) / 1e6
    slides = slide_cpu()
    of_slide = {name: each * TISSUE_MM2 for name, each in slides.items()}
    hours = LOAD["slides"] * sum(of_slide.values()) / 3600
    lines = [
        "<!-- Written by benchmarks/scale.py; change what it reads, then run it. -->",
        "",
        "# What a server for many needs",
        "",
        f"For {LOAD['slides']:,} slides, {LOAD['users']} users and {runs:,} runs a day, from costs per"
        " unit that were measured here; `python benchmarks/scale.py --measure` measures them on your"
        " machine.",
        "",
        "## Measured",
        "",
        "| of | CPU | memory | disk | database |",
        "|---|---|---|---|---|",
        f"| asking (`sage run --queue`) | {unit['cpu_s_to_ask']:.1f} s | | | |",
        f"| a worker's first run, above the others | {unit['cpu_s_to_load']:.1f} s | | | |",
        f"| a run (rules, one hypothesis, 400 patients) | {unit['cpu_s_of_a_run']:.1f} s |"
        f" {unit['memory_mib_of_a_worker']:,.0f} MiB at most | {unit['disk_mb_of_a_run']:.1f} MB |"
        f" {unit['database_mb_of_a_run']:.2f} MB |",
        *(f"| a slide with {TISSUE_MM2:.0f} mm² of tissue, `{name}` | {seconds:.0f} s | under 1 GiB | |"
          " |" for name, seconds in of_slide.items()),
        "",
        f"With a model, the recorded run asked {token['calls']:.0f} times and took"
        f" {token['in']:,.0f} tokens in and {token['out']:,.0f} out.",
        "",
        "## Computed",
        "",
        "| need | amount | from |",
        "|---|---|---|",
        f"| workers of runs without a model, a core each | {workers:.0f} | {runs:,} runs in {HOURS:.0f} hours, {PEAK:.0f}"
        f" times as many in the busiest, {USE:.0%} busy |",
        f"| their memory | {workers * mib / 1024:.1f} GiB | {workers:.0f} × {mib:,.0f} MiB |",
        f"| workers of runs with a model that keeps each for {MODEL_MINUTES:.0f} minutes | {waiting:.0f} | they wait for it: a few cores serve them all |",
        f"| their memory | {waiting * mib / 1024:.1f} GiB | {waiting:.0f} × {mib:,.0f} MiB |",
        f"| CPU for runs | {cpu_day / 3600:.1f} core hours a day | |",
        f"| disk for runs | {disk:.1f} GB a day, {disk * KEPT_DAYS / 1e3:.1f} TB a year | kept whole |",
        f"| database | {rows:.1f} GB a day, {rows * KEPT_DAYS / 1e3:.2f} TB a year | checkpoints, ledger,"
        " queue |",
        f"| slides, all five tools, once | {hours:,.0f} core hours | on 64 cores {hours / 64:,.0f} hours |",
        f"| a model | {usd:.2f} USD a run, {usd * runs:,.0f} USD a day | {PRICE_IN:.2f} and"
        f" {PRICE_OUT:.2f} USD per million tokens in and out |",
        "",
        f"That is {runs / LOAD['users']:.0f} runs a day for each user; `--roles` bounds what each may use.",
        "",
        "## What this leaves out",
        "",
        "- A cohort with more patients, a graph of your own or more hypotheses cost more; measure one run"
        " of yours: `sage show RUN` tells the seconds of each step.",
        "- The pages: a server process answers on one core; how many people it serves at once was not"
        " measured.",
        "- Encoders on a GPU: their time is in [Slides](slides.md).",
        "- Thoughts of reasoning models come on top of the tokens.",
        "- CPU seconds are of a virtual machine that others used as well; its clock time is no measure.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Measure where asked to, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure runs first")
    parser.add_argument("--runs", type=int, default=4, help="how many, at least 3")
    given = parser.parse_args()
    if given.measure:
        RESULTS.write_text(json.dumps(measure(max(3, given.runs)), indent=1) + "\n")
    PAGE.write_text(page(json.loads(RESULTS.read_text())), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
