"""arXiv's Atom API.

Rate: one request every three seconds, one connection. Docs: info.arxiv.org/help/api.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kg.literature.access import Access
from kg.literature.boolean import disjunction, quote_phrase
from kg.literature.protocol import Wanted
from kg.literature.reading import clean_text, parse_day, parse_entries, parse_year
from kg.literature.types import Record, clean_doi
from sage.core.http.client import Limit, Request, ServiceClient
from sage.core.http.errors import SourceChanged, Unavailable

_ATOM = "{http://www.w3.org/2005/Atom}"
_OWN = "{http://arxiv.org/schemas/atom}"


class Arxiv:
    """The arXiv catalog; each search is a single request."""

    name = "arxiv"
    limit = Limit(1, 3.0, concurrency=1)

    def __init__(self, access: Access, email: str | None = None) -> None:
        self.base_url = access.address(self.name)

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Return records for all queries, using a single request."""
        query = disjunction(wanted.queries, lambda phrase: f"all:{quote_phrase(phrase)}")
        if wanted.as_of is not None:
            bound = wanted.as_of.strftime("%Y%m%d2359")
            query = f"({query}) AND submittedDate:[199101010000 TO {bound}]"
        params: dict[str, str | int] = {
            "search_query": query,
            "start": 0,
            "max_results": wanted.k,
            "sortBy": "relevance",
            "sortOrder": "descending",
        }
        request = Request(self.name, self.limit, f"{self.base_url}/query", params=params)
        return await client.fetch(request, self._parse, patience=patience)

    def _parse(self, body: bytes) -> list[Record]:
        from defusedxml.common import DefusedXmlException
        from defusedxml.ElementTree import ParseError, fromstring

        try:
            feed = fromstring(body, forbid_dtd=True)
        except (ParseError, DefusedXmlException) as problem:
            raise SourceChanged(self.name, "did not return a well-formed Atom feed") from problem
        if feed.tag != f"{_ATOM}feed":
            raise SourceChanged(self.name, f"returned <{feed.tag}> instead of a feed")
        entries = feed.findall(f"{_ATOM}entry")
        if len(entries) == 1 and clean_text(entries[0].findtext(f"{_ATOM}title")) == "Error":
            reason = clean_text(entries[0].findtext(f"{_ATOM}summary"))[:120]
            raise Unavailable(self.name, f"refused the query: {reason}")
        return list(parse_entries(self.name, entries, self._record)[0])

    def _record(self, entry: Any) -> Record:
        link = entry.findtext(f"{_ATOM}id")
        title = entry.findtext(f"{_ATOM}title")
        if not link or not title:
            raise SourceChanged(self.name, "an entry has no ID or title")
        match = re.search(r"abs/(.+?)(v\d+)?$", link.strip())
        published = entry.findtext(f"{_ATOM}published") or ""
        comment = clean_text(entry.findtext(f"{_OWN}comment")).lower()
        summary = clean_text(entry.findtext(f"{_ATOM}summary"))
        withdrawn = "withdrawn" in comment or summary.lower().startswith(
            ("this paper has been withdrawn", "this article has been withdrawn")
        )
        return Record(
            title=clean_text(title),
            abstract=summary,
            year=parse_year(published),
            published=parse_day(published[:10]),
            venue=clean_text(entry.findtext(f"{_OWN}journal_ref")) or "arXiv",
            authors=tuple(
                clean_text(author.findtext(f"{_ATOM}name"))
                for author in entry.findall(f"{_ATOM}author")[:6]
            ),
            doi=clean_doi(entry.findtext(f"{_OWN}doi")),
            arxiv=match[1] if match else None,
            retracted=withdrawn,
            retraction_sources=(self.name,) if withdrawn else (),
            preprint=True,
            sources=(self.name,),
        )
