"""Merging of records that describe the same publication."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import TypeVar

from kg.literature.types import Record, union

_YEARS_APART = 1

R = TypeVar("R", bound=Record)


def merge(records: Iterable[R]) -> list[R]:
    """Merge records that share a DOI, PMID or arXiv id, or a title and (within a year) the year.

    The order of first appearance is kept. A paper is retracted if any source reports a
    retraction. Two records with different identifiers of the same kind are never merged by
    title, except for a preprint and its journal version. Records may have additional keys
    (`Record.identities`), and a record that shares identifiers with two groups merges them.
    """
    groups: list[R] = []
    by_key: dict[str, list[int]] = {}
    gone: set[int] = set()
    for record in records:
        places = {
            at: None
            for key in record.identities()
            for at in by_key.get(key, ())
            if at not in gone and _same(groups[at], record, by_title=key.startswith("title:"))
        }
        place, *others = sorted(places) or [len(groups)]
        if place == len(groups):
            groups.append(record)
        else:
            groups[place] = join(groups[place], record)
        for at in others:
            if _same(groups[place], groups[at], by_title=True):
                groups[place] = join(groups[place], groups[at])
                gone.add(at)
        for key in groups[place].identities():
            listed = by_key.setdefault(key, [])
            if place not in listed:
                listed.append(place)
    return [group for at, group in enumerate(groups) if at not in gone]


def join(a: R, b: R) -> R:
    """Merge two records, keeping the journal's identifiers and the longer abstract."""
    first, second = (b, a) if a.preprint and not b.preprint else (a, b)
    return type(a)(
        **first.join_fields(second),
        title=first.title or second.title,
        abstract=max(first.abstract, second.abstract, key=len),
        year=first.year or second.year,
        published=_earliest(first.published, second.published),
        venue=first.venue or second.venue,
        authors=first.authors or second.authors,
        doi=first.doi or second.doi,
        pmid=first.pmid or second.pmid,
        arxiv=first.arxiv or second.arxiv,
        retracted=first.retracted or second.retracted,
        retracted_on=_earliest(first.retracted_on, second.retracted_on),
        retraction_sources=union(first.retraction_sources, second.retraction_sources),
        preprint=first.preprint and second.preprint,
        sources=union(a.sources, b.sources),
        snippets=union(a.snippets, b.snippets),
        score=max(a.score, b.score),
    )


def _same(a: Record, b: Record, *, by_title: bool) -> bool:
    if not by_title:
        return True
    if a.year and b.year and abs(a.year - b.year) > _YEARS_APART:
        return a.preprint != b.preprint and abs(a.year - b.year) <= 3
    if a.preprint != b.preprint:
        return True
    return not ((a.doi and b.doi and a.doi != b.doi) or (a.pmid and b.pmid and a.pmid != b.pmid))


def _earliest(a: date | None, b: date | None) -> date | None:
    return min((day for day in (a, b) if day is not None), default=None)
