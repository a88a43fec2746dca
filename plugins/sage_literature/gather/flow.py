"""PRISMA flow for a gathering, as JSON, text, a figure, and two tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from sage.core.files import write_json, write_text
from sage.core.printable import count_noun, one_line
from sage_literature.gather.types import Flow, Kept, LeftOut
from sage_literature.records import Found

LABELS = {
    "pubmed": "PubMed",
    "europe_pmc": "Europe PMC",
    "biorxiv": "bioRxiv and medRxiv",
    "openalex": "OpenAlex",
    "semantic_scholar": "Semantic Scholar",
}
_WIDE, _HIGH = 400, 17
"""Width of a box and height of each of its lines, in pixels."""


def write_flow(
    root: Path, flow: Flow, rows: Sequence[tuple[Found, Kept]], left_out: Sequence[LeftOut]
) -> None:
    """Write `prisma.json`, `prisma.svg`, `README.md`, `documents.tsv` and `left-out.tsv`."""
    _table(
        root / "documents.tsv",
        ("file", "title", "year", "identifiers", "text", "source", "license", "reason for no "
                                                                              "full text"),
        (
            (
                kept.file, paper.title, paper.year, " ".join(kept.keys), kept.text, kept.source,
                kept.license, "; ".join(f"{k}: {v}" for k, v in kept.tried.items()),
            )
            for paper, kept in sorted(rows, key=lambda row: row[1].file or "")
        ),
    )  # fmt: skip
    _table(
        root / "left-out.tsv",
        ("stage", "reason", "title", "year", "identifiers", "found in"),
        (
            (x.stage, x.reason, x.title, x.year, " ".join(x.keys), " ".join(x.sources))
            for x in sorted(left_out, key=lambda x: (x.stage, x.reason, x.title))
        ),
    )
    write_text(root / "prisma.svg", figure(flow))
    write_text(root / "README.md", page(flow))
    write_json(root / "prisma.json", flow)


def _table(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    table = csv.writer(text, delimiter="\t", lineterminator="\n")
    table.writerow(head)
    for row in rows:
        table.writerow([_cell(value) for value in row])
    write_text(path, text.getvalue())


def _cell(value: object) -> str:
    """Format a single-line cell that a spreadsheet will not interpret as a formula."""
    plain = one_line("" if value is None else str(value))
    return f"'{plain}" if plain.startswith(("=", "+", "-", "@")) else plain


def boxes(flow: Flow) -> list[tuple[list[str], list[str]]]:
    """Return the flow from top to bottom, with each box's lines and the omissions next to it."""
    found = [
        f"{LABELS[catalog.name]}: {catalog.taken:,}{' (missing)' if catalog.problem else ''}"
        for catalog in flow.catalogs
    ]
    if flow.earlier:
        found.append(f"From earlier rounds: {flow.earlier:,}")
    screening = flow.left_out.get("screening", {})
    late = flow.left_out.get("full text", {})
    kept = flow.screened - sum(screening.values())
    not_had = flow.sought - flow.retrieved
    return [
        (
            [f"Records identified: {flow.identified:,}", *found],
            [f"Duplicates, versions of the same paper: {flow.duplicates:,}"],
        ),
        (
            [f"Papers screened: {flow.screened:,}"],
            [f"Left out: {sum(screening.values()):,}", *_list_counts(screening)],
        ),
        (
            [f"Papers kept: {kept:,}", f"Open full text sought: {flow.sought:,}"],
            [f"No full text available: {not_had:,}", *_list_counts(late)],
        ),
        (
            [
                f"In the corpus: {flow.included:,}",
                f"full text: {flow.retrieved:,}",
                f"title and abstract: {flow.abstracts:,}",
            ],
            [],
        ),
    ]


def _list_counts(reasons: dict[str, int]) -> list[str]:
    return [f"{reason}: {count:,}" for reason, count in reasons.items()]


