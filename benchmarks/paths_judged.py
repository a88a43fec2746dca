"""Print how many top paths are mechanisms, from the judgments that are committed.

    python -m benchmarks.paths_judged
    python -m benchmarks.paths_judged --draw graph/ --out sheet.tsv [--but SHEET ...]

The sheets of `benchmarks/results/paths/`, each of prompts chosen by a rule that sees no path: the
best connected pairs of things (endpoints apart), each thing at most twice. `twelve_prompts.tsv`
holds up to six best paths of prompts with at least three, from the demonstration notes, the texts
of `literature/` and the abstracts of BioRED, BC5CDR and BioNLP-ST 2013 Cancer Genetics, read by an
earlier version of `rules` (915 nodes, 1,261 edges). `ten_prompts.tsv` holds the six best paths of
prompts with at least six, from the same texts read by version 16 (1,045 nodes, 1,462 edges), and
`ten_other_prompts.tsv` those of the next ten, once paths through an association of two inner nodes
were refused because of the sheet before. `twenty_prompts_common_causes.tsv` and
`ten_later_prompts.tsv` are of version 17 (1,035 nodes, 1,444 edges), up to six paths of prompts
with at least three, none of the two sheets before; one cause of two effects carried a path in the
former and does not in the latter, which may share prompts with it. They were read blind, mixed with
paths of the two sheets before. Each path was read with its evidence by two readers, the
second without the first one's judgments, and judged: `known` (a mechanism that the field
describes), `plausible` (every step says what its evidence says, and together they would explain),
`co-study` (two things that were measured with a third, no action between them) or `wrong` (a step
that its evidence does not say, or steps that do not join). `--draw` writes the sheet of a graph, to
be judged.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Sequence, Set
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.adapters.claim_audit import kappa
from benchmarks.adapters.triple_review import wilson
from kg.embedding.embed import Embedder
from kg.graph.model import Graph
from kg.paths.find import PathOptions, find_between
from sage.run.wiring import make_embedder
from sage.settings import load

SHEETS = Path(__file__).parent / "results" / "paths"
JUDGMENTS = ("known", "plausible", "co-study", "wrong")
MECHANISM = ("known", "plausible")
COLUMNS = ("prompt", "rank", "account", "evidence", "judgment", "why", "second", "second_why")
PROMPTS, LEAST, TWICE, HUBS = 10, 3, 2, 300


class _Blind:
    """The embedder's name without its work: paths are counted, not ranked."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.dimension = embedder.name, embedder.dimension

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.zeros((len(texts), self.dimension), dtype=np.float32)


def prompts(
    graph: Graph, k: int, embedder: Embedder, but: Set[str] = frozenset()
) -> list[tuple[str, str]]:
    """The best connected pairs of nodes that are no endpoint and have paths, each node twice."""
    from kg.paths.mechanism import NO_BRIDGES, list_blocked_nodes

    able = np.ones(graph.n_nodes, dtype=np.bool_)
    able[list_blocked_nodes(graph, NO_BRIDGES)] = False
    hubs = [n for n in np.argsort(-graph.degree, kind="stable").tolist() if able[n]][:HUBS]
    pairs = sorted(
        ((a, b) for i, a in enumerate(hubs) for b in hubs[i + 1 :]),
        key=lambda pair: -int(graph.degree[pair[0]] * graph.degree[pair[1]]),
    )
    found: list[tuple[str, str]] = []
    used: Counter[int] = Counter()
    options = PathOptions(k=k, max_hops=4, co_study=False, logic=0)
    for a, b in pairs:
        if max(used[a], used[b]) == TWICE or len(found) == PROMPTS:
            continue
        ends = graph.names[a], graph.names[b]
        if " and ".join(ends) in but:
            continue
        if len(find_between(graph, *ends, options, _Blind(embedder)).paths) >= LEAST:
            found.append(ends)
            used.update((a, b))
    return found


def draw(folder: Path, out: Path, but: Sequence[Path] = (), k: int = 6) -> None:
    """The `k` best paths of each prompt with their evidence, judgments left empty.

    Prompts of the sheets `but` are left out, so that a rule that they led to meets others.
    """
    graph, embedder = Graph.load(folder), make_embedder(load())
    options = PathOptions(k=k, max_hops=4, co_study=False)
    asked = prompts(graph, k, embedder, _prompts_of(but))
    with out.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        for ends in asked:
            for rank, path in enumerate(find_between(graph, *ends, options, embedder).paths, 1):
                quotes = [" ".join(edge.evidence[0].text.split()) for edge in path.edges]
                writer.writerow(
                    {"prompt": " and ".join(ends), "rank": rank, "account": path.account(),
                     "evidence": " | ".join(quotes), **dict.fromkeys(COLUMNS[4:], "")}
                )  # fmt: skip


def _prompts_of(sheets: Sequence[Path]) -> set[str]:
    return {row["prompt"] for sheet in sheets for row in _rows(sheet)}


def _rows(sheet: Path) -> list[dict[str, str]]:
    with sheet.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


def judgments(path: Path) -> tuple[list[str], list[str]]:
    """The judgments of the first reader and of the second.

    Raises
    ------
    ValueError
        If a row lacks one, or has one that there is not.
    """
    rows = _rows(path)
    first, second = ([row[name] for row in rows] for name in ("judgment", "second"))
    if unknown := {*first, *second} - set(JUDGMENTS):
        raise ValueError(f"{path}: judgments {sorted(unknown)}; expected {', '.join(JUDGMENTS)}")
    return first, second


def main() -> None:
    """Print the score, or write a sheet to judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--out", type=Path, default=Path("sheet.tsv"))
    parser.add_argument(
        "--but", type=Path, nargs="*", default=[], help="sheets whose prompts are left out"
    )
    given = parser.parse_args()
    if given.draw is not None:
        draw(given.draw, given.out, given.but)
        return
    for sheet in sorted(SHEETS.glob("*.tsv")):
        print("\n".join([f"{sheet.stem}:", *score(sheet), ""]))


def score(sheet: Path) -> list[str]:
    """How many paths of a sheet both readers, and each, call what; and how far they agree."""
    readers = judgments(sheet)
    n = len(readers[0])
    mechanism = [[said in MECHANISM for said in reader] for reader in readers]
    counts = {"known or plausible, both": sum(map(min, *mechanism))}
    for which, reader in zip(("first", "second"), readers, strict=True):
        found = Counter("mechanism" if said in MECHANISM else said for said in reader)
        counts |= {f"{name}, {which}": found[name] for name in ("mechanism", "co-study", "wrong")}
    lines = []
    for name, count in counts.items():
        low, high = wilson(count, n)
        lines.append(f"{name:24} {count / n:.2f} ({low:.2f} to {high:.2f}), {count} of {n}")
    lines.append(
        f"kappa of mechanism or not {kappa(*mechanism):.2f}, of the judgments {kappa(*readers):.2f}"
    )
    return lines


if __name__ == "__main__":
    main()
