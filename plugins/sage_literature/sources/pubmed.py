"""PubMed as a catalog, paging through the result that `esearch` keeps on the history server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kg.literature.boolean import MANY, conjunction
from kg.literature.pubmed import PubMed, build_term, list_values, make_record
from kg.literature.reading import clean_text, get_field, parse_entries, parse_json
from kg.literature.types import clean_doi
from sage.core.http.client import ServiceClient
from sage.core.http.errors import Unavailable
from sage_literature.records import Found, Page, Search

MOST = 9_999
"""Maximum number of records that the E-utilities return per PubMed search."""
_PER_PAGE = 200


class PubMedCatalog(PubMed):
    """PubMed, read to the last page of search results, with records by PMID."""

    ordered = True

    def expression(self, search: Search) -> str:
        """Return the search in PubMed's query language."""
        term = conjunction(search.query, build_term, MANY)
        if search.since is None:
            return term
        return f'({term}) AND ("{search.since}"[pdat] : "3000"[pdat])'

    async def page(self, client: ServiceClient, search: Search, at: str | None) -> Page:
        """Fetch a page of the result that `esearch` keeps on the history server."""
        if at is None:
            params: dict[str, str | int] = {
                "term": self.expression(search),
                "usehistory": "y",
                "retmax": 0,
                "retmode": "json",
                "sort": "relevance",
            }
            request = self.request("esearch.fcgi", params)
            env, key, count = await client.fetch(request, self._read_history)
            start = 0
        else:
            env, key, count, start = json.loads(at)
        if count == 0:
            return Page(records=(), next=None, total=0)
        size = min(_PER_PAGE, count - start)
        fetch: dict[str, str | int] = {
            "WebEnv": env,
            "query_key": key,
            "retstart": start,
            "retmax": size,
            "rettype": "medline",
            "retmode": "text",
        }
        request = self.request("efetch.fcgi", fetch)
        records, unread = await client.fetch(request, self._read_found)
        missing = size - len(records) - unread
        end = start + size >= min(count, MOST)
        following = None if end else json.dumps([env, key, count, start + size])
        return Page(records=records, next=following, total=count, unread=unread + max(0, missing))

    async def by_pmid(self, client: ServiceClient, pmids: Sequence[str]) -> tuple[Found, ...]:
        """Fetch the current records for up to 200 PMIDs."""
        params = {
            "id": ",".join(pmids),
            "rettype": "medline",
            "retmode": "text",
        }
        return (await client.fetch(self.request("efetch.fcgi", params), self._read_found))[0]

    def _read_history(self, body: bytes) -> tuple[str, str, int]:
        answer = get_field(self.name, parse_json(self.name, body), "esearchresult", dict)
        if "ERROR" in answer:
            raise Unavailable(self.name, f"refused the query: {clean_text(answer['ERROR'])[:120]}")
        count = int(get_field(self.name, answer, "count", str))
        return (
            get_field(self.name, answer, "webenv", str),
            get_field(self.name, answer, "querykey", str),
            min(count, MOST),
        )

    def _read_found(self, body: bytes) -> tuple[tuple[Found, ...], int]:
        return parse_entries(self.name, self.list_entries(body), _make_found)


def _make_found(entry: Mapping[str, Any]) -> Found | None:
    record = make_record(entry)
    if record is None:
        return None
    pmcid = clean_text(entry.get("PMC"))
    versions = _list_cited(entry, "UIN", "UOF") if record.preprint else ()
    return Found(
        **record.model_dump(),
        pmcid=pmcid if re.fullmatch(r"PMC\d{3,9}", pmcid) else None,
        language=next((code.lower() for code in list_values(entry.get("LA"))), None),
        kinds=tuple(kind.lower() for kind in list_values(entry.get("PT"))),
        versions=versions,
        retracts=_list_cited(entry, "ROF"),
    )


def _list_cited(entry: Mapping[str, Any], *tags: str) -> tuple[str, ...]:
    """List keys for the papers that citations name: "J X. 2014;3:1. doi: 10.1/x. PMID: 12"."""
    cited = [line for tag in tags for line in list_values(entry.get(tag))]
    pmids = [f"pmid:{found}" for line in cited for found in re.findall(r"PMID: (\d+)", line)]
    dois = [
        clean_doi(found) for line in cited for found in re.findall(r"doi: (\S+?)\.?(?:\s|$)", line)
    ]
    return (*pmids, *(f"doi:{doi}" for doi in dois if doi))
