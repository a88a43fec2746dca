"""OpenAlex, as the second opinion on retractions.

Rate: kept at 10 requests/s. One list request per search; without a key OpenAlex allows about a
hundred of them a day. Docs: developers.openalex.org.
"""

from __future__ import annotations

from collections.abc import Sequence

from kg.literature.reading import as_json, field
from kg.literature.types import Record, clean_doi
from sage.core.http.client import Limit, Request, ServiceClient

BASE = "https://api.openalex.org"
_PER_REQUEST = 50


class OpenAlex:
    """Says which records are retracted; finds nothing new."""

    name = "openalex"
    limit = Limit(10, 1.0, concurrency=2)

    def __init__(
        self, *, base_url: str = BASE, api_key: str | None = None, email: str | None = None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._secret = {"api_key": api_key} if api_key else {}
        if email:
            self._secret["mailto"] = email

    async def mark(
        self, client: ServiceClient, records: Sequence[Record], patience: float | None = None
    ) -> list[Record]:
        """The records with OpenAlex's retraction flags joined to what is known; order is kept."""
        known = [record.doi for record in records if record.doi]
        # Commas and pipes are the filter's own syntax; such DOIs cannot be asked for.
        dois = [doi for doi in known if "," not in doi and "|" not in doi][:_PER_REQUEST]
        if not dois:
            return list(records)
        request = Request(
            self.name,
            self.limit,
            f"{self.base_url}/works",
            params={
                "filter": "doi:" + "|".join(sorted(dois)),
                "select": "doi,is_retracted",
                "per-page": _PER_REQUEST,
            },
            secret_params=self._secret,
        )
        retracted = await client.fetch(request, self._read, patience=patience)
        return [
            record.model_copy(
                update={
                    "retracted": True,
                    "retraction_sources": (*record.retraction_sources, self.name),
                }
            )
            if record.doi in retracted
            else record
            for record in records
        ]

    def _read(self, body: bytes) -> set[str]:
        works = field(self.name, as_json(self.name, body), "results", list)
        return {
            doi
            for work in works
            if field(self.name, work, "is_retracted", bool)
            and (doi := clean_doi(field(self.name, work, "doi", (str, type(None)))))
        }
