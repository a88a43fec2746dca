"""Protocols of literature sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol, runtime_checkable

from kg.literature.types import Query, Record
from sage.core.http.client import Limit, ServiceClient


@dataclass(frozen=True)
class Wanted:
    """A search: `queries` are alternatives, `k` the number of records wanted per source.

    A source answers all queries with as few requests as its language allows (a single request where
    it has OR). `as_of` bounds the publication date; a source that cannot express it leaves it to
    the merge.
    """

    queries: tuple[Query, ...]
    k: int = 20
    as_of: date | None = None


@runtime_checkable
class LiteratureSource(Protocol):
    """A catalog that can be searched.

    The shared client does retries, rate, breaker and cache; the source builds the request and
    reads the answer into `Record`s. A field that is not as documented raises `SourceChanged`.
    """

    name: str
    limit: Limit

    async def search(
        self, client: ServiceClient, wanted: Wanted, patience: float | None = None
    ) -> Sequence[Record]:
        """Return records for `wanted`, the service's order; empty where it found none.

        Raises a `ServiceError` when the service gives no usable answer.
        """
        ...


@runtime_checkable
class RetractionSource(Protocol):
    """A second opinion on which records are retracted."""

    name: str
    limit: Limit

    async def mark(
        self, client: ServiceClient, records: Sequence[Record], patience: float | None = None
    ) -> list[Record]:
        """Return the same records in the same order, with its flags joined to what is known."""
        ...
