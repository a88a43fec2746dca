"""Detection of cancers in a passage other than the requested cancer."""

from __future__ import annotations

import re

from kg.lexicon.ontology import Ontology, OntologyEntry
from kg.literature.expansion import list_synonyms
from kg.literature.text import mentions, phrase_key
from kg.types import EntityType

_CANCER = re.compile(
    r"cancer|carcinoma|leukemia|lymphoma|melanoma|sarcoma|glioma|blastoma|myeloma|mesothelioma|"
    r"thymoma|NMIBC"
)
_OF_NO_ORGAN = {"cancer", "carcinoma in situ", "squamous cell carcinoma", "adenocarcinoma"}


def list_other_cancers(text: str, disease: str, ontology: Ontology) -> tuple[str, ...]:
    """List the cancers named in `text` if all of them are unrelated to `disease`.

    The result is empty if the text names no cancer; if it names `disease`, a subtype, or a
    broader cancer; or if `disease` is not a cancer in the ontology.
    """
    asked = ontology.find(disease)
    if asked is None or not _is_cancer(asked):
        return ()
    numbers = dict.fromkeys(match.entry for match in ontology.find_all(text))
    entries = list(ontology.entries())
    named = [entries[number] for number in numbers if _is_cancer(entries[number])]
    if any(_akin(asked, entry, ontology) for entry in named):
        return ()
    return tuple(entry.name for entry in named)


def _is_cancer(entry: OntologyEntry) -> bool:
    return (
        entry.type is EntityType.DISEASE
        and _CANCER.search(entry.name) is not None
        and entry.name not in _OF_NO_ORGAN
    )


def _akin(first: OntologyEntry, second: OntologyEntry, ontology: Ontology) -> bool:
    if first.id == second.id or ontology.links.sign(first.id, second.id) == 1:
        return True
    return any(
        mentions(phrase_key(a.name), list_synonyms(b.name, ontology))
        for a, b in ((first, second), (second, first))
    )
