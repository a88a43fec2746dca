"""Europe PMC REST search.

Rate: kept at 10 requests/s. Docs: europepmc.org/RestfulWebService.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from kg.literature.boolean import disjunction
from kg.literature.protocol import Wanted
from kg.literature.reading import as_json, day_of, field, names, some, text, year_of
from kg.literature.types import Record, clean_doi, says_retracted
from sage.core.http.client import Limit, Request, ServiceClient

BASE = "https://www.ebi.ac.uk/europepmc/webservices/rest"
LIMIT = Limit(10, 1.0, concurrency=4)


class EuropePmc:
    """One request per search; covers journals and preprints."""

    name = "europe_pmc"
    limit = LIMIT

    def __init__(self, *, base_url: str = BASE) -> None:
        self.base_url = base_url.rstrip("/")

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Records for all queries at once."""
        return await client.fetch(
            search_request(self.base_url, disjunction(wanted.queries), wanted.k, wanted.as_of),
            lambda body: read(self.name, body),
            patience=patience,
        )


def search_request(base_url: str, query: str, k: int, as_of: date | None) -> Request:
    """A search in full ("core") records, bounded by first publication date.

    Parameters
    ----------
    base_url : root of the REST service, without a slash at its end
    query : in the service's own syntax
    k : records on the one page that is asked for
    as_of : latest date of first publication, itself included; None for no bound

    Returns
    -------
    A request to send through the shared client, which keeps the service's rate.
    """
    if as_of is not None:
        query = f"({query}) AND (FIRST_PDATE:[1800-01-01 TO {as_of.isoformat()}])"
    return Request(
        "europe_pmc",
        LIMIT,
        f"{base_url}/search",
        params={"query": query, "resultType": "core", "format": "json", "pageSize": k},
    )


def read(source: str, body: bytes) -> list[Record]:
    """Records of a search answer, credited to `source`."""
    answer = as_json("europe_pmc", body)
    results = field("europe_pmc", answer, "resultList.result", list)
    records = [record for result in results if (record := _record(source, result)) is not None]
    return some("europe_pmc", results, records)


def _record(source: str, row: Mapping[str, Any]) -> Record | None:
    title = text(row.get("title"))
    if not title:
        return None
    kinds = _kinds(row)
    corrections = row.get("commentCorrectionList") or {}
    notices = corrections.get("commentCorrection", []) if isinstance(corrections, dict) else []
    retracted = (
        any("retracted publication" in kind for kind in kinds)
        or any("retraction in" in text(notice.get("type")).lower() for notice in notices)
        or says_retracted(title)
    )
    journal = row.get("journalInfo") or {}
    venue = text((journal.get("journal") or {}).get("title")) if isinstance(journal, dict) else ""
    publisher = row.get("bookOrReportDetails") or {}
    venue = venue or (text(publisher.get("publisher")) if isinstance(publisher, dict) else "")
    pmid = row.get("pmid")
    return Record(
        title=title.rstrip("."),
        abstract=text(row.get("abstractText")),
        year=year_of(row.get("pubYear")) or year_of(row.get("firstPublicationDate")),
        published=day_of(row.get("firstPublicationDate")),
        venue=venue or None,
        authors=tuple(
            name.strip()
            for name in text(row.get("authorString")).rstrip(".").split(",")[:6]
            if name.strip()
        ),
        doi=clean_doi(row.get("doi") if isinstance(row.get("doi"), str) else None),
        pmid=pmid if isinstance(pmid, str) and pmid.isdigit() else None,
        retracted=retracted,
        retraction_sources=(source,) if retracted else (),
        preprint=row.get("source") == "PPR" or any("preprint" in kind for kind in kinds),
        sources=(source,),
    )


def _kinds(row: Mapping[str, Any]) -> list[str]:
    listed = row.get("pubTypeList")
    if isinstance(listed, dict):
        return [kind.lower() for kind in names(listed.get("pubType"))]
    return [text(row.get("pubType")).lower()]
