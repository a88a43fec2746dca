"""Synonyms for queries and matching, from the ontology and from MeSH headings in this field."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from kg.extract.mentions import MARKED
from kg.lexicon.links import Link
from kg.lexicon.ontology import Ontology, OntologyEntry
from kg.literature.text import phrase_key
from kg.literature.types import Query
from kg.types import EntityType

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
    ("CD8 T cell", "CD8+ T cells", "CD8+ TIL", "CD8+ lymphocytes", "CD8+ cells", "CD8 density"),
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
"""Pattern for phrases that describe a measurement; papers usually name the measured entity."""


def _entry(phrase: str, ontology: Ontology) -> OntologyEntry | None:
    """Find the ontology's entry for a phrase, or for the first entity that it measures."""
    found = ontology.find(phrase)
    if found is None and _MEASURED.search(phrase):
        inside = (phrase[match.start : match.end] for match in ontology.find_all(phrase))
        found = next((entry_ for name in inside if (entry_ := ontology.find(name))), None)
    return found


def list_synonyms(phrase: str, ontology: Ontology | None = None) -> tuple[str, ...]:
    """List `phrase`, then its synonyms from the ontology, then those from MeSH headings.

    A measurement ("density of TLS on H&E") receives the names of the entity that it measures.
    Synonyms of fewer than three letters are left out because they are too ambiguous.
    """
    names = [phrase]
    entry = _entry(phrase, ontology) if ontology is not None else None
    if entry is not None:
        names += [entry.name, *entry.synonyms]
    for name in tuple(names):
        names += _index().get(phrase_key(name), ())
    kept = {phrase_key(name): name for name in reversed(names) if len(name) > 2 or name == phrase}
    return tuple(reversed(kept.values()))


_SAME_QUESTION = (
    ("progression-free interval", "progression-free survival", "time to progression"),
    (
        "disease-free interval",
        "disease-free survival",
        "recurrence-free survival",
        "time to recurrence",
    ),
)
"""Endpoints that papers report interchangeably; they differ in which deaths count."""

_AMOUNT = re.compile(r"[\s-](infiltrat(?:ion|es?)|abundance|transcripts?)$", re.IGNORECASE)
_PHENOTYPE = re.compile(r"\s+phenotype$")


def _named_within(phrase: str, ontology: Ontology) -> tuple[str, OntologyEntry] | None:
    """Find the entity that a longer phrase is about, as spelled in the phrase.

    For example, PD-L1 for "PD-L1 expression" and "PD-L1 on immune cells"; if the phrase names
    several entities, the first entity is returned.
    """
    bare = _MEASURED.sub("", phrase).strip()
    names = [bare, *(phrase[match.start : match.end] for match in ontology.find_all(phrase))]
    for name in names:
        if name != phrase and (found := ontology.find(name)) is not None:
            return name, found
    return None


def list_related(phrase: str, ontology: Ontology | None = None) -> dict[str, tuple[str, ...]]:
    """List concepts that papers report in place of `phrase`, each with its names.

    These are narrower concepts (the immune-excluded phenotype for immune phenotypes), the
    cell type that the phrase marks or whose infiltration it describes (CD8 T cells for CD8A),
    the molecule whose expression it describes, and endpoints that answer the same question.
    None of them is identical to `phrase`, and callers must state this.
    """
    names = list_synonyms(phrase, ontology)
    found = {
        other: list_synonyms(other, ontology)
        for group in _SAME_QUESTION
        if any(phrase_key(name) in map(phrase_key, names) for name in group)
        for other in group
    }
    entries: list[OntologyEntry] = []
    if ontology is not None:
        entry = _entry(phrase, ontology)
        cell = ontology.find(_AMOUNT.sub("", phrase))
        if cell is not None and cell.type is EntityType.CELL_TYPE:
            entries.append(cell)
        marks = ontology.find(MARKED.get(entry.name, "")) if entry is not None else None
        entries += [marks] if marks is not None else []
        for entry_ in (entry, *entries):
            narrower = ontology.links.narrower(entry_.id) if entry_ is not None else ()
            entries += [other for name in narrower if (other := ontology.by_id(name)) is not None]
        if (inside := _named_within(phrase, ontology)) is not None:
            name, other = inside
            if entry is None or other.id != entry.id:
                found[name] = list_synonyms(name, ontology)
        if entry is not None and entry.type is EntityType.CLINICAL_ENDPOINT:
            links = ontology.list_related(entry.id)
            entries += [other for link, other in links if link is Link.INVERSE_MEASURE]
    for entry_ in entries:
        also = [_PHENOTYPE.sub("", name) for name in (entry_.name, *entry_.synonyms)]
        # "Immune-excluded tumors" are meant; "excluded" alone is not enough.
        plain = [name for name in also if len(phrase_key(name).split()) > 1]
        found[entry_.name] = tuple(dict.fromkeys((*list_synonyms(entry_.name, ontology), *plain)))
    own = set(map(phrase_key, names))
    return {name: also for name, also in found.items() if phrase_key(name) not in own}


def make_expander(ontology: Ontology | None = None) -> Callable[[Query], Query]:
    """Return a function that adds synonyms as alternatives to every phrase in a query."""

    def expand_one(query: Query) -> Query:
        found = (list_synonyms(phrase, ontology)[1:] for phrase in query.phrases)
        return query.model_copy(update={"any_of": tuple(found)})

    return expand_one
