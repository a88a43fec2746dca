"""Quality of a graph's triples by human review (SAGE, A.5): sample, sheet, and the five figures.

A stratified random sample over relation types is written as a CSV and as a page to click through;
a filled CSV gives factual grounding, relation accuracy, entity type accuracy (strict and lenient)
and hallucination rate, each with a 95% Wilson interval.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel

from kg.types import Triple
from sage.core.errors import InputError
from sage.core.files import write_text

SAMPLE = 200
GIVEN = (
    "number", "id", "title", "year", "pmid", "doi", "section", "head", "head_type", "relation",
    "relation_text", "polarity", "negated", "speculative", "tail", "tail_type", "confidence",
    "evidence",
)  # fmt: skip
QUESTIONS = {
    "grounded": ("Does the evidence state this relation between these two entities?", "yes no"),
    "relation_ok": ("Are relation, direction, polarity and negation right?", "yes no"),
    "head_type_ok": ("Is the head's name and type right?", "yes lenient no"),
    "tail_type_ok": ("Is the tail's name and type right?", "yes lenient no"),
    "hallucinated": ("Does it name something that the evidence does not contain?", "yes no"),
}


class Figure(BaseModel):
    """A proportion with its counts and 95% Wilson interval."""

    value: float
    low: float
    high: float
    count: int
    total: int


class QualityReport(BaseModel):
    """The five figures of SAGE, Table 4."""

    reviewed: int
    unanswered: int
    factual_grounding: Figure
    relation_accuracy: Figure
    entity_type_strict: Figure
    entity_type_lenient: Figure
    hallucination_rate: Figure


def wilson(count: int, total: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """Wilson score interval of a proportion; (0, 1) when nothing was observed."""
    if not total:
        return 0.0, 1.0
    p = count / total
    denominator = 1 + z * z / total
    center = (p + z * z / (2 * total)) / denominator
    half = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total)) / denominator
    return max(0.0, center - half), min(1.0, center + half)


def stratified(triples: Sequence[Triple], size: int = SAMPLE, seed: int = 0) -> list[Triple]:
    """A random sample of `size` triples, proportional over relation types, each type at least once.

    The same triples, size and seed give the same sample, whatever the order of the input.
    """
    strata: dict[str, list[tuple[str, Triple]]] = defaultdict(list)
    for triple in triples:
        strata[triple.relation].append((_rank(triple, seed), triple))
    for members in strata.values():
        members.sort(key=lambda m: m[0])
    total = sum(map(len, strata.values()))
    if total <= size:
        share = {name: len(members) for name, members in strata.items()}
    else:
        share = _allocate({name: len(members) for name, members in strata.items()}, size)
    return [triple for name in sorted(strata) for _, triple in strata[name][: share[name]]]


def _rank(triple: Triple, seed: int) -> str:
    e = triple.evidence
    text = (
        f"{seed}\x1f{e.doc_id}\x1f{e.start}\x1f{triple.head}\x1f{triple.relation}\x1f{triple.tail}"
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _allocate(sizes: dict[str, int], size: int) -> dict[str, int]:
    """Largest remainders over a floor of one per stratum (while there is room for it)."""
    names = sorted(sizes, key=lambda n: (-sizes[n], n))
    share = {name: (1 if position < size else 0) for position, name in enumerate(names)}
    total = sum(sizes.values())
    left = size - sum(share.values())
    exact = {name: size * sizes[name] / total for name in names}
    while left > 0:
        open_names = [n for n in names if share[n] < sizes[n]]
        if not open_names:
            break
        name = max(open_names, key=lambda n: (exact[n] - share[n], n))
        share[name] += 1
        left -= 1
    return share


def write_sheet(sample: Sequence[Triple], folder: Path) -> tuple[Path, Path]:
    """Write `review.csv` and `review.html` into `folder`; an existing filled sheet is not touched.

    Raises
    ------
    InputError
        If `review.csv` exists with answers in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sheet, page = folder / "review.csv", folder / "review.html"
    if sheet.is_file() and any(any(row[q] for q in QUESTIONS) for row in _read(sheet)):
        raise InputError(f"{sheet} holds answers; move it away or name another folder")
    rows = [_row(number, triple) for number, triple in enumerate(sample, 1)]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [*GIVEN, *QUESTIONS])
    writer.writeheader()
    writer.writerows(rows)
    write_text(sheet, buffer.getvalue())
    write_text(page, _page(rows))
    return sheet, page


