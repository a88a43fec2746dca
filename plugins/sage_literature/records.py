"""Records gathered for a corpus, and catalogs that can be read page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from kg.literature.types import Query, Record, union
from sage.core.http.client import Limit, ServiceClient
from sage.core.models import Strict


class Found(Record):
    """A record gathered for a corpus, with fields for screening and finding its full text.

    `kinds` are publication types and `language` is a code, both in lower case as in the
    catalog. `pdfs` are addresses of open PDFs with their licenses. `versions` are keys of
    other versions of the work, and `retracts` keys of papers that this notice retracts
    (`Record.identities`).
    """

    pmcid: str | None = None
    language: str | None = None
    kinds: tuple[str, ...] = ()
    license: str | None = None
    pdfs: tuple[tuple[str, str], ...] = ()
    versions: tuple[str, ...] = ()
    retracts: tuple[str, ...] = ()

    def identities(self) -> list[str]:
        """Return a record's identities, including its PMCID and other versions."""
        more = [f"pmcid:{self.pmcid}"] if self.pmcid else []
        return list(dict.fromkeys([*more, *self.versions, *super().identities()]))

    def join_fields(self, other: Record) -> dict[str, Any]:
        """Merge the fields from another found record, preferring the first known value of each."""
        assert isinstance(other, Found)
        doi = f"doi:{other.doi}" if self.doi and other.doi not in (None, self.doi) else None
        return {
            "pmcid": self.pmcid or other.pmcid,
            "language": self.language or other.language,
            "kinds": self.kinds or other.kinds,
            "license": self.license or other.license,
            "pdfs": union(self.pdfs, other.pdfs),
            "versions": union(self.versions, (*other.versions, *([doi] if doi else []))),
            "retracts": union(self.retracts, other.retracts),
        }


@dataclass(frozen=True)
class Search:
    """A search to be read in full, for all concepts in `query`, published since `since`."""

    query: Query
    since: int | None = None


class Page(Strict):
    """A page of search results.

    `next` continues the search and is None at its end; `total` is the catalog's count.
    `unread` counts entries that are not records because they lack a title or are too long.
    """

    records: tuple[Found, ...]
    next: str | None
    total: int
    unread: int = 0


class Catalog(Protocol):
    """A literature source that can be read from a search's first page to its last."""

    name: str
    limit: Limit
    ordered: bool
    """True if results are sorted by relevance, so that the first pages are the best."""

    def expression(self, search: Search) -> str:
        """Return the search in the catalog's own query language, for the report."""
        ...

    async def page(self, client: ServiceClient, search: Search, at: str | None) -> Page:
        """Load a page of search results; `at` is the `next` of the previous page.

        Raises `ServiceError` if the service gives no usable response.
        """
        ...
