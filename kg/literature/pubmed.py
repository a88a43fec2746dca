"""PubMed through NCBI E-utilities, records parsed by Biopython.

Rate: 3 requests/s, 10 with a key. Docs: ncbi.nlm.nih.gov/books/NBK25499.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from kg.literature.boolean import disjunction, quoted
from kg.literature.protocol import Wanted
from kg.literature.reading import as_json, day_of, field, text, year_of
from kg.literature.types import Record, clean_doi
from sage.core.http.client import Limit, Request, ServiceClient
from sage.core.http.errors import SourceChanged, Unavailable

BASE = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"
_RETRACTED = "retracted publication"


class PubMed:
    """Two requests per search: `esearch` for PMIDs, `efetch` for MEDLINE records."""

    name = "pubmed"

    def __init__(
        self, *, base_url: str = BASE, api_key: str | None = None, email: str | None = None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.limit = Limit(10 if api_key else 3, 1.0, concurrency=3)
        self._secret = {"api_key": api_key} if api_key else {}
        if email:
            self._secret["email"] = email

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Records for all queries at once."""
        params: dict[str, str | int] = {
            "db": "pubmed",
            "term": disjunction(wanted.queries, _term),
            "retmax": wanted.k,
            "retmode": "json",
            "sort": "relevance",
            "tool": "sage",
        }
        if wanted.as_of is not None:
            params |= {
                "datetype": "pdat",
                "mindate": "1800/01/01",
                "maxdate": wanted.as_of.strftime("%Y/%m/%d"),
            }
        found = await client.fetch(
            self._request("esearch.fcgi", params), self._read_ids, patience=patience
        )
        if not found:
            return []
        fetch = {
            "db": "pubmed",
            "id": ",".join(found),
            "rettype": "medline",
            "retmode": "text",
            "tool": "sage",
        }
        return await client.fetch(
            self._request("efetch.fcgi", fetch), self._read_records, patience=patience
        )

    def _request(self, tool: str, params: Mapping[str, str | int]) -> Request:
        return Request(
            self.name,
            self.limit,
            f"{self.base_url}/{tool}",
            params=params,
            secret_params=self._secret,
        )

    def _read_ids(self, body: bytes) -> list[str]:
        answer = field(self.name, as_json(self.name, body), "esearchresult", dict)
        if "ERROR" in answer:
            raise Unavailable(self.name, f"refused the query: {text(answer['ERROR'])[:120]}")
        ids: list[str] = field(self.name, answer, "idlist", list)
        if not all(isinstance(text, str) and text.isdigit() for text in ids):
            raise SourceChanged(self.name, 'field "idlist" holds no PMIDs now')
        return ids

    def _read_records(self, body: bytes) -> list[Record]:
        from Bio import Medline

        content = body.decode("utf-8", "replace")
        if content.lstrip().startswith(("<", "{")):
            raise SourceChanged(self.name, "efetch answered markup where MEDLINE is documented")
        records = [
            record
            for entry in Medline.parse(io.StringIO(content))  # type: ignore[no-untyped-call]
            if (record := _record(entry)) is not None
        ]
        if content.strip() and not records:
            raise SourceChanged(self.name, "efetch answered no MEDLINE record")
        return records


def _term(phrase: str) -> str:
    return f"{quoted(phrase)}[tiab]"


def _record(entry: Mapping[str, Any]) -> Record | None:
    pmid, title = entry.get("PMID"), text(entry.get("TI") or entry.get("BTI"))
    if not pmid or not title:
        return None
    doi = next(
        (
            clean_doi(text.split(" ")[0])
            for text in [*_listed(entry.get("AID")), *_listed(entry.get("LID"))]
            if text.endswith("[doi]")
        ),
        None,
    )
    types = {text.lower() for text in _listed(entry.get("PT"))}
    retracted = _RETRACTED in types or "RIN" in entry
    days = [day for name in ("DEP", "DP") if (day := day_of(text(entry.get(name))))]
    return Record(
        title=title.rstrip("."),
        abstract=text(entry.get("AB")),
        year=year_of(entry.get("DP")),
        published=min(days, default=None),
        venue=text(entry.get("JT") or entry.get("TA")) or None,
        authors=tuple(_listed(entry.get("FAU") or entry.get("AU")))[:6],
        doi=doi,
        pmid=str(pmid),
        retracted=retracted,
        retracted_on=_retraction_day(entry),
        retraction_sources=("pubmed",) if retracted else (),
        preprint="preprint" in types,
        sources=("pubmed",),
    )


def _retraction_day(entry: Mapping[str, Any]) -> date | None:
    """The day of the notice, where the citation of the notice gives one: "J X. 2014 Jul 3;..."."""
    for notice in _listed(entry.get("RIN")):
        for part in notice.split(". "):
            day = day_of(part)
            if day is not None:
                return day
    return None


def _listed(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