def _row(number: int, triple: Triple) -> dict[str, object]:
    evidence = triple.evidence
    return {
        "number": number,
        "id": _rank(triple, 0)[:16],
        "title": evidence.title,
        "year": evidence.year,
        "pmid": evidence.pmid,
        "doi": evidence.doi,
        "section": evidence.section,
        "head": triple.head,
        "head_type": triple.head_type.value,
        "relation": triple.relation,
        "relation_text": triple.relation_text,
        "polarity": triple.polarity.value,
        "negated": "yes" if triple.negated else "no",
        "speculative": "yes" if triple.speculative else "no",
        "tail": triple.tail,
        "tail_type": triple.tail_type.value,
        "confidence": triple.confidence,
        "evidence": evidence.text,
    } | dict.fromkeys(QUESTIONS, "")


def _read(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle)
            missing = [q for q in QUESTIONS if q not in (reader.fieldnames or [])]
            if missing:
                raise InputError(f"{path}: no column {', '.join(missing)}; not a review sheet")
            return [{k: (v or "").strip() for k, v in row.items() if k} for row in reader]
    except OSError as error:
        raise InputError(f"{path}: cannot read the sheet ({error.strerror})") from None


def score_sheet(path: Path) -> QualityReport:
    """The five figures from a filled sheet. Rows without any answer are left out and counted.

    Raises
    ------
    InputError
        If an answer is not one of those allowed, a row is half filled, or nothing is filled.
    """
    answered: list[dict[str, str]] = []
    unanswered = 0
    for number, row in enumerate(_read(path), start=2):
        given = {q: row[q].lower() for q in QUESTIONS}
        if not any(given.values()):
            unanswered += 1
            continue
        for question, value in given.items():
            allowed = QUESTIONS[question][1].split()
            if value not in allowed:
                shown = repr(value) if value else "empty"
                raise InputError(
                    f"{path}, line {number}: {question} is {shown}; write one of "
                    f"{', '.join(allowed)}, or leave the whole row empty"
                )
        answered.append(given)
    if not answered:
        raise InputError(f"{path}: no row is filled; answer {', '.join(QUESTIONS)} first")
    types = [row[q] for row in answered for q in ("head_type_ok", "tail_type_ok")]
    return QualityReport(
        reviewed=len(answered),
        unanswered=unanswered,
        factual_grounding=proportion(row["grounded"] == "yes" for row in answered),
        relation_accuracy=proportion(row["relation_ok"] == "yes" for row in answered),
        entity_type_strict=proportion(value == "yes" for value in types),
        entity_type_lenient=proportion(value in {"yes", "lenient"} for value in types),
        hallucination_rate=proportion(row["hallucinated"] == "yes" for row in answered),
    )


def proportion(values: Iterable[bool]) -> Figure:
    """The share of true values; there must be some."""
    listed = list(values)
    count, total = sum(listed), len(listed)
    low, high = wilson(count, total)
    return Figure(
        value=round(count / total, 6), low=round(low, 6), high=round(high, 6), count=count,
        total=total,
    )  # fmt: skip


def _page(rows: Sequence[dict[str, object]]) -> str:
    # `</` inside a script element would end it: titles and sentences come from papers.
    data = json.dumps(rows, ensure_ascii=False).replace("</", "<\\/")
    questions = json.dumps({q: [text, allowed.split()] for q, (text, allowed) in QUESTIONS.items()})
    template = (Path(__file__).parent / "evaluate_page.html").read_text(encoding="utf-8")
    return template.replace("/*QUESTIONS*/{}", questions).replace("/*ROWS*/[]", data)
