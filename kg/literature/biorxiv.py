"""bioRxiv and medRxiv.

Their API has no text search: preprints are found through Europe PMC's preprint index, and the
servers' own API then says which of the best were withdrawn and which became journal articles.
Rate: none published; kept at 2 requests/s. Docs: api.biorxiv.org.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kg.literature.boolean import disjunction
from kg.literature.europe_pmc import BASE as EUROPE_PMC
from kg.literature.europe_pmc import read, search_request
from kg.literature.protocol import Wanted
from kg.literature.reading import as_json, day_of, field, text
from kg.literature.types import Record
from sage.core.http.client import Limit, Request, ServiceClient
from sage.core.http.errors import ServiceError

BASE = "https://api.biorxiv.org"
_SERVERS = '(PUBLISHER:"bioRxiv" OR PUBLISHER:"medRxiv")'
_CHECKED = 2
UNCHECKED = "biorxiv (status unchecked)"


class Biorxiv:
    """One search, then the status of the first two preprints.

    A preprint whose status could not be asked carries the source name "biorxiv (status
    unchecked)".
    """

    name = "biorxiv"
    limit = Limit(2, 1.0, concurrency=2)

    def __init__(self, *, base_url: str = BASE, europe_pmc_url: str = EUROPE_PMC) -> None:
        self.base_url = base_url.rstrip("/")
        self.europe_pmc_url = europe_pmc_url.rstrip("/")

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Preprints for all queries at once."""
        query = f"(SRC:PPR AND {_SERVERS}) AND ({disjunction(wanted.queries)})"
        found = await client.fetch(
            search_request(self.europe_pmc_url, query, wanted.k, wanted.as_of),
            lambda body: read(self.name, body),
            patience=patience,
        )
        checked = await asyncio.gather(
            *(self._status(client, record, patience) for record in found[:_CHECKED])
        )
        rest = [record.model_copy(update={"sources": (UNCHECKED,)}) for record in found[_CHECKED:]]
        return [*checked, *rest]

    async def _status(
        self, client: ServiceClient, record: Record, patience: float | None
    ) -> Record:
        unchecked = record.model_copy(update={"sources": (UNCHECKED,)})
        if record.doi is None:
            return unchecked
        server = "medrxiv" if "medrxiv" in (record.venue or "").lower() else "biorxiv"
        request = Request(self.name, self.limit, f"{self.base_url}/details/{server}/{record.doi}")
        try:
            versions = await client.fetch(request, self._read, patience=patience)
        except ServiceError:
            return unchecked
        if not versions:
            return unchecked
        withdrawn = next(
            (version for version in versions if "withdraw" in text(version.get("type"))), None
        )
        if withdrawn is None:
            return record
        return record.model_copy(
            update={
                "retracted": True,
                "retracted_on": day_of(withdrawn.get("date")),
                "retraction_sources": (self.name,),
            }
        )

    def _read(self, body: bytes) -> list[Mapping[str, Any]]:
        versions: list[Mapping[str, Any]] = field(
            self.name, as_json(self.name, body), "collection", list
        )
        return versions
