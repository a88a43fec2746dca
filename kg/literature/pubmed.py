"""Client for PubMed that uses NCBI E-utilities and parses records with Biopython.

The rate limit is 3 requests/s, or 10 with a key. Documentation:
ncbi.nlm.nih.gov/books/NBK25499.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from kg.literature.access import Access
from kg.literature.boolean import disjunction, quote_phrase
from kg.literature.protocol import Wanted
from kg.literature.reading import (
    clean_text,
    get_field,
    parse_day,
    parse_entries,
    parse_json,
    parse_year,
)
from kg.literature.types import Record, clean_doi
from sage.core.http.client import Limit, Request, ServiceClient
from sage.core.http.errors import SourceChanged, Unavailable

_RETRACTED = "retracted publication"


class PubMed:
    """Source that makes two requests per search: `esearch` for PMIDs, `efetch` for records."""

    name = "pubmed"

    def __init__(self, access: Access, email: str | None = None) -> None:
        key = access.key("ncbi")
        self.base_url = access.address(self.name)
        self.limit = Limit(10 if key else 3, 1.0, concurrency=3)
        self._secret = {"api_key": key} if key else {}
        if email:
            self._secret["email"] = email

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Run all queries in a single search and return the records."""
        params: dict[str, str | int] = {
            "term": disjunction(wanted.queries, build_term),
            "retmax": wanted.k,
            "retmode": "json",
            "sort": "relevance",
        }
        if wanted.as_of is not None:
            params |= {
                "datetype": "pdat",
                "mindate": "1800/01/01",
                "maxdate": wanted.as_of.strftime("%Y/%m/%d"),
            }
        found = await client.fetch(
            self.request("esearch.fcgi", params), self.read_ids, patience=patience
        )
        if not found:
            return []
        fetch = {
            "id": ",".join(found),
            "rettype": "medline",
            "retmode": "text",
        }
        return await client.fetch(
            self.request("efetch.fcgi", fetch), self.read_records, patience=patience
        )

    def request(self, tool: str, params: Mapping[str, str | int]) -> Request:
        """Build a request to one of the E-utilities, adding `db` and `tool`."""
        return Request(
            self.name,
            self.limit,
            f"{self.base_url}/{tool}",
            params={"db": "pubmed", "tool": "sage", **params},
            secret_params=self._secret,
        )

    def read_ids(self, body: bytes) -> list[str]:
        """Parse the PMIDs in an `esearch` response."""
        answer = get_field(self.name, parse_json(self.name, body), "esearchresult", dict)
        if "ERROR" in answer:
            raise Unavailable(self.name, f"refused the query: {clean_text(answer['ERROR'])[:120]}")
        ids: list[str] = get_field(self.name, answer, "idlist", list)
        if not all(isinstance(text, str) and text.isdigit() for text in ids):
            raise SourceChanged(self.name, 'field "idlist" no longer contains PMIDs')
        return ids

    def read_records(self, body: bytes) -> list[Record]:
        """Parse the records in an `efetch` response."""
        return list(parse_entries(self.name, self.list_entries(body), make_record)[0])

    def list_entries(self, body: bytes) -> list[Mapping[str, Any]]:
        """Parse MEDLINE entries into mappings from tags to values or lists of values."""
        from Bio import Medline

        content = body.decode("utf-8", "replace")
        if content.lstrip().startswith(("<", "{")):
            raise SourceChanged(self.name, "efetch returned markup instead of MEDLINE records")
        entries = list(Medline.parse(io.StringIO(content)))  # type: ignore[no-untyped-call]
        if content.strip() and not any(entry.get("PMID") for entry in entries):
            raise SourceChanged(self.name, "efetch returned no MEDLINE records")
        return entries


def build_term(phrase: str) -> str:
    """Build a search term for a phrase in titles and abstracts."""
    return f"{quote_phrase(phrase)}[tiab]"


def make_record(entry: Mapping[str, Any]) -> Record | None:
    """Build a record from a MEDLINE entry; return None without a PMID or title."""
    pmid, title = str(entry.get("PMID") or ""), clean_text(entry.get("TI") or entry.get("BTI"))
    if not pmid.isdigit() or not title:
        return None
    doi = next(
        (
            clean_doi(text.split(" ")[0])
            for text in [*list_values(entry.get("AID")), *list_values(entry.get("LID"))]
            if text.endswith("[doi]")
        ),
        None,
    )
    types = {text.lower() for text in list_values(entry.get("PT"))}
    retracted = _RETRACTED in types or "RIN" in entry
    days = [day for name in ("DEP", "DP") if (day := parse_day(clean_text(entry.get(name))))]
    return Record(
        title=title.rstrip("."),
        abstract=clean_text(entry.get("AB")),
        year=parse_year(entry.get("DP")),
        published=min(days, default=None),
        venue=clean_text(entry.get("JT") or entry.get("TA")) or None,
        authors=tuple(list_values(entry.get("FAU") or entry.get("AU")))[:6],
        doi=doi,
        pmid=pmid,
        retracted=retracted,
        retracted_on=_retraction_day(entry),
        retraction_sources=("pubmed",) if retracted else (),
        preprint="preprint" in types,
        sources=("pubmed",),
    )


def _retraction_day(entry: Mapping[str, Any]) -> date | None:
    """Parse the date of a retraction notice from its citation: "J X. 2014 Jul 3;..."."""
    for notice in list_values(entry.get("RIN")):
        for part in notice.split(". "):
            day = parse_day(part)
            if day is not None:
                return day
    return None


def list_values(value: Any) -> list[str]:
    """Return a tag's values as a list, even if there is only one."""
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
