"""Protocols for literature sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol, runtime_checkable

from kg.literature.types import Query, Record
from sage.core.http.client import Limit, ServiceClient


@dataclass(frozen=True)
class Wanted:
    """A search: `queries` are alternatives, and `k` is the number of records wanted per source.

    A source answers all queries with as few requests as its query language allows (a single
    request if it supports OR). `as_of` bounds the publication date; if a source cannot filter
    by date, the filter is applied when results are merged.
    """

    queries: tuple[Query, ...]
    k: int = 20
    as_of: date | None = None


@runtime_checkable
class LiteratureSource(Protocol):
    """A catalog that can be searched.

    The shared client handles retries, rate limits, circuit breaking and caching; the source builds
    the request and parses the response into `Record`s. It raises `SourceChanged` if a field is not
    as documented.
    """

    name: str
    limit: Limit

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Return the records for `wanted` in the service's order; empty if there are none.

        Raises `ServiceError` if the service gives no usable answer.
        """
        ...


@runtime_checkable
class RetractionSource(Protocol):
    """An additional source that identifies retracted records."""

    name: str
    limit: Limit

    async def mark(
        self, client: ServiceClient, records: Sequence[Record], patience: float | None = None
    ) -> list[Record]:
        """Return the same records in the same order, with this source's retraction flags added."""
        ...
