"""Europe PMC REST search.

Rate: kept at 10 requests/s. Docs: europepmc.org/RestfulWebService.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from kg.literature.boolean import MANY, conjunction, disjunction
from kg.literature.protocol import Page, Search, Wanted
from kg.literature.reading import (
    clean_text,
    get_field,
    list_names,
    parse_day,
    parse_entries,
    parse_json,
    parse_year,
)
from kg.literature.types import Found, Record, clean_doi, says_retracted
from sage.core.http.client import Limit, Request, ServiceClient

BASE = "https://www.ebi.ac.uk/europepmc/webservices/rest"
LIMIT = Limit(10, 1.0, concurrency=4)
PAGE = 100
_HEADING = re.compile(r"<h4>\s*([^<>]{1,80}?)[\s:.]*</h4>")
"""A heading in an abstract: a sentence must not begin with it."""
_PMCID = re.compile(r"PMC\d{3,9}")


class EuropePmc:
    """Search of journals and preprints in a single request."""

    name = "europe_pmc"
    limit = LIMIT
    ordered = True

    def __init__(self, *, base_url: str | None = None) -> None:
        self.base_url = (base_url or BASE).rstrip("/")

    def expression(self, search: Search) -> str:
        """The search in Europe PMC's language."""
        return bound_by_year(conjunction(search.query, synonyms=MANY), search.since)

    async def page(self, client: ServiceClient, search: Search, at: str | None) -> Page:
        """A page by `cursorMark`."""
        return await fetch_page(client, self.base_url, self.name, self.expression(search), at)

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Records for all queries at once."""
        return await client.fetch(
            search_request(self.base_url, disjunction(wanted.queries), wanted.k, wanted.as_of),
            lambda body: parse_records(self.name, body),
            patience=patience,
        )


def search_request(base_url: str, query: str, k: int, as_of: date | None) -> Request:
    """A search in full ("core") records, bounded by first publication date.

    Parameters
    ----------
    as_of : latest date of first publication, itself included; None for no bound
    """
    if as_of is not None:
        query = f"({query}) AND (FIRST_PDATE:[1800-01-01 TO {as_of.isoformat()}])"
    return Request(
        "europe_pmc",
        LIMIT,
        f"{base_url}/search",
        params={"query": query, "resultType": "core", "format": "json", "pageSize": k},
    )


def bound_by_year(query: str, since: int | None) -> str:
    """A search bounded by the year of first publication."""
    return f"({query}) AND (FIRST_PDATE:[{since}-01-01 TO 3000-12-31])" if since else query


async def fetch_page(
    client: ServiceClient, base_url: str, source: str, query: str, at: str | None
) -> Page:
    """A page of a search, credited to `source`.

    Returns
    -------
    The records, and the next cursor; the last page has none or repeats its own.
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


def parse_records(source: str, body: bytes) -> list[Record]:
    """Records of a search answer, credited to `source`."""
    answer = parse_json("europe_pmc", body)
    results = get_field("europe_pmc", answer, "resultList.result", list)
    return list(parse_entries("europe_pmc", results, lambda row: _record(source, row))[0])


def _record(source: str, row: Mapping[str, Any]) -> Record | None:
    title = clean_text(row.get("title"))
    if not title:
        return None
    kinds = _kinds(row)
    retracted = (
        any("retracted publication" in kind for kind in kinds)
        or any(
            "retraction in" in clean_text(notice.get("type")).lower() for notice in _notices(row)
        )
        or says_retracted(title)
    )
    journal = row.get("journalInfo") or {}
    venue = (
        clean_text((journal.get("journal") or {}).get("title")) if isinstance(journal, dict) else ""
    )
    publisher = row.get("bookOrReportDetails") or {}
    venue = venue or (clean_text(publisher.get("publisher")) if isinstance(publisher, dict) else "")
    pmid = row.get("pmid")
    return Record(
        title=title.rstrip("."),
        abstract=clean_text(row.get("abstractText")),
        year=parse_year(row.get("pubYear")) or parse_year(row.get("firstPublicationDate")),
        published=parse_day(row.get("firstPublicationDate")),
        venue=venue or None,
        authors=tuple(
            name.strip()
            for name in clean_text(row.get("authorString")).rstrip(".").split(",")[:6]
            if name.strip()
        ),
        doi=clean_doi(row.get("doi") if isinstance(row.get("doi"), str) else None),
        pmid=pmid if isinstance(pmid, str) and pmid.isdigit() else None,
        retracted=retracted,
        retraction_sources=(source,) if retracted else (),
        preprint=row.get("source") == "PPR" or any("preprint" in kind for kind in kinds),
        sources=(source,),
    )


def _make_found(source: str, row: Mapping[str, Any]) -> Found | None:
    record = _record(source, row)
    if record is None:
        return None
    noted = [
        (clean_text(notice.get("type")).lower(), f"pmid:{notice.get('id')}")
        for notice in _notices(row)
        if notice.get("source") == "MED" and clean_text(notice.get("id")).isdigit()
    ]
    pmcid = clean_text(row.get("pmcid"))
    raw = row.get("abstractText")
    abstract = clean_text(_HEADING.sub(r" \1: ", raw)) if isinstance(raw, str) else ""
    return Found(
        **{**record.model_dump(), "abstract": abstract},
        pmcid=pmcid if _PMCID.fullmatch(pmcid) else None,
        language=clean_text(row.get("language")).lower() or None,
        kinds=tuple(kind for kind in _kinds(row) if kind),
        license=clean_text(row.get("license")).lower() or None,
        versions=tuple(key for kind, key in noted if kind in ("preprint of", "preprint in")),
        retracts=tuple(key for kind, key in noted if kind == "retraction of"),
    )


def _notices(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    corrections = row.get("commentCorrectionList")
    listed = corrections.get("commentCorrection") if isinstance(corrections, dict) else None
    return [notice for notice in listed if isinstance(notice, dict)] if listed else []


def _kinds(row: Mapping[str, Any]) -> list[str]:
    listed = row.get("pubTypeList")
    if isinstance(listed, dict):
        return [kind.lower() for kind in list_names(listed.get("pubType"))]
    return [clean_text(row.get("pubType")).lower()]
