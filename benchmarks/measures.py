"""Planted spatial truth on simulated slides: found how often, and what false claims beside it.

    python -m benchmarks.measures --sets 5 --null 42 --out benchmarks/results/measures.jsonl

Each set of slides (342 patients) is measured and gated once, in about two minutes of processor
time; each cohort drawn from it takes two seconds. Lines that are there are not run again; the
summary is printed from all lines.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.adapters.measures import Line, cohorts, summary
from sage.core.files import append_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="number of the first set of slides")
    parser.add_argument("--draws", type=int, default=10, help="cohorts per truth and set")
    parser.add_argument("--null", type=int, default=42, help="null cohorts per set")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    lines = []
    if given.out.exists():
        lines = [Line.model_validate_json(text) for text in given.out.read_text().splitlines()]
    done = {line.slides for line in lines}
    left = [n for n in range(given.first, given.first + given.sets) if n not in done]
    with tempfile.TemporaryDirectory() as folder:
        for line in cohorts(Path(folder), left, given.draws, given.null):
            append_line(given.out, line.model_dump_json())
            lines.append(line)
    found = summary(lines)
    print(f"{found['sets']} sets, hazard ratio {found['hazard_ratio']:.2f} per SD")
    for row in found["rates"]:
        share = f"{row['rate']:.1%} ({row['lower']:.1%} to {row['upper']:.1%})"
        print(f"{row['name']}: {row['hits']} of {row['runs']}, {share}")


if __name__ == "__main__":
    main()
