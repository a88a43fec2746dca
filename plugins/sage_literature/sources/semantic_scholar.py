"""Semantic Scholar Academic Graph, relevance search.

Rate: 1 request/s with a key; without a key, the public pool is shared and 429 is common.
Docs: api.semanticscholar.org/api-docs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kg.literature.access import Access
from kg.literature.boolean import MANY, groups_of, strip_operators
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
from sage_literature.records import Found, Page, Search

_FIELDS = "title,abstract,year,venue,publicationDate,publicationTypes,externalIds,authors"
_PREPRINTS = frozenset({"arxiv.org", "biorxiv", "medrxiv", "research square", "ssrn"})


class SemanticScholar:
    """Relevance search that sends only the first query, since OR is not supported.

    The search takes plain text and finds nothing for hyphenated words, so hyphens are
    replaced by spaces.
    """

    name = "semantic_scholar"
    limit = Limit(1, 1.0, concurrency=1)
    ordered = False

    def __init__(self, access: Access, email: str | None = None) -> None:
        self.base_url = access.address(self.name)
        key = access.key(self.name) or access.key("s2")
        self._secret = {"x-api-key": key} if key else {}

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Return records for the first query."""
        params: dict[str, str | int] = {
            "query": strip_operators(wanted.queries[0].text).replace("-", " ")[:300],
            "fields": _FIELDS,
            "limit": min(100, wanted.k),
        }
        if wanted.as_of is not None:
            params["publicationDateOrYear"] = f":{wanted.as_of.isoformat()}"
        request = Request(
            self.name,
            self.limit,
            f"{self.base_url}/paper/search",
            params=params,
            secret_headers=self._secret,
        )
        return await client.fetch(request, self._parse, patience=patience)

    def expression(self, search: Search) -> str:
        """Return the search in the bulk search query language: "+" is AND, "|" is OR."""
        groups = (
            " | ".join(f'"{name.replace("-", " ")}"' for name in group)
            for group in groups_of(search.query, MANY)
        )
        return " + ".join(f"({group})" for group in groups)

    async def page(self, client: ServiceClient, search: Search, at: str | None) -> Page:
        """Fetch a bulk search page by `token`: up to 1,000 papers, not sorted by relevance."""
        params: dict[str, str | int] = {
            "query": self.expression(search),
            "fields": f"{_FIELDS},openAccessPdf",
        }
        if search.since:
            params["year"] = f"{search.since}-"
        if at:
            params["token"] = at
        request = Request(
            self.name,
            self.limit,
            f"{self.base_url}/paper/search/bulk",
            params=params,
            secret_headers=self._secret,
        )
        return await client.fetch(request, self._read_page)

    def _read_page(self, body: bytes) -> Page:
        answer = parse_json(self.name, body)
        papers = get_field(self.name, answer, "data", list)
        records, unread = parse_entries(self.name, papers, self._make_found)
        token = answer.get("token") if papers else None
        return Page(
            records=records,
            next=token if isinstance(token, str) and token else None,
            total=get_field(self.name, answer, "total", int),
            unread=unread,
        )

    def _make_found(self, row: Mapping[str, Any]) -> Found | None:
        record = self._record(row)
        if record is None:
            return None
        pmcid = re.fullmatch(
            r"(?:PMC)?(\d{3,9})", clean_text((row.get("externalIds") or {}).get("PubMedCentral"))
        )
        place = row.get("openAccessPdf")
        place = place if isinstance(place, dict) else {}
        address, license_ = clean_text(place.get("url")), clean_text(place.get("license")).lower()
        known = record.model_dump()
        known["preprint"] = record.preprint or (record.venue or "").lower() in _PREPRINTS
        return Found(
            **known,
            pmcid=f"PMC{pmcid[1]}" if pmcid else None,
            kinds=tuple(kind.lower() for kind in list_names(row.get("publicationTypes"))),
            license=license_ or None,
            pdfs=((address, license_),) if address and license_ else (),
        )

    def _parse(self, body: bytes) -> list[Record]:
        answer = parse_json(self.name, body)
        if isinstance(answer, dict) and answer.get("total") == 0 and "data" not in answer:
            return []
        papers = get_field(self.name, answer, "data", list)
        return list(parse_entries(self.name, papers, self._record)[0])

    def _record(self, row: Mapping[str, Any]) -> Record | None:
        title = clean_text(row.get("title"))
        if not title:
            return None
        identifiers = row.get("externalIds") or {}
        kinds = row.get("publicationTypes") or []
        retracted = says_retracted(title)
        pmid = identifiers.get("PubMed")
        return Record(
            title=title.rstrip("."),
            abstract=clean_text(row.get("abstract")),
            year=parse_year(row.get("year")),
            published=parse_day(row.get("publicationDate")),
            venue=clean_text(row.get("venue")) or None,
            authors=list_names(row.get("authors")),
            doi=clean_doi(identifiers.get("DOI")),
            pmid=str(pmid) if pmid and str(pmid).isdigit() else None,
            arxiv=identifiers.get("ArXiv"),
            retracted=retracted,
            retraction_sources=(self.name,) if retracted else (),
            preprint="Preprint" in kinds,
            sources=(self.name,),
        )
