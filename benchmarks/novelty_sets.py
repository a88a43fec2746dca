"""Calibration sets: known cases, dated literature for them, labeled ideas, human reviews."""

from __future__ import annotations

import csv
import json
import re
import sys
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from agents.core.base import View
from kg.literature.local import NAME
from kg.literature.types import Record, clean_doi
from sage.core.errors import InputError, explain_validation

Tier = Literal["A", "B", "C", "D", "E"]


class Proposal(View):
    """One known case. `own_title` is the paper that the case is about: never used as evidence."""

    id: str
    tier: Tier
    statement: str
    parts: tuple[str, ...] = Field(min_length=2)
    as_of: date
    domain: str = ""
    own_title: str = ""
    reference: str = ""
    doi: str | None = None


class Idea(View):
    """One idea with experts' label and the papers that were found for it."""

    id: str
    statement: str
    parts: tuple[str, ...]
    label: float
    papers: tuple[Record, ...]


def read_proposals(path: Path) -> list[Proposal]:
    """Proposals, one JSON object per line.

    Raises
    ------
    InputError
        If a line is no proposal: names the line and the field.
    """
    found = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(Proposal.model_validate_json(line))
        except ValidationError as problem:
            raise InputError(f"{path}:{number}: {explain_validation(problem)}") from None
    if not found:
        raise InputError(f"{path}: no proposal; give one JSON object per line")
    return found


def read_literature(path: Path) -> list[Record]:
    """Dated records with findings, one JSON object per line (`data/novelty/literature.jsonl`)."""
    records = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            one = json.loads(line)
            retracted = bool(one.get("retracted"))
            records.append(
                Record(
                    title=one["title"],
                    authors=tuple(one.get("authors", ())),
                    year=one["year"],
                    published=_day(one.get("published")),
                    venue=one.get("venue"),
                    doi=clean_doi(one.get("doi")),
                    retracted=retracted,
                    retracted_on=_day(one.get("retracted_on")),
                    retraction_sources=(NAME,) if retracted else (),
                    sources=(NAME,),
                    snippets=tuple(one.get("findings", ())),
                )
            )
        except (ValueError, KeyError, TypeError) as problem:
            raise InputError(f"{path}:{number}: no dated record ({problem})") from None
    return records


def read_ideas(path: Path) -> list[Idea]:
    """Ideas labeled novel or not by experts, with ten papers each (a CSV of that benchmark).

    Parts are the phrases that the idea itself sets in bold; words are otherwise too many.
    """
    csv.field_size_limit(min(sys.maxsize, 10_000_000))
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    missing = {"idea", "class", "paper0_title"} - set(rows[0] if rows else ())
    if missing:
        raise InputError(f"{path}: no column {', '.join(sorted(missing))}; is this the idea set?")
    ideas = []
    for number, row in enumerate(rows, start=1):
        bold = [_squeeze(found) for found in re.findall(r"(?s)\*\*(.+?)\*\*", row["idea"])]
        plain = _squeeze(row["idea"].replace("**", ""))
        parts = tuple(dict.fromkeys(name for name in bold if name))[:6] or tuple(plain.split()[:6])
        papers = tuple(
            Record(
                title=_squeeze(row[f"paper{n}_title"]),
                abstract=_squeeze(row.get(f"paper{n}_abstract") or ""),
                sources=("dataset",),
            )
            for n in range(10)
            if (row.get(f"paper{n}_title") or "").strip()
        )
        label = 1.0 if row["class"].strip().lower() == "novel" else 0.0
        ideas.append(Idea(id=str(number), statement=plain, parts=parts, label=label, papers=papers))
    return ideas


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read ({problem})") from None


def _day(value: object) -> date | None:
    return date.fromisoformat(value) if isinstance(value, str) else None


def _squeeze(text: str) -> str:
    return " ".join(text.split())
