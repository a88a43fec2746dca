"""Calibration sets: known cases, with dated literature for them."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import Field

from agents.core.base import View
from kg.literature.local import NAME
from kg.literature.types import Record, clean_doi
from sage.core.errors import InputError

Tier = Literal["A", "B", "C", "D", "E"]


class Proposal(View):
    """A known case. `own_title` is the title of its paper, which is never used as evidence."""

    id: str
    tier: Tier
    statement: str
    parts: tuple[str, ...] = Field(min_length=2)
    as_of: date
    domain: str = ""
    own_title: str = ""
    reference: str = ""
    doi: str | None = None


def load_literature(path: Path) -> list[Record]:
    """Load dated records with findings, one JSON object per line."""
    records = []
    for number, line in enumerate(_read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            retracted = bool(row.get("retracted"))
            records.append(
                Record(
                    title=row["title"],
                    authors=tuple(row.get("authors", ())),
                    year=row["year"],
                    published=_parse_day(row.get("published")),
                    venue=row.get("venue"),
                    doi=clean_doi(row.get("doi")),
                    retracted=retracted,
                    retracted_on=_parse_day(row.get("retracted_on")),
                    retraction_sources=(NAME,) if retracted else (),
                    sources=(NAME,),
                    snippets=tuple(row.get("findings", ())),
                )
            )
        except (ValueError, KeyError, TypeError) as problem:
            raise InputError(f"{path}:{number}: not a dated record ({problem})") from None
    return records


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: file not found") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: unreadable ({problem})") from None


def _parse_day(value: object) -> date | None:
    return date.fromisoformat(value) if isinstance(value, str) else None
