"""Protocols of literature sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from kg.literature.types import Found, Query, Record
from sage.core.http.client import Limit, ServiceClient
from sage.core.models import Strict


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
        """Records for `wanted`, the service's order; empty where it found none.

        Raises a `ServiceError` when the service gives no usable answer.
        """
        ...


class RetractionSource(Protocol):
    """A second opinion on which records are retracted."""

    name: str
    limit: Limit

    async def mark(
        self, client: ServiceClient, records: Sequence[Record], patience: float | None = None
    ) -> list[Record]:
        """The same records in the same order, with its flags joined to what is known."""
        ...


@dataclass(frozen=True)
class Search:
    """A search to be read to its end: all concepts of `query`, published from `since` on."""

    query: Query
    since: int | None = None


class Page(Strict):
    """A page of a search. `next` continues it, None at its end; `total` is what the catalog has.

    `unread` counts entries that are no records: without a title, or too long.
    """

    records: tuple[Found, ...]
    next: str | None
    total: int
    unread: int = 0


class Catalog(Protocol):
    """A literature source that can be read from the first page of a search to the last."""

    name: str
    limit: Limit
    ordered: bool
    """True if it answers in order of relevance, so that the first pages are the best."""

    def expression(self, search: Search) -> str:
        """The search in the catalog's own language, for the report."""
        ...

    async def page(self, client: ServiceClient, search: Search, at: str | None) -> Page:
        """Load a page of a search; `at` is the `next` of the page before.

        Raises a `ServiceError` when the service gives no usable answer.
        """
        ...
