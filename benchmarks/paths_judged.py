"""Print how many top paths are mechanisms, from the judgments that are committed.

    python -m benchmarks.paths_judged
    python -m benchmarks.paths_judged --draw graph/ --out sheet.tsv

`benchmarks/results/paths/judged.tsv` holds up to six best paths of each of twelve prompts. The
prompts are chosen by a rule that sees no path: the best connected pairs of things (endpoints apart)
with at least three paths between them, each thing at most twice. The graph is that of the
demonstration notes, the texts of `literature/` and the abstracts of BioRED, BC5CDR and BioNLP-ST
2013 Cancer Genetics, read by `rules` with the imported lexicon of `kg/README.md` (915 nodes, 1,261
edges). Each path was read with its evidence by two readers, the second without the first one's
judgments, and judged: `known` (a mechanism that the field
describes), `plausible` (every step says what its evidence says, and together they would explain),
`co-study` (two things that were measured with a third, no action between them) or `wrong` (a step
that its evidence does not say, or steps that do not join). `--draw` writes the sheet of another
graph, to be judged.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from pathlib import Path

import numpy as np

from kg.embedding.embed import HashingEmbedder
from kg.graph.model import Graph
from kg.paths.find import PathOptions, between
from sage.bench.claim_audit import kappa
from sage.bench.triple_review import wilson
from sage.settings import load
from sage.wiring import make_embedder

JUDGED = Path(__file__).parent / "results" / "paths" / "judged.tsv"
JUDGMENTS = ("known", "plausible", "co-study", "wrong")
MECHANISM = ("known", "plausible")
COLUMNS = ("prompt", "rank", "account", "evidence", "judgment", "why", "second", "second_why")
PROMPTS, LEAST, TWICE = 12, 3, 2


def prompts(graph: Graph, k: int) -> list[tuple[str, str]]:
    """The best connected pairs of nodes that are no endpoint and have paths, each node twice."""
    from kg.paths.mechanism import NO_BRIDGES, no_bridges

    able = np.ones(graph.n_nodes, dtype=np.bool_)
    able[no_bridges(graph, NO_BRIDGES)] = False
    hubs = [n for n in np.argsort(-graph.degree, kind="stable").tolist() if able[n]][:40]
    pairs = sorted(
        ((a, b) for i, a in enumerate(hubs) for b in hubs[i + 1 :]),
        key=lambda pair: -int(graph.degree[pair[0]] * graph.degree[pair[1]]),
    )
    found: list[tuple[str, str]] = []
    used: Counter[int] = Counter()
    options = PathOptions(k=k, max_hops=4, prospect=False, co_study=False, logic=0)
    for a, b in pairs:
        if max(used[a], used[b]) == TWICE or len(found) == PROMPTS:
            continue
        ends = graph.names[a], graph.names[b]
        if len(between(graph, *ends, options, HashingEmbedder(64)).paths) >= LEAST:
            found.append(ends)
            used.update((a, b))
    return found


def draw(folder: Path, out: Path, k: int = 6) -> None:
    """The `k` best paths of each prompt with their evidence, judgments left empty."""
    graph, embedder = Graph.load(folder), make_embedder(load())
    options = PathOptions(k=k, max_hops=4, prospect=False, co_study=False)
    asked = prompts(graph, k)
    with out.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        for ends in asked:
            for rank, path in enumerate(between(graph, *ends, options, embedder).paths, 1):
                quotes = [" ".join(edge.evidence[0].text.split()) for edge in path.edges]
                writer.writerow(
                    {"prompt": " and ".join(ends), "rank": rank, "account": path.account(),
                     "evidence": " | ".join(quotes), **dict.fromkeys(COLUMNS[4:], "")}
                )  # fmt: skip


def judgments(path: Path = JUDGED) -> tuple[list[str], list[str]]:
    """The judgments of the first reader and of the second.

    Raises
    ------
    ValueError
        If a row lacks one, or has one that there is not.
    """
    with path.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle, delimiter="\t"))
    first, second = ([row[name] for row in rows] for name in ("judgment", "second"))
    if unknown := {*first, *second} - set(JUDGMENTS):
        raise ValueError(f"{path}: judgments {sorted(unknown)}; expected {', '.join(JUDGMENTS)}")
    return first, second


def main() -> None:
    """Print the score, or write a sheet to judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--out", type=Path, default=Path("sheet.tsv"))
    given = parser.parse_args()
    if given.draw is not None:
        draw(given.draw, given.out)
        return
    readers = judgments()
    n = len(readers[0])
    mechanism = [[said in MECHANISM for said in reader] for reader in readers]
    counts = {"known or plausible, both": sum(map(min, *mechanism))}
    for which, reader in zip(("first", "second"), readers, strict=True):
        found = Counter("mechanism" if said in MECHANISM else said for said in reader)
        counts |= {f"{name}, {which}": found[name] for name in ("mechanism", "co-study", "wrong")}
    for name, count in counts.items():
        low, high = wilson(count, n)
        print(f"{name:24} {count / n:.2f} ({low:.2f} to {high:.2f}), {count} of {n}")
    print(
        f"kappa of mechanism or not {kappa(*mechanism):.2f}, of the judgments {kappa(*readers):.2f}"
    )


if __name__ == "__main__":
    main()