def page(flow: Flow) -> str:
    """Render the flow as Markdown."""
    plan = flow.plan
    since = f", published since {plan.since}" if plan.since else ""
    lines = [
        f"# {plan.topic}",
        "",
        f"Gathered by `sage literature gather` (round {flow.round}, {flow.date}){since}; at most "
        f"{plan.most:,} records of each catalog and as many papers. `sage kg build` reads this "
        "folder, and `sage literature update` updates a graph built from it.",
        "",
        "## Flow",
        "",
    ]
    for number, (inside, beside) in enumerate(boxes(flow), 1):
        more = f" ({'; '.join(inside[1:])})" if inside[1:] else ""
        lines.append(f"{number}. {inside[0]}{more}")
        lines += [f"   - {text}" for text in beside]
    lines += ["", "## Searches", ""]
    for catalog in flow.catalogs:
        state = f"**missing: {catalog.problem!s}**" if catalog.problem else "read"
        notes = "".join(f"; {note}" for note in catalog.notes)
        lines += [
            f"- {LABELS[catalog.name]}: {catalog.taken:,} of {catalog.total:,}, {state}{notes}",
            f"  `{catalog.asked!s}`",
        ]
    concepts = "; ".join(
        f"{names[0]} ({count_noun(len(names) - 1, 'other name')})" for names in flow.concepts
    )
    lines += [
        "",
        "A paper is on the topic if its title or abstract mentions at least "
        f"{plan.threshold:.0%} of these concepts: {concepts}.",
        "",
        "## Full texts and licenses",
        "",
        f"From: {_join_counts(flow.texts)}. Licenses: {_join_counts(flow.licenses)}. A text"
        " without a stated license is open to read; ask before redistributing it. Each license is"
        " in `documents.tsv`.",
        "",
    ]
    if flow.pending:
        lines += [
            f"Waiting for a service that did not answer: {count_noun(flow.pending, 'paper')}.",
            "",
        ]
    lines += [f"- {note!s}" for note in flow.notes] + ([""] if flow.notes else [])
    if flow.changes:
        lines += ["## Changed by the last update", ""]
        for change in flow.changes:
            why = f": {change.why!s}" if change.why else ""
            lines.append(f"- {change.what}: {change.title} ({change.keys[0]}){why}")
        lines.append("")
    return "\n".join(lines)


def _join_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name!s} {count:,}" for name, count in counts.items()) or "none"


def figure(flow: Flow) -> str:
    """Draw the flow as a PRISMA 2020 style figure."""
    parts, top = [], 20
    rows = boxes(flow)
    for number, (inside, beside) in enumerate(rows):
        height = max(len(inside), len(beside)) * _HIGH + 18
        parts.append(_box(20, top, height, inside))
        if beside:
            parts.append(_box(20 + _WIDE + 60, top, height, beside))
            middle = top + height // 2
            parts.append(_arrow(20 + _WIDE, middle, 20 + _WIDE + 58, middle))
        if number + 1 < len(rows):
            parts.append(_arrow(20 + _WIDE // 2, top + height, 20 + _WIDE // 2, top + height + 26))
        top += height + 28
    wide = 2 * _WIDE + 100
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {top}" width="{wide}" '
        f'height="{top}" font-family="sans-serif" font-size="13" role="img">'
        f"<title>{escape(flow.plan.topic)}: from records to the corpus</title>"
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>'
        f'<rect width="{wide}" height="{top}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _box(left: int, top: int, height: int, lines: Sequence[str]) -> str:
    words = "".join(
        f'<text x="{left + 10}" y="{top + 20 + n * _HIGH}" font-weight="{400 if n else 700}">'
        f"{escape(line[:58])}</text>"
        for n, line in enumerate(lines)
    )
    return (
        f'<rect x="{left}" y="{top}" width="{_WIDE}" height="{height}" fill="none" '
        f'stroke="#444"/>{words}'
    )


def _arrow(x1: int, y1: int, x2: int, y2: int) -> str:
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="#444" marker-end="url(#tip)"/>'
