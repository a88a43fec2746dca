"""Literature records, queries, and answers that report missing sources."""

from __future__ import annotations

import re
import unicodedata
from datetime import date
from typing import Any

from pydantic import Field

from sage.core.models import Name, Passage, Strict
from sage.core.printable import quote_text


def title_key(title: str) -> str:
    """Reduce a title to lower-case ASCII letters and digits, on which catalogs agree.

    Retraction marks that publishers add before or after a title are removed.
    """
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    plain = re.sub(r"^\W*(retracted(\s+article)?|withdrawn)\s*[:\-\]]\s*", "", plain)
    plain = re.sub(r"\[\s*retracted\s*\]|\(retracted\)", "", plain)
    return re.sub(r"[^a-z0-9]+", " ", plain).strip()


_MARKED = re.compile(
    r"^\W*(retracted|withdrawn)(\s+(article|paper))?\s*[:\]\u2013\u2014-]"
    r"|[\[(]\s*retracted\s*[\])]\s*$",
    re.IGNORECASE,
)


def says_retracted(title: str) -> bool:
    """Check whether a title has a publisher's retraction mark ("RETRACTED: ...")."""
    return _MARKED.search(title) is not None


SHORTEST_TITLE = 16
"""Minimum length of a title that identifies a paper ("Editorial" does not)."""


def clean_doi(doi: str | None) -> str | None:
    """Normalize a DOI to its bare, lower-case form, or return None if `doi` is invalid."""
    if not doi:
        return None
    bare = re.sub(r"^\s*(https?://(dx\.)?doi\.org/|doi:\s*)", "", doi.strip(), flags=re.IGNORECASE)
    return bare.lower() if re.match(r"10\.\d{4,9}/\S{1,200}$", bare) else None


class Query(Strict):
    """A search: `phrases` must all occur (AND); `text` is the free-text form.

    `any_of[i]`, if given, lists synonyms of `phrases[i]`; any of them is enough.
    """

    text: str
    phrases: tuple[str, ...] = ()
    any_of: tuple[tuple[str, ...], ...] = ()

    def groups(self) -> tuple[tuple[str, ...], ...]:
        """List alternatives for each phrase, the phrase itself first."""
        if not self.phrases:
            return ((self.text,),)
        extra = (*self.any_of, *(() for _ in range(len(self.phrases) - len(self.any_of))))
        return tuple(
            tuple(dict.fromkeys((phrase, *more)))
            for phrase, more in zip(self.phrases, extra, strict=False)
        )


class Record(Strict):
    """A publication as described by the sources.

    `published` is the earliest date in any source (ISO, may be absent); the `year` is known
    more often. `sources` lists every source that returned the record; `snippets` are findings
    or matching sentences; `score` is the rank score of the search that returned it, in [0,
    1].
    """

    title: Name
    abstract: Passage = ""
    year: int | None = None
    published: date | None = None
    venue: Name | None = None
    authors: tuple[Name, ...] = ()
    doi: str | None = None
    pmid: str | None = None
    arxiv: str | None = None
    retracted: bool = False
    retracted_on: date | None = None
    retraction_sources: tuple[str, ...] = ()
    preprint: bool = False
    sources: tuple[str, ...] = ()
    snippets: tuple[Passage, ...] = ()
    score: float = Field(default=0.0, ge=0.0, le=1.0)

    @property
    def key(self) -> str:
        """Strongest identifier: DOI, else PMID, else arXiv id, else the normalized title."""
        if self.doi:
            return f"doi:{self.doi}"
        if self.pmid:
            return f"pmid:{self.pmid}"
        if self.arxiv:
            return f"arxiv:{self.arxiv}"
        return f"title:{title_key(self.title)}"

    def identities(self) -> list[str]:
        """List the identifiers by which records of the same paper are matched, the title last."""
        named = (("doi", self.doi), ("pmid", self.pmid), ("arxiv", self.arxiv))
        keys = [f"{kind}:{value}" for kind, value in named if value]
        title = title_key(self.title)
        return [*keys, f"title:{title}"] if len(title) >= SHORTEST_TITLE else keys

    def join_fields(self, other: Record) -> dict[str, Any]:
        """Merge a subclass's additional fields with those of another record for the same paper."""
        return {}

    @property
    def body(self) -> str:
        """Title, abstract and snippets as a single string, for matching."""
        return " ".join(text for text in (self.title, self.abstract, *self.snippets) if text)

    def citation(self) -> str:
        """Format a one-line reference, with an identifier if known."""
        more = " et al." if len(self.authors) > 1 else ""
        first = f"{self.authors[0]!s}{more}. " if self.authors else ""
        where = ", ".join(str(part) for part in (self.venue, self.year) if part)
        named = quote_text(f"{first}{self.title!s}{f' ({where})' if where else ''}")
        tail = f" doi:{self.doi}" if self.doi else (f" PMID {self.pmid}" if self.pmid else "")
        mark = "RETRACTED: " if self.retracted and not says_retracted(self.title) else ""
        return f"{mark}{named}{tail}"

    def known_by(self, as_of: date | None) -> bool:
        """Check whether the record had definitely appeared by `as_of`.

        A record with only a year counts as published on the last day of that year, and a record
        without a date never counts: a time-travel evaluation may miss a paper, but must not see
        a paper from the future.
        """
        if as_of is None:
            return True
        if self.published is not None:
            return self.published <= as_of
        return self.year is not None and date(self.year, 12, 31) <= as_of

    def as_known(self, as_of: date | None) -> Record:
        """Return the record as known at `as_of`, without a retraction known to be later."""
        later = as_of is not None and self.retracted_on is not None and self.retracted_on > as_of
        if not (self.retracted and later):
            return self
        return self.model_copy(
            update={"retracted": False, "retracted_on": None, "retraction_sources": ()}
        )


def union(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """Combine two tuples, keeping the order and dropping duplicates."""
    return tuple(dict.fromkeys((*a, *b)))


class MissingSource(Strict):
    """A source that did not contribute, and the reason."""

    name: Name
    reason: Passage


class SearchAnswer(Strict):
    """Merged, ranked records, with missing sources and usage.

    `served_by` lists the sources that answered (including "local index"), `local_records` is
    the number of records in the local index (None if it was not used), `requests` counts HTTP
    requests (including retries, without cache hits), and `cached` counts answers from the
    disk cache.
    """

    records: tuple[Record, ...]
    missing: tuple[MissingSource, ...] = ()
    served_by: tuple[str, ...] = ()
    local_records: int | None = None
    requests: int = 0
    cached: int = 0
    seconds: float = 0.0
    as_of: date | None = None
    notes: tuple[str, ...] = ()
