"""Client for the Europe PMC REST search.

The rate is limited to 10 requests/s. Documentation: europepmc.org/RestfulWebService.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from kg.literature.access import Access
from kg.literature.boolean import disjunction
from kg.literature.protocol import Wanted
from kg.literature.reading import (
    clean_text,
    get_field,
    list_names,
    parse_day,
    parse_entries,
    parse_json,
    parse_year,
)
from kg.literature.types import Record, clean_doi, says_retracted
from sage.core.http.client import Limit, Request, ServiceClient

LIMIT = Limit(10, 1.0, concurrency=4)


class EuropePmc:
    """Source that searches journals and preprints in a single request."""

    name = "europe_pmc"
    limit = LIMIT

    def __init__(self, access: Access, email: str | None = None) -> None:
        self.base_url = access.address(self.name)

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Run all queries in a single search and return the records."""
        return await client.fetch(
            search_request(self.base_url, disjunction(wanted.queries), wanted.k, wanted.as_of),
            lambda body: parse_records(self.name, body),
            patience=patience,
        )


def search_request(base_url: str, query: str, k: int, as_of: date | None) -> Request:
    """Build a search for full ("core") records, bounded by date of first publication.

    Parameters
    ----------
    as_of : latest date of first publication, inclusive; None for no bound
    """
    if as_of is not None:
        query = f"({query}) AND (FIRST_PDATE:[1800-01-01 TO {as_of.isoformat()}])"
    return Request(
        "europe_pmc",
        LIMIT,
        f"{base_url}/search",
        params={"query": query, "resultType": "core", "format": "json", "pageSize": k},
    )


def parse_records(source: str, body: bytes) -> list[Record]:
    """Parse the records in a search response, with `source` as their origin."""
    answer = parse_json("europe_pmc", body)
    results = get_field("europe_pmc", answer, "resultList.result", list)
    return list(parse_entries("europe_pmc", results, lambda row: make_record(source, row))[0])


def make_record(source: str, row: Mapping[str, Any]) -> Record | None:
    """Build a record from `source` out of a search result; None without a title."""
    title = clean_text(row.get("title"))
    if not title:
        return None
    kinds = list_kinds(row)
    retracted = (
        any("retracted publication" in kind for kind in kinds)
        or any(
            "retraction in" in clean_text(notice.get("type")).lower()
            for notice in list_notices(row)
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


def list_notices(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """List the corrections, retractions and other versions named in a search result."""
    corrections = row.get("commentCorrectionList")
    listed = corrections.get("commentCorrection") if isinstance(corrections, dict) else None
    return [notice for notice in listed if isinstance(notice, dict)] if listed else []


def list_kinds(row: Mapping[str, Any]) -> list[str]:
    """List the publication types in lower case."""
    listed = row.get("pubTypeList")
    if isinstance(listed, dict):
        return [kind.lower() for kind in list_names(listed.get("pubType"))]
    return [clean_text(row.get("pubType")).lower()]
