"""Synonyms for queries and matching: the ontology's names, and MeSH headings of this field."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from kg.lexicon.ontology import Ontology, OntologyEntry
from kg.literature.text import phrase_key
from kg.literature.types import Query

_GROUPS: tuple[tuple[str, ...], ...] = (
    (
        "bladder cancer",
        "urinary bladder neoplasms",
        "bladder carcinoma",
        "urothelial carcinoma",
        "urothelial cancer",
        "bladder urothelial carcinoma",
        "urothelial bladder cancer",
        "BLCA",
    ),
    ("muscle-invasive bladder cancer", "MIBC", "muscle invasive bladder cancer"),
    ("non-muscle-invasive bladder cancer", "NMIBC", "non muscle invasive bladder cancer"),
    (
        "tertiary lymphoid structure",
        "tertiary lymphoid structures",
        "tertiary lymphoid organ",
        "ectopic lymphoid structure",
        "TLS",
    ),
    (
        "tumor-infiltrating lymphocytes",
        "lymphocytes, tumor-infiltrating",
        "tumour-infiltrating lymphocytes",
        "TIL",
        "TILs",
    ),
    ("overall survival", "survival analysis", "death from any cause"),
    ("progression-free survival", "PFS"),
    ("progression-free interval", "PFI"),
    ("tumor stroma", "tumour stroma", "stromal", "desmoplasia"),
    ("immune checkpoint inhibitor", "immune checkpoint blockade", "PD-1 blockade", "anti-PD-L1"),
    ("whole-slide image", "whole slide imaging", "histology image", "H&E"),
)


@cache
def _index() -> dict[str, tuple[str, ...]]:
    return {phrase_key(name): group for group in _GROUPS for name in group}


_MEASURED = re.compile(
    r"^(density|count|number|area|fraction|proportion|level|score|expression|amount) of "
    r"|\b(expression|density|transcripts?|score|fraction)$| on H&E$",
    re.IGNORECASE,
)
"""Phrases that name a measurement of a thing; papers name the thing."""


def _entry(phrase: str, ontology: Ontology) -> OntologyEntry | None:
    """The ontology's entry for a phrase, or for the first thing that it measures."""
    found = ontology.find(phrase)
    if found is None and _MEASURED.search(phrase):
        inside = (phrase[match.start : match.end] for match in ontology.find_all(phrase))
        found = next((one for name in inside if (one := ontology.find(name))), None)
    return found


def synonyms(phrase: str, ontology: Ontology | None = None) -> tuple[str, ...]:
    """`phrase` first, then its known synonyms: the ontology's entry, then MeSH headings.

    A measurement ("density of TLS on H&E") takes the names of what it measures. A synonym of one
    or two letters is left out: it names too many things.
    """
    names = [phrase]
    entry = _entry(phrase, ontology) if ontology is not None else None
    if entry is not None:
        names += [entry.name, *entry.synonyms]
    for name in tuple(names):
        names += _index().get(phrase_key(name), ())
    kept = {phrase_key(name): name for name in reversed(names) if len(name) > 2 or name == phrase}
    return tuple(reversed(kept.values()))


def expander(ontology: Ontology | None = None) -> Callable[[Query], Query]:
    """A function that gives every phrase of a query its synonyms as alternatives."""

    def expand_one(query: Query) -> Query:
        found = (synonyms(phrase, ontology)[1:] for phrase in query.phrases)
        return query.model_copy(update={"any_of": tuple(found)})

    return expand_one
