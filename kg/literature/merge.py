"""One record per publication: the same paper from several sources becomes one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from kg.literature.types import Record, title_key

_YEARS_APART = 1
SHORTEST_TITLE = 16
"""Titles shorter than this ("Editorial", "Bladder cancer") do not identify a paper."""


def merge(records: Iterable[Record]) -> list[Record]:
    """Union records that share a DOI, a PMID, an arXiv id, or title and year (one year of slack).

    Order of first appearance is kept. A retraction that any source reports stands. Two records
    whose identifiers of the same kind differ are never joined by title, except a preprint with
    its journal version.
    """
    groups: list[Record] = []
    by_key: dict[str, list[int]] = {}
    for record in records:
        place = next(
            (
                at
                for key in _keys(record)
                for at in by_key.get(key, ())
                if _same(groups[at], record, by_title=key.startswith("title:"))
            ),
            None,
        )
        if place is None:
            place = len(groups)
            groups.append(record)
        else:
            groups[place] = join(groups[place], record)
        for key in _keys(groups[place]):
            places = by_key.setdefault(key, [])
            if place not in places:
                places.append(place)
    return groups


def join(one: Record, other: Record) -> Record:
    """Both records' knowledge in one: the journal's identifiers, the longer abstract."""
    first, second = (other, one) if one.preprint and not other.preprint else (one, other)
    return Record(
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
        retraction_sources=_union(first.retraction_sources, second.retraction_sources),
        preprint=first.preprint and second.preprint,
        sources=_union(one.sources, other.sources),
        snippets=_union(one.snippets, other.snippets),
        score=max(one.score, other.score),
    )


def _keys(record: Record) -> list[str]:
    keys = []
    if record.doi:
        keys.append(f"doi:{record.doi}")
    if record.pmid:
        keys.append(f"pmid:{record.pmid}")
    if record.arxiv:
        keys.append(f"arxiv:{record.arxiv}")
    title = title_key(record.title)
    if len(title) >= SHORTEST_TITLE:
        keys.append(f"title:{title}")
    return keys


def _same(one: Record, other: Record, *, by_title: bool) -> bool:
    if not by_title:
        return True
    if one.year and other.year and abs(one.year - other.year) > _YEARS_APART:
        return one.preprint != other.preprint and abs(one.year - other.year) <= 3
    if one.preprint != other.preprint:
        return True
    return not (
        (one.doi and other.doi and one.doi != other.doi)
        or (one.pmid and other.pmid and one.pmid != other.pmid)
    )


def _earliest(one: date | None, other: date | None) -> date | None:
    return min((day for day in (one, other) if day is not None), default=None)


def _union(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))
