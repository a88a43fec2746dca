"""PubMed through NCBI E-utilities, records parsed by Biopython.

Rate: 3 requests/s, 10 with a key. Docs: ncbi.nlm.nih.gov/books/NBK25499.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from kg.literature.boolean import MANY, conjunction, disjunction, quote_phrase
from kg.literature.protocol import Page, Search, Wanted
from kg.literature.reading import (
    clean_text,
    get_field,
    parse_day,
    parse_entries,
    parse_json,
    parse_year,
)
from kg.literature.types import Found, Record, clean_doi
from sage.core.http.client import Limit, Request, ServiceClient
from sage.core.http.errors import SourceChanged, Unavailable

BASE = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
MOST = 9_999
"""Records of a search that the E-utilities hand out for PubMed."""
_RETRACTED = "retracted publication"
_PER_PAGE = 200


class PubMed:
    """Two requests per search: `esearch` for PMIDs, `efetch` for MEDLINE records."""

    name = "pubmed"
    ordered = True

    def __init__(
        self, *, base_url: str | None = None, api_key: str | None = None, email: str | None = None
    ) -> None:
        self.base_url = (base_url or BASE).rstrip("/")
        self.limit = Limit(10 if api_key else 3, 1.0, concurrency=3)
        self._secret = {"api_key": api_key} if api_key else {}
        if email:
            self._secret["email"] = email

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Records for all queries at once."""
        params: dict[str, str | int] = {
            "term": disjunction(wanted.queries, _term),
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
            self.request("efetch.fcgi", fetch), self._read_records, patience=patience
        )

    def expression(self, search: Search) -> str:
        """The search in PubMed's language."""
        term = conjunction(search.query, _term, MANY)
        if search.since is None:
            return term
        return f'({term}) AND ("{search.since}"[pdat] : "3000"[pdat])'

    async def page(self, client: ServiceClient, search: Search, at: str | None) -> Page:
        """A page out of the result that `esearch` keeps on the history server."""
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
        """The records of up to 200 PMIDs, as they stand today."""
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
        return parse_entries(self.name, self._entries(body), _make_found)

    def request(self, tool: str, params: Mapping[str, str | int]) -> Request:
        """Build a request to one of the E-utilities; `db` and `tool` are added."""
        return Request(
            self.name,
            self.limit,
            f"{self.base_url}/{tool}",
            params={"db": "pubmed", "tool": "sage", **params},
            secret_params=self._secret,
        )

    def read_ids(self, body: bytes) -> list[str]:
        """Read the PMIDs of an answer of `esearch`."""
        answer = get_field(self.name, parse_json(self.name, body), "esearchresult", dict)
        if "ERROR" in answer:
            raise Unavailable(self.name, f"refused the query: {clean_text(answer['ERROR'])[:120]}")
        ids: list[str] = get_field(self.name, answer, "idlist", list)
        if not all(isinstance(text, str) and text.isdigit() for text in ids):
            raise SourceChanged(self.name, 'field "idlist" holds no PMIDs now')
        return ids

    def _read_records(self, body: bytes) -> list[Record]:
        return list(parse_entries(self.name, self._entries(body), _record)[0])

    def _entries(self, body: bytes) -> list[Mapping[str, Any]]:
        from Bio import Medline

        content = body.decode("utf-8", "replace")
        if content.lstrip().startswith(("<", "{")):
            raise SourceChanged(self.name, "efetch answered markup where MEDLINE is documented")
        entries = list(Medline.parse(io.StringIO(content)))  # type: ignore[no-untyped-call]
        if content.strip() and not any(entry.get("PMID") for entry in entries):
            raise SourceChanged(self.name, "efetch answered no MEDLINE record")
        return entries


def _term(phrase: str) -> str:
    return f"{quote_phrase(phrase)}[tiab]"


def _record(entry: Mapping[str, Any]) -> Record | None:
    pmid, title = str(entry.get("PMID") or ""), clean_text(entry.get("TI") or entry.get("BTI"))
    if not pmid.isdigit() or not title:
        return None
    doi = next(
        (
            clean_doi(text.split(" ")[0])
            for text in [*_as_list(entry.get("AID")), *_as_list(entry.get("LID"))]
            if text.endswith("[doi]")
        ),
        None,
    )
    types = {text.lower() for text in _as_list(entry.get("PT"))}
    retracted = _RETRACTED in types or "RIN" in entry
    days = [day for name in ("DEP", "DP") if (day := parse_day(clean_text(entry.get(name))))]
    return Record(
        title=title.rstrip("."),
        abstract=clean_text(entry.get("AB")),
        year=parse_year(entry.get("DP")),
        published=min(days, default=None),
        venue=clean_text(entry.get("JT") or entry.get("TA")) or None,
        authors=tuple(_as_list(entry.get("FAU") or entry.get("AU")))[:6],
        doi=doi,
        pmid=pmid,
        retracted=retracted,
        retracted_on=_retraction_day(entry),
        retraction_sources=("pubmed",) if retracted else (),
        preprint="preprint" in types,
        sources=("pubmed",),
    )


def _make_found(entry: Mapping[str, Any]) -> Found | None:
    record = _record(entry)
    if record is None:
        return None
    pmcid = clean_text(entry.get("PMC"))
    versions = _list_cited(entry, "UIN", "UOF") if record.preprint else ()
    return Found(
        **record.model_dump(),
        pmcid=pmcid if re.fullmatch(r"PMC\d{3,9}", pmcid) else None,
        language=next((code.lower() for code in _as_list(entry.get("LA"))), None),
        kinds=tuple(kind.lower() for kind in _as_list(entry.get("PT"))),
        versions=versions,
        retracts=_list_cited(entry, "ROF"),
    )


def _list_cited(entry: Mapping[str, Any], *tags: str) -> tuple[str, ...]:
    """Keys of the papers that citations name: "J X. 2014;3:1. doi: 10.1/x. PMID: 12"."""
    cited = [line for tag in tags for line in _as_list(entry.get(tag))]
    pmids = [f"pmid:{found}" for line in cited for found in re.findall(r"PMID: (\d+)", line)]
    dois = [
        clean_doi(found) for line in cited for found in re.findall(r"doi: (\S+?)\.?(?:\s|$)", line)
    ]
    return (*pmids, *(f"doi:{doi}" for doi in dois if doi))


def _retraction_day(entry: Mapping[str, Any]) -> date | None:
    """The day of the notice, if the citation of the notice has it: "J X. 2014 Jul 3;..."."""
    for notice in _as_list(entry.get("RIN")):
        for part in notice.split(". "):
            day = parse_day(part)
            if day is not None:
                return day
    return None


def _as_list(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
