"""OpenAlex: a catalog for gathering, and a second source on retractions.

Rate: kept at 10 requests/s. Searching and paging need a free key; without it, OpenAlex
allows about a hundred list requests a day. Docs: developers.openalex.org.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kg.literature.access import Access
from kg.literature.boolean import MANY, conjunction, quote_phrase
from kg.literature.reading import (
    clean_text,
    get_field,
    list_names,
    parse_day,
    parse_entries,
    parse_json,
    parse_year,
)
from kg.literature.types import Record, clean_doi
from sage.core.http.client import Limit, Request, ServiceClient
from sage.core.http.errors import Unavailable
from sage_literature.records import Found, Page, Search

_PER_REQUEST = 50
_PER_PAGE = 100
_FIELDS = (
    "id,doi,ids,title,abstract_inverted_index,publication_year,publication_date,language,type,"
    "is_retracted,primary_location,best_oa_location,authorships"
)
_LONGEST = 20_000
"""Number of words in an abstract beyond which its index is considered wrong."""


class OpenAlex:
    """OpenAlex catalog, which searches titles and abstracts and flags retracted records."""

    name = "openalex"
    limit = Limit(10, 1.0, concurrency=2)
    ordered = True

    def __init__(self, access: Access, email: str | None = None) -> None:
        key = access.key(self.name)
        self.base_url = access.address(self.name)
        self._refused = self.name not in access.urls and key is None
        self._secret = {"api_key": key} if key else {}
        if email:
            self._secret["mailto"] = email

    def expression(self, search: Search) -> str:
        """Return the search as a works filter, whose own syntax includes commas and pipes."""
        searched = conjunction(
            search.query, lambda name: quote_phrase(re.sub("[,|]", " ", name)), MANY
        )
        dates = f",from_publication_date:{search.since}-01-01" if search.since else ""
        return f"title_and_abstract.search:{searched}{dates}"

    async def page(self, client: ServiceClient, search: Search, at: str | None) -> Page:
        """Fetch a page by `cursor`."""
        if self._refused:
            raise Unavailable(
                self.name,
                "requires a free API key (openalex.org); set services.openalex_key in "
                "sage.toml, or OPENALEX_API_KEY",
            )
        request = Request(
            self.name,
            self.limit,
            f"{self.base_url}/works",
            params={
                "filter": self.expression(search),
                "select": _FIELDS,
                "per_page": _PER_PAGE,
                "cursor": at or "*",
            },
            secret_params=self._secret,
        )
        return await client.fetch(request, self._read_page)

    def _read_page(self, body: bytes) -> Page:
        answer = parse_json(self.name, body)
        works = get_field(self.name, answer, "results", list)
        following = get_field(self.name, answer, "meta.next_cursor", (str, type(None)))
        records, unread = parse_entries(self.name, works, _make_found)
        total = get_field(self.name, answer, "meta.count", int)
        return Page(records=records, next=following if works else None, total=total, unread=unread)

    async def mark(
        self, client: ServiceClient, records: Sequence[Record], patience: float | None = None
    ) -> list[Record]:
        """Add OpenAlex's retraction flags to the records, keeping their order."""
        known = [record.doi for record in records if record.doi]
        # Commas and pipes are the filter's own syntax, so such DOIs cannot be requested.
        dois = [doi for doi in known if "," not in doi and "|" not in doi][:_PER_REQUEST]
        if not dois:
            return list(records)
        request = Request(
            self.name,
            self.limit,
            f"{self.base_url}/works",
            params={
                "filter": "doi:" + "|".join(sorted(dois)),
                "select": "doi,is_retracted",
                "per-page": _PER_REQUEST,
            },
            secret_params=self._secret,
        )
        retracted = await client.fetch(request, self._parse, patience=patience)
        return [
            record.model_copy(
                update={
                    "retracted": True,
                    "retraction_sources": (*record.retraction_sources, self.name),
                }
            )
            if record.doi in retracted
            else record
            for record in records
        ]

    def _parse(self, body: bytes) -> set[str]:
        works = get_field(self.name, parse_json(self.name, body), "results", list)
        return {
            doi
            for work in works
            if get_field(self.name, work, "is_retracted", bool)
            and (doi := clean_doi(get_field(self.name, work, "doi", (str, type(None)))))
        }


def _make_found(work: Mapping[str, Any]) -> Found | None:
    title = clean_text(work.get("title"))
    if not title:
        return None
    known = _part(work, "ids")
    pmid = re.search(r"(\d{1,8})/?$", clean_text(known.get("pmid")))
    pmcid = re.search(r"(?:PMC)?(\d{3,9})/?$", clean_text(known.get("pmcid")))
    retracted = work.get("is_retracted") is True
    kind = clean_text(work.get("type")).lower()
    place = _part(work, "best_oa_location")
    address, license_ = clean_text(place.get("pdf_url")), clean_text(place.get("license")).lower()
    authors = work.get("authorships")
    return Found(
        title=title.rstrip("."),
        abstract=_abstract(work.get("abstract_inverted_index")),
        year=parse_year(work.get("publication_year")),
        published=parse_day(work.get("publication_date")),
        venue=clean_text(_part(_part(work, "primary_location"), "source").get("display_name"))
        or None,
        authors=list_names(
            [_part(author, "author").get("display_name") for author in authors or ()]
        ),
        doi=clean_doi(clean_text(work.get("doi"))),
        pmid=pmid[1] if pmid else None,
        pmcid=f"PMC{pmcid[1]}" if pmcid else None,
        retracted=retracted,
        retraction_sources=("openalex",) if retracted else (),
        preprint=kind == "preprint",
        sources=("openalex",),
        language=clean_text(work.get("language")).lower() or None,
        kinds=(kind,) if kind else (),
        license=license_ or None,
        pdfs=((address, license_),) if address and license_ else (),
    )


def _part(value: Any, name: str) -> Mapping[str, Any]:
    part = value.get(name) if isinstance(value, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _abstract(index: Any) -> str:
    """Rebuild an abstract from an inverted index of words and their positions."""
    if not isinstance(index, Mapping):
        return ""
    placed = [
        (place, word)
        for word, places in index.items()
        if isinstance(places, list)
        for place in places
        if isinstance(place, int)
    ]
    return (
        clean_text(" ".join(word for _, word in sorted(placed))) if len(placed) <= _LONGEST else ""
    )
