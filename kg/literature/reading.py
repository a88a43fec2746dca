"""Strict parsing of responses: a field with an unexpected type means that the source changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from html import unescape
from typing import Any, TypeVar

from kg.literature.types import Record
from sage.core.http.errors import SourceChanged

_TAG = re.compile(r"<[^>]{0,200}>")
_MOST_NAMES = 6


def parse_json(service: str, body: bytes) -> Any:
    """Parse the body as JSON; raise `SourceChanged` for HTML or truncated JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as problem:
        head = body[:60].decode("utf-8", "replace").strip()
        kind = "markup" if head.startswith("<") else "no valid JSON"
        raise SourceChanged(service, f"returned {kind} instead of JSON") from problem


def get_field(service: str, value: Any, path: str, kind: type | tuple[type, ...]) -> Any:
    """Return `value[a][b]` for the path "a.b", checking that it has the documented type.

    Parameters
    ----------
    path : names of nested fields, joined by dots

    Raises
    ------
    SourceChanged
        If a field along the path is missing, or the last field has another type.
    """
    for step in path.split("."):
        if not isinstance(value, Mapping) or step not in value:
            raise SourceChanged(service, f'field "{path}" is missing from the response')
        value = value[step]
    if not isinstance(value, kind):
        raise SourceChanged(service, f'field "{path}" has an unexpected type')
    return value


T = TypeVar("T", bound=Record)


def require_records(service: str, listed: Sequence[object], records: list[T]) -> list[T]:
    """Return `records`; raise `SourceChanged` if entries were listed but none could be read."""
    if listed and not records:
        raise SourceChanged(
            service, f'none of the {len(listed)} entries has the field "title" any more'
        )
    return records


def parse_entries(
    service: str, rows: Sequence[Any], read: Callable[[Any], T | None]
) -> tuple[tuple[T, ...], int]:
    """Parse a page's entries; return the records and the number of entries that are not records.

    Raises `SourceChanged` if there are entries but none of them is a record.
    """
    records = [record for row in rows if (record := read(row)) is not None]
    return tuple(require_records(service, rows, records)), len(rows) - len(records)


def clean_text(value: Any) -> str:
    """Return a string without markup, or an empty string for any other type."""
    if isinstance(value, list):
        value = value[0] if value else ""
    if not isinstance(value, str):
        return ""
    return " ".join(unescape(_TAG.sub(" ", value)).split())


def parse_year(value: Any) -> int | None:
    """Parse a plausible year from 2019, "2019", "2019-05-01" or "2019 May"."""
    match = re.match(r"\s*(1[6-9]\d\d|20\d\d)\b", str(value)) if value is not None else None
    return int(match[1]) if match else None


_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}


def parse_day(value: Any) -> date | None:
    """Parse a full date such as "2019-05-01", "2019/05/01", "20190501" or "2019 May 1", or None."""
    if not isinstance(value, str):
        return None
    match = re.match(r"\s*(\d{4})[-/]?(\d{2})[-/]?(\d{2})(?!\d)", value)
    if match:
        parts: tuple[int, int, int] = (int(match[1]), int(match[2]), int(match[3]))
    else:
        named = re.match(r"\s*(\d{4})\s+([A-Za-z]{3})[a-z]*\s+(\d{1,2})\b", value)
        if named is None or named[2].lower() not in _MONTHS:
            return None
        parts = (int(named[1]), _MONTHS[named[2].lower()], int(named[3]))
    try:
        return date(*parts)
    except ValueError:
        return None


def list_names(value: Any) -> tuple[str, ...]:
    """Extract author names from a list of strings or of objects with a name."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    found = []
    for name in value[:_MOST_NAMES]:
        if isinstance(name, Mapping):
            parts = name
            name = parts.get("fullName") or parts.get("name")
            if not name and parts.get("family"):
                name = f"{parts['family']} {parts.get('given', '')}".strip()
        if isinstance(name, str) and name.strip():
            found.append(name.strip())
    return tuple(found)
