"""bioRxiv and medRxiv.

Their API has no text search. Preprints are found through Europe PMC's preprint index, and
the servers' own API then reports which of the top results were withdrawn or became
journal articles. Rate: none published; limited to 2 requests/s. Docs: api.biorxiv.org.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from kg.literature.access import Access
from kg.literature.boolean import MANY, conjunction, disjunction
from kg.literature.europe_pmc import parse_records, search_request
from kg.literature.protocol import Wanted
from kg.literature.reading import clean_text, get_field, parse_day, parse_json
from kg.literature.types import Record, clean_doi, union
from sage.core.http.client import Limit, Request, ServiceClient
from sage.core.http.errors import ServiceError
from sage_literature.records import Found, Page, Search
from sage_literature.sources.europe_pmc import bound_by_year, fetch_page

_SERVERS = '(PUBLISHER:"bioRxiv" OR PUBLISHER:"medRxiv")'
_CHECKED = 2
UNCHECKED = "biorxiv (status unchecked)"


class Biorxiv:
    """Preprint search, followed by a status check of the first two preprints.

    A preprint whose status could not be checked has the source name "biorxiv (status
    unchecked)".
    """

    name = "biorxiv"
    limit = Limit(2, 1.0, concurrency=2)
    ordered = True

    def __init__(self, access: Access, email: str | None = None) -> None:
        self.base_url = access.address(self.name)
        self.europe_pmc_url = access.address("europe_pmc")

    def expression(self, search: Search) -> str:
        """Return the search in the query language of Europe PMC's preprint index."""
        return bound_by_year(
            f"(SRC:PPR AND {_SERVERS}) AND ({conjunction(search.query, synonyms=MANY)})",
            search.since,
        )

    async def page(self, client: ServiceClient, search: Search, at: str | None) -> Page:
        """Fetch a page from the preprint index; `check_status` then checks each preprint."""
        return await fetch_page(client, self.europe_pmc_url, self.name, self.expression(search), at)

    async def check_status(self, client: ServiceClient, found: Found) -> Found:
        """Return the preprint with its withdrawal, its journal version's DOI, and its license.

        Raises `ServiceError` if the server gives no usable response.
        """
        versions = await client.fetch(self._request(found), self._parse)
        journal = next((clean_doi(clean_text(v.get("published"))) for v in versions[-1:]), None)
        license_ = clean_text(versions[-1].get("license")).lower() if versions else ""
        settled = _withdrawn(found, versions)
        # The withdrawal of a preprint does not retract its journal version, so they stay apart.
        more = (f"doi:{journal}",) if journal and not settled.retracted else ()
        return settled.model_copy(
            update={
                "versions": union(found.versions, more),
                "license": found.license or license_ or None,
            }
        )

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Return preprints for all queries, using a single search."""
        query = f"(SRC:PPR AND {_SERVERS}) AND ({disjunction(wanted.queries)})"
        found = await client.fetch(
            search_request(self.europe_pmc_url, query, wanted.k, wanted.as_of),
            lambda body: parse_records(self.name, body),
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
        try:
            versions = await client.fetch(self._request(record), self._parse, patience=patience)
        except ServiceError:
            return unchecked
        return _withdrawn(record, versions) if versions else unchecked

    def _request(self, record: Record) -> Request:
        server = "medrxiv" if "medrxiv" in (record.venue or "").lower() else "biorxiv"
        path = quote(record.doi or "", safe="/")
        return Request(self.name, self.limit, f"{self.base_url}/details/{server}/{path}")

    def _parse(self, body: bytes) -> list[Mapping[str, Any]]:
        versions: list[Mapping[str, Any]] = get_field(
            self.name, parse_json(self.name, body), "collection", list
        )
        return versions


R = TypeVar("R", bound=Record)


def _withdrawn(record: R, versions: Sequence[Mapping[str, Any]]) -> R:
    """Return the record, marked as retracted if any version is a withdrawal."""
    withdrawn = next(
        (version for version in versions if "withdraw" in clean_text(version.get("type"))), None
    )
    if withdrawn is None:
        return record
    return record.model_copy(
        update={
            "retracted": True,
            "retracted_on": parse_day(withdrawn.get("date")),
            "retraction_sources": ("biorxiv",),
        }
    )
