"""Crossref REST API for bibliographic search.

Rate: kept at 1 list request/s, or 3 with a contact address (the polite pool), one
connection. Docs: crossref.org/documentation/retrieve-metadata/rest-api.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from kg.literature.access import Access
from kg.literature.boolean import strip_operators
from kg.literature.protocol import Wanted
from kg.literature.reading import clean_text, get_field, list_names, parse_entries, parse_json
from kg.literature.types import Record, clean_doi, says_retracted
from sage.core.http.client import Limit, Request, ServiceClient

_OTHER = ("component", "grant", "peer-review", "journal", "journal-issue")
"""Work types that are not publications."""


class Crossref:
    """Crossref catalog; only the first query is sent, since Crossref does not support OR.

    Crossref ranks results by matching words. Retractions come from `updated-by` (which
    includes the Retraction Watch data) and from titles.
    """

    name = "crossref"

    def __init__(self, access: Access, email: str | None = None) -> None:
        self.base_url = access.address(self.name)
        self.limit = Limit(3 if email else 1, 1.0, concurrency=1)
        self._secret = {"mailto": email} if email else {}

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Return records for the first query."""
        params: dict[str, str | int] = {
            "query.bibliographic": strip_operators(wanted.queries[0].text)[:300],
            "rows": wanted.k,
        }
        if wanted.as_of is not None:
            params["filter"] = f"until-pub-date:{wanted.as_of.isoformat()}"
        request = Request(
            self.name,
            self.limit,
            f"{self.base_url}/works",
            params=params,
            secret_params=self._secret,
        )
        return await client.fetch(request, self._parse, patience=patience)

    def _parse(self, body: bytes) -> list[Record]:
        items = get_field(self.name, parse_json(self.name, body), "message.items", list)
        works = [item for item in items if item.get("type") not in _OTHER]
        return list(parse_entries(self.name, works, self._record)[0])

    def _record(self, row: Mapping[str, Any]) -> Record | None:
        doi = clean_doi(get_field(self.name, row, "DOI", str))
        title = clean_text(row.get("title"))
        if not title or row.get("type") in _OTHER:
            return None
        notices = [
            notice
            for notice in row.get("updated-by") or []
            if isinstance(notice, Mapping) and "retract" in clean_text(notice.get("type")).lower()
        ]
        retracted = bool(notices) or says_retracted(title)
        published, year = _dates(row)
        return Record(
            title=title,
            abstract=clean_text(row.get("abstract")).removeprefix("Abstract ").strip(),
            year=year,
            published=published,
            venue=clean_text(row.get("container-title")) or None,
            authors=list_names(row.get("author")),
            doi=doi,
            retracted=retracted,
            retracted_on=next(
                (day for notice in notices if (day := _day(notice.get("updated")))), None
            ),
            retraction_sources=(self.name,) if retracted else (),
            preprint=row.get("type") == "posted-content",
            sources=(self.name,),
        )


def _dates(row: Mapping[str, Any]) -> tuple[date | None, int | None]:
    """Find the earliest full date and the earliest year of online and print publication."""
    days, years = [], []
    for name in ("published-online", "published-print", "published", "issued"):
        value = row.get(name)
        day = _day(value)
        if day is not None:
            days.append(day)
        parts = _parts(value)
        if parts:
            years.append(parts[0])
    return min(days, default=None), min(years, default=None)


def _day(value: Any) -> date | None:
    parts = _parts(value)
    try:
        return date(parts[0], parts[1], parts[2]) if len(parts) >= 3 else None
    except (ValueError, OverflowError):
        return None


def _parts(value: Any) -> list[int]:
    nested = value.get("date-parts") if isinstance(value, Mapping) else None
    first = nested[0] if isinstance(nested, list) and nested else None
    if not isinstance(first, list):
        return []
    return [part for part in first if isinstance(part, int)]
