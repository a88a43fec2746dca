"""Wall time per node of a run on the simulated cohort, without model time.

    python benchmarks/orchestration.py

Runs the whole job twice with the rules reasoner and prints the second run's nodes, so that graph,
cohort and embeddings are in the cache, as for any user's second question. `analysis` is the time
that the statistics themselves took inside the sandbox; the rest is orchestration.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPT = "Which genes relate to tertiary lymphoid structures and survival in bladder cancer?"


def main() -> None:
    """Run and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "second"):
            out = Path(folder) / name
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "sage", "run", PROMPT, "--auto-approve", "--json",
                 "--reasoner", "rules", "--out", str(out)],
                check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            wall = time.perf_counter() - begun
        rows = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
        ended = [(row["node"], row["seconds"]) for row in rows if row["event"] == "end"]
        coding = json.loads((out / "outputs/coding-h1.json").read_text())["output"]
        analysis = sum(result["result"]["usage"]["wall_seconds"] for result in coding["results"])
    for node, seconds in ended:
        print(f"{node:22s} {seconds:8.3f} s")
    total = sum(seconds for _, seconds in ended)
    print(f"{'all nodes':22s} {total:8.3f} s")
    print(f"{'analysis in sandbox':22s} {analysis:8.3f} s  ({coding['sandbox']})")
    print(f"{'orchestration':22s} {total - analysis:8.3f} s")
    print(f"{'whole command':22s} {wall:8.3f} s")


if __name__ == "__main__":
    main()
