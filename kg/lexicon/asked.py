"""Meanings of names in an ontology, and the relations between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from pydantic import BaseModel

from kg.types import EntityType

if TYPE_CHECKING:
    from kg.lexicon.index import Lexicon
    from kg.lexicon.ontology import Ontology, OntologyEntry

UNRELATED = "two concepts, neither broader nor opposite"


class Meaning(BaseModel):
    """A concept denoted by a name, or by part of it (`whole` false)."""

    text: str
    whole: bool
    id: str
    concept: str
    type: EntityType
    definition: str | None
    synonyms: list[str]
    identifiers: dict[str, str]
    related: dict[str, list[str]]


class Asked(BaseModel):
    """A name and its meanings, those of the whole name if known, else those of its parts."""

    name: str
    meanings: list[Meaning]


class Between(BaseModel):
    """Direction in which two concepts agree: +1, -1, or 0 for neither."""

    first: str
    second: str
    sign: int
    words: str


def describe_names(
    names: Sequence[str], ontology: Ontology, lexicons: Sequence[Lexicon] = ()
) -> tuple[list[Asked], list[Between]]:
    """Describe the meanings of `names` and the relations between the known names."""
    from kg.lexicon.names import Names

    known = Names(ontology, lexicons)
    answers, whole = [], []
    for name in names:
        entry = known.find(name)
        if entry is not None:
            answers.append(Asked(name=name, meanings=[_meaning(name, True, entry, ontology)]))
            whole.append(entry)
            continue
        parts = {(name[start:end], part.id): part for start, end, part in known.find_all(name)}
        meanings = [_meaning(text, False, part, ontology) for (text, _), part in parts.items()]
        answers.append(Asked(name=name, meanings=meanings))
    return answers, [_compare(a, b, ontology) for a, b in combinations(whole, 2)]


def _meaning(text: str, whole: bool, entry: OntologyEntry, ontology: Ontology) -> Meaning:
    related: defaultdict[str, list[str]] = defaultdict(list)
    if ontology.by_id(entry.id) is not None:
        for link, other in ontology.list_related(entry.id):
            related[link.value].append(other.name)
    return Meaning(
        text=text,
        whole=whole,
        id=entry.id,
        concept=entry.name,
        type=entry.type,
        definition=entry.definition,
        synonyms=list(entry.synonyms),
        identifiers=dict(entry.identifiers),
        related=dict(related),
    )


def _compare(first: OntologyEntry, second: OntologyEntry, ontology: Ontology) -> Between:
    from kg.lexicon.links import Link

    links = ontology.links
    sign = links.sign(first.id, second.id)
    if first.id == second.id:
        words = "one concept"
    elif second.id in links.broader(first.id):
        words = "the second is broader"
    elif first.id in links.broader(second.id):
        words = "the first is broader"
    elif sign < 0:
        kinds = {link for link, other in links.list_links(first.id) if other == second.id}
        inverse = "inverse measures" if Link.INVERSE_MEASURE in kinds else "opposites"
        words = f"{inverse}: more of one is less of the other"
    else:
        words = UNRELATED
    return Between(first=first.name, second=second.name, sign=sign, words=words)
