"""Europe PMC as a catalog that is read with a cursor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kg.literature.boolean import MANY, conjunction
from kg.literature.europe_pmc import LIMIT, EuropePmc, list_kinds, list_notices, make_record
from kg.literature.reading import clean_text, get_field, parse_entries, parse_json
from sage.core.http.client import Request, ServiceClient
from sage_literature.records import Found, Page, Search

PAGE = 100
_HEADING = re.compile(r"<h4>\s*([^<>]{1,80}?)[\s:.]*</h4>")
"""Pattern of a heading in an abstract, which must not begin a sentence."""
_PMCID = re.compile(r"PMC\d{3,9}")


class EuropePmcCatalog(EuropePmc):
    """Europe PMC, read to the last page of search results."""

    ordered = True

    def expression(self, search: Search) -> str:
        """Return the search in Europe PMC's query language."""
        return bound_by_year(conjunction(search.query, synonyms=MANY), search.since)

    async def page(self, client: ServiceClient, search: Search, at: str | None) -> Page:
        """Fetch a page by `cursorMark`."""
        return await fetch_page(client, self.base_url, self.name, self.expression(search), at)


def bound_by_year(query: str, since: int | None) -> str:
    """Restrict a search to works first published in or after the year `since`."""
    return f"({query}) AND (FIRST_PDATE:[{since}-01-01 TO 3000-12-31])" if since else query


async def fetch_page(
    client: ServiceClient, base_url: str, source: str, query: str, at: str | None
) -> Page:
    """Fetch a page of search results, credited to `source`.

    Returns
    -------
    The records and the next cursor; on the last page, it is missing or repeated.
    """
    cursor = at or "*"
    request = Request(
        "europe_pmc",
        LIMIT,
        f"{base_url}/search",
        params={
            "query": query,
            "resultType": "core",
            "format": "json",
            "pageSize": PAGE,
            "cursorMark": cursor,
        },
    )

    def read_page(body: bytes) -> Page:
        answer = parse_json("europe_pmc", body)
        rows = get_field("europe_pmc", answer, "resultList.result", list)
        following = answer.get("nextCursorMark") if rows else None
        records, unread = parse_entries("europe_pmc", rows, lambda row: _make_found(source, row))
        return Page(
            records=records,
            next=following if isinstance(following, str) and following != cursor else None,
            total=get_field("europe_pmc", answer, "hitCount", int),
            unread=unread,
        )

    return await client.fetch(request, read_page)


def _make_found(source: str, row: Mapping[str, Any]) -> Found | None:
    record = make_record(source, row)
    if record is None:
        return None
    noted = [
        (clean_text(notice.get("type")).lower(), f"pmid:{notice.get('id')}")
        for notice in list_notices(row)
        if notice.get("source") == "MED" and clean_text(notice.get("id")).isdigit()
    ]
    pmcid = clean_text(row.get("pmcid"))
    raw = row.get("abstractText")
    abstract = clean_text(_HEADING.sub(r" \1: ", raw)) if isinstance(raw, str) else ""
    return Found(
        **{**record.model_dump(), "abstract": abstract},
        pmcid=pmcid if _PMCID.fullmatch(pmcid) else None,
        language=clean_text(row.get("language")).lower() or None,
        kinds=tuple(kind for kind in list_kinds(row) if kind),
        license=clean_text(row.get("license")).lower() or None,
        versions=tuple(key for kind, key in noted if kind in ("preprint of", "preprint in")),
        retracts=tuple(key for kind, key in noted if kind == "retraction of"),
    )
