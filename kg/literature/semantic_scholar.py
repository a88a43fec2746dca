"""Semantic Scholar Academic Graph, relevance search.

Rate: 1 request/s (with a key; without one the public pool is shared, and 429 is common).
Docs: api.semanticscholar.org/api-docs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kg.literature.boolean import plain
from kg.literature.protocol import Wanted
from kg.literature.reading import as_json, day_of, field, names, some, text, year_of
from kg.literature.types import Record, clean_doi, says_retracted
from sage.core.http.client import Limit, Request, ServiceClient

BASE = "https://api.semanticscholar.org/graph/v1"
_FIELDS = "title,abstract,year,venue,publicationDate,publicationTypes,externalIds,authors"


class SemanticScholar:
    """One request per search: the first query alone, since relevance search knows no OR.

    Its search reads plain text and matches nothing for words with a hyphen, so that hyphens
    become spaces.
    """

    name = "semantic_scholar"
    limit = Limit(1, 1.0, concurrency=1)

    def __init__(self, *, base_url: str = BASE, api_key: str | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._secret = {"x-api-key": api_key} if api_key else {}

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Records for the first query."""
        params: dict[str, str | int] = {
            "query": plain(wanted.queries[0].text).replace("-", " ")[:300],
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
        return await client.fetch(request, self._read, patience=patience)

    def _read(self, body: bytes) -> list[Record]:
        answer = as_json(self.name, body)
        if isinstance(answer, dict) and answer.get("total") == 0 and "data" not in answer:
            return []
        papers = field(self.name, answer, "data", list)
        records = [record for paper in papers if (record := self._record(paper)) is not None]
        return some(self.name, papers, records)

    def _record(self, row: Mapping[str, Any]) -> Record | None:
        title = text(row.get("title"))
        if not title:
            return None
        identifiers = row.get("externalIds") or {}
        kinds = row.get("publicationTypes") or []
        retracted = says_retracted(title)
        pmid = identifiers.get("PubMed")
        return Record(
            title=title.rstrip("."),
            abstract=text(row.get("abstract")),
            year=year_of(row.get("year")),
            published=day_of(row.get("publicationDate")),
            venue=text(row.get("venue")) or None,
            authors=names(row.get("authors")),
            doi=clean_doi(identifiers.get("DOI")),
            pmid=str(pmid) if pmid and str(pmid).isdigit() else None,
            arxiv=identifiers.get("ArXiv"),
            retracted=retracted,
            retraction_sources=(self.name,) if retracted else (),
            preprint="Preprint" in kinds,
            sources=(self.name,),
        )
