"""Judged samples: the number of extracted triples and top paths that two readers call correct.

`results/extraction/held_out.tsv` contains 300 triples extracted by the rules (version 11)
from abstracts that took no part in development (BioNLP-ST 2013 Cancer Genetics, the
development half of BC5CDR). They were sampled by a hash and judged against their sentence
twice by one reader and once by a second reader; a triple is correct if all three
judgments agree that it is. `held_out_17.tsv` contains 120 triples that version 17 keeps,
judged by two readers. The sheets in `results/paths/` contain the best paths for prompts
chosen without seeing paths, each judged by two readers as `known`, `plausible`,
`co-study` or `wrong`.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.adapters.claim_audit import kappa
from benchmarks.runner import Report, Row, share
from kg.extract.probability import SHOWN

RESULTS = Path(__file__).resolve().parents[1] / "results"
JUDGMENTS = ("known", "plausible", "co-study", "wrong")
MECHANISM = ("known", "plausible")


def load_sheet(path: Path) -> list[dict[str, str]]:
    """Load the rows of a tab-separated sheet."""
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


def load_judgments(path: Path) -> tuple[list[str], list[str]]:
    """Load both readers' judgments of the paths.

    Raises
    ------
    ValueError
        If a judgment is missing or unknown.
    """
    rows = load_sheet(path)
    first, second = ([row[name] for row in rows] for name in ("judgment", "second"))
    if unknown := {*first, *second} - set(JUDGMENTS):
        raise ValueError(
            f"{path}: unknown judgments {sorted(unknown)}; expected {', '.join(JUDGMENTS)}"
        )
    return first, second


def score_paths(path: Path) -> Row:
    """Compute the share of a sheet's paths that both readers call a mechanism."""
    readers = load_judgments(path)
    mechanism = [[judgment in MECHANISM for judgment in reader] for reader in readers]
    both = [all(pair) for pair in zip(*mechanism, strict=True)]
    wrong = [reader.count("wrong") for reader in readers]
    return Row(
        benchmark=f"Top paths, {path.stem}",
        measured=f"{len(both)} paths; known or plausible by both readers",
        sage=share(sum(both), len(both)),
        notes=(
            f"each reader {sum(mechanism[0])} and {sum(mechanism[1])}; wrong {wrong[0]} and"
            f" {wrong[1]}; kappa {kappa(*mechanism) or 1:.2f}.",
        ),
    )


def group_quarters(read: Sequence[tuple[float, bool]]) -> list[tuple[float, list[bool]]]:
    """Compute the mean probability and judgments within quarters of the triples by probability."""
    order = sorted(read)
    parts = [order[at * len(order) // 4 : (at + 1) * len(order) // 4] for at in range(4)]
    return [(sum(p for p, _ in part) / len(part), [right for _, right in part]) for part in parts]


def score_triples(name: str, readers: tuple[str, ...]) -> Row:
    """Compute the share of triples that all readers call correct, with reliability by quarters."""
    rows = load_sheet(RESULTS / "extraction" / name)
    right = [all(row[reader] == "1" for reader in readers) for row in rows]
    kept = [(row, ok) for row, ok in zip(rows, right, strict=True)
            if row["probability"] and float(row["probability"]) >= SHOWN]  # fmt: skip
    fresh = [(float(row["probability"]), ok) for row, ok in kept
             if row.get("half", "reliability") == "reliability"]  # fmt: skip
    first = [all(row[reader] == "1" for reader in readers[:-1]) for row in rows]
    last = [row[readers[-1]] == "1" for row in rows]
    quarters = "; ".join(
        f"{probability:.2f} {share(sum(hits), len(hits))}"
        for probability, hits in group_quarters(fresh)
    )
    return Row(
        benchmark=f"Extracted triples, {name}",
        measured=f"{len(kept)} of {len(rows)} triples above the threshold; right by all readers",
        baseline=f"{share(sum(right), len(right))} (all, without the threshold)",
        sage=share(sum(ok for _, ok in kept), len(kept)),
        notes=(f"probability and share right by quarter: {quarters}; kappa of two readers"
               f" {kappa(first, last) or 1:.3f}.",),
    )  # fmt: skip


def run() -> Report:
    """Score the committed judgments."""
    rows = [
        score_triples("held_out.tsv", ("first", "second", "other")),
        score_triples("held_out_17.tsv", ("first", "second")),
        *(score_paths(path) for path in sorted((RESULTS / "paths").glob("*.tsv"))),
    ]
    return Report(rows=tuple(rows))
