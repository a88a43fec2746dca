"""Gene Expression Omnibus series, through NCBI E-utilities (db=gds).

Rate: 3 requests/s, 10 with a key; the two requests follow each other. Docs:
ncbi.nlm.nih.gov/geo/info/geo_paccess.html.
"""

from __future__ import annotations

from dataclasses import dataclass

from kg.literature.boolean import plain
from kg.literature.reading import as_json, field, text
from sage.core.http.client import Limit, Request, ServiceClient

BASE = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils"


@dataclass(frozen=True)
class Series:
    """One GEO series."""

    accession: str
    title: str
    samples: int


@dataclass(frozen=True)
class SeriesFound:
    """How many series fit, and the largest of those listed first."""

    total: int
    listed: tuple[Series, ...]


class Geo:
    """Public expression data sets for a set of concepts."""

    name = "geo"

    def __init__(self, *, base_url: str = BASE, api_key: str | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self.limit = Limit(10 if api_key else 3, 1.0, concurrency=2)
        self._secret = {"api_key": api_key} if api_key else {}

    async def series(
        self, client: ServiceClient, concepts: tuple[str, ...], k: int = 5
    ) -> SeriesFound:
        """Human series that mention every concept."""
        term = " AND ".join(f'"{plain(concept)}"' for concept in concepts)
        params: dict[str, str | int] = {
            "db": "gds",
            "term": f'({term}) AND gse[ETYP] AND "Homo sapiens"[Organism]',
            "retmax": k,
            "retmode": "json",
        }
        total, ids = await client.fetch(self._request("esearch.fcgi", params), self._read_ids)
        if not ids:
            return SeriesFound(total, ())
        params = {"db": "gds", "id": ",".join(ids), "retmode": "json"}
        listed = await client.fetch(self._request("esummary.fcgi", params), self._read_series)
        return SeriesFound(total, tuple(sorted(listed, key=lambda column: -column.samples)))

    def _request(self, tool: str, params: dict[str, str | int]) -> Request:
        return Request(
            self.name,
            self.limit,
            f"{self.base_url}/{tool}",
            params=params,
            secret_params=self._secret,
        )

    def _read_ids(self, body: bytes) -> tuple[int, list[str]]:
        answer = field(self.name, as_json(self.name, body), "esearchresult", dict)
        total = int(field(self.name, answer, "count", str))
        return total, [str(item) for item in field(self.name, answer, "idlist", list)]

    def _read_series(self, body: bytes) -> list[Series]:
        result = field(self.name, as_json(self.name, body), "result", dict)
        found = []
        for uid in field(self.name, result, "uids", list):
            one = field(self.name, result, str(uid), dict)
            samples = one.get("n_samples")
            count = samples if isinstance(samples, int) else len(one.get("samples") or [])
            accession = field(self.name, one, "accession", str)
            found.append(Series(accession, text(one.get("title")), count))
        return found
