"""Large inputs as commands take them: seconds and peak memory of each.

    python benchmarks/large_inputs.py
    python benchmarks/large_inputs.py --only expression --patients 3000

`expression`: a Parquet matrix, opened the first time (parsed into the cache), then again for a few
genes. `screen`: `sage validate screen` on 1,000 patients. `graphml`: `sage kg stats` on a file,
then again from what it left beside it. `documents`: `sage kg build` of many abstracts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

OPEN_GRAPH = """
import sys, time
from pathlib import Path
from kg.graph.model import Graph
from sage.settings import load
from sage.run.wiring import open_graph
settings = load()
start = time.perf_counter()
graph = open_graph(Path(sys.argv[1]), settings)
print(graph.n_nodes, round(time.perf_counter() - start, 2))
"""
ONE_GENE = """
import sys, time
from pathlib import Path
import pandas
from validation.cohort import load
start = time.perf_counter()
cohort = load(sys.argv[1], cache=Path(sys.argv[2]))
found = cohort.table([f"expression:G{at}" for at in (3, 77, 1234)], ["OS"])
print(len(found), round(time.perf_counter() - start, 2))
"""


def measured(what: str, command: list[str], home: Path) -> str:
    """Run a command in a process of its own; print and return what it took."""
    environment = os.environ | {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "SAGE_LEDGER": str(home / "ledger.sqlite"),
        "PYTHONPATH": str(ROOT),
    }
    start = time.perf_counter()
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    wall, cpu = time.perf_counter() - start, used.ru_utime + used.ru_stime
    if status:
        raise SystemExit(f"{what}: {' '.join(command)} failed")
    print(
        f"{what:<58} {wall:7.1f} s {cpu:7.1f} s cpu {used.ru_maxrss / 2**20:6.2f} GiB", flush=True
    )
    return said


def apart(make: Callable[[], None]) -> None:
    """Make something in another process: a child's peak memory begins with its parent's."""
    child = os.fork()
    if child == 0:
        make()
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("the input could not be made")


def cohort_of(place: Path, patients: int, genes: int, suffix: str) -> None:
    """A simulated cohort with so many patients and genes, its matrix as Parquet or CSV."""
    from validation.simulate.layout import TABLES, survival_toml, variable_toml

    rng = np.random.default_rng(1)
    ids = pd.Index([f"P{at:05d}" for at in range(patients)], name="patient")
    clinical = {
        "OS.time": rng.exponential(1000, patients).round() + 1,
        "OS": rng.integers(2, size=patients),
        "age": rng.normal(65, 9, patients).round(1),
    }
    pd.DataFrame(clinical, index=ids).to_csv(place / "clinical.csv")
    values = rng.normal(6, 1.5, size=(patients, genes)).astype(np.float32).round(4)
    table = pd.DataFrame(values, columns=[f"G{at}" for at in range(genes)], index=ids)
    path = place / f"expression{suffix}"
    if suffix == ".csv":
        table.to_csv(path)
    else:
        table.reset_index().to_parquet(path, engine="fastparquet", index=False)
    (place / "cohort.toml").write_text(
        'id = "large"\ntitle = "SIMULATED"\nsimulated = true\n'
        + TABLES.replace("expression.csv", path.name)
        + survival_toml("OS")
        + variable_toml("age", "continuous", "Age")
    )


def expression(given: argparse.Namespace, home: Path) -> None:
    """A matrix of patients and genes, the first time and after."""
    place = home / "cohort"
    place.mkdir()
    apart(lambda: cohort_of(place, given.patients, given.genes, ".parquet"))
    size = (place / "expression.parquet").stat().st_size / 2**30
    print(f"{given.patients:,} patients, {given.genes:,} genes, Parquet of {size:.2f} GiB")
    time.sleep(6)  # a file that has just changed is hashed each time
    command = [sys.executable, "-c", ONE_GENE, str(place), str(home / "arrays")]
    measured("three genes, the first time (the matrix is parsed)", command, home)
    said = measured("three genes, again", command, home)
    print(f"  of which without starting Python and its imports: {said.split()[1]} s")


def screen(given: argparse.Namespace, home: Path) -> None:
    """`sage validate screen`, as a person runs it."""
    place = home / "screened"
    place.mkdir()
    apart(lambda: cohort_of(place, 1000, given.genes, ".csv"))
    command = [sys.executable, "-m", "sage", "validate", "screen", "--cohort", str(place)]
    for when in ("the first time", "again"):
        text = f"screen, 1,000 patients, {given.genes:,} genes, {when}"
        measured(text, [*command, "--out", str(home / f"screen {when}")], home)


def graphml(given: argparse.Namespace, home: Path) -> None:
    """A graph of 100,000 nodes from its GraphML, then from the file beside it."""
    path = home / "large.graphml"

    def make() -> None:
        from benchmarks.kg_graph import synthetic
        from kg.graph import graphml as writer

        writer.write(synthetic(given.nodes, given.nodes * 3 // 2), path)

    apart(make)
    command = [sys.executable, "-m", "sage", "kg", "stats", "-g", str(path), "--json"]
    for when in ("the first time", "again"):
        measured(f"kg stats, GraphML of {given.nodes:,} nodes, {when}", command, home)
    said = measured("its graph alone", [sys.executable, "-c", OPEN_GRAPH, str(path)], home)
    print(f"  of which without starting Python and its imports: {said.split()[1]} s")


def documents(given: argparse.Namespace, home: Path) -> None:
    """A graph from as many abstracts as the shared ones make, repeated under other names."""
    source = ROOT / "data" / "corpus"
    notes = sorted(source.glob("*.md"))
    place = home / "corpus"
    place.mkdir()
    for at in range(given.documents):
        text = notes[at % len(notes)].read_text(encoding="utf-8")
        (place / f"note-{at:05d}.txt").write_text(f"{text}\n\nCohort {at}.\n", encoding="utf-8")
    command = [sys.executable, "-m", "sage", "kg", "build", str(place), "--out", str(home / "kg")]
    measured(f"kg build, {given.documents:,} documents", command, home)


PARTS: dict[str, Callable[[argparse.Namespace, Path], None]] = {
    "expression": expression,
    "screen": screen,
    "graphml": graphml,
    "documents": documents,
}


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="parts; default: all")
    parser.add_argument("--patients", type=int, default=20_000)
    parser.add_argument("--genes", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--documents", type=int, default=10_000)
    given = parser.parse_args()
    for name in given.only or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](given, Path(folder))


if __name__ == "__main__":
    main()
