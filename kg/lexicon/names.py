"""Lookup of names in an ontology and imported lexicons, with public identifiers."""

from __future__ import annotations

from collections.abc import Sequence

from kg.lexicon.ambiguous import Ambiguous
from kg.lexicon.index import Lexicon, LexiconEntry
from kg.lexicon.ontology import Ontology, OntologyEntry

KEYS = {
    "NCBIGene": "NCBIGene", "HGNC": "HGNC", "MESH": "MeSH", "DOID": "DOID", "MONDO": "MONDO",
    "HP": "HP", "GO": "GO", "CL": "CL", "UBERON": "UBERON", "CHEBI": "ChEBI",
    "CVCL": "Cellosaurus", "NCBITaxon": "NCBITaxon",
}  # fmt: skip
"""Map from lexicon id prefixes to the ontology's names for these identifier spaces."""
_BARE = {"NCBIGene", "MeSH", "NCBITaxon"}
"""Identifier spaces whose identifiers are written without their prefix."""


def identifiers_of(entity_id: str | None, ontology: Ontology) -> dict[str, str]:
    """Return an entity's public identifiers, from the ontology or from its lexicon id."""
    if entity_id is None:
        return {}
    entry = ontology.by_id(entity_id)
    if entry is not None:
        return dict(entry.identifiers)
    prefix, _, rest = entity_id.replace("CVCL_", "CVCL:CVCL_").partition(":")
    space = KEYS.get(prefix)
    if space is None or not rest:
        return {}
    bare = space in _BARE or space == "Cellosaurus"
    return {space: rest if bare else f"{prefix}:{rest}"}


class Names:
    """Lookup of whole names, first in the ontology and then in each lexicon in order."""

    def __init__(self, ontology: Ontology, lexicons: Sequence[Lexicon] = ()) -> None:
        self._ontology = ontology
        self._lexicons = tuple(lexicons)
        self._ambiguous = Ambiguous(ontology, lexicons)
        self._bearers = {
            pair: entry for entry in ontology.entries() for pair in entry.identifiers.items()
        }

    def find(self, name: str) -> OntologyEntry | None:
        """Find an ontology entry, or build an entry with public identifiers from a lexicon.

        If the lexicon's entry shares an identifier with an ontology entry, the latter is
        returned.
        """
        entry = self._ontology.find(name)
        if entry is not None:
            return entry
        stripped = name.strip()
        for lexicon in self._lexicons:
            for match in lexicon.find(stripped):
                if (match.start, match.end) == (0, len(stripped)):
                    return self._make_entry(lexicon.entry(match.entry))
        return None

    def find_all(self, text: str) -> list[tuple[int, int, OntologyEntry]]:
        """Find the names in `text` (start, end, entry), in order, resolving homonyms by context."""
        entries = list(self._ontology.entries())
        found = [(m.start, m.end, entries[m.entry]) for m in self._ontology.find_all(text)]
        for lexicon in self._lexicons:
            for match in lexicon.find(text):
                start, end = match.start, match.end
                if any(start < last and first < end for first, last, _ in found):
                    continue
                if not self._ontology.homonyms.decide(text, start, end)[0]:
                    by_name = lexicon.entry(match.entry)
                    entry = self._ambiguous.decide(text[start:end], text, by_name)
                    if isinstance(entry, LexiconEntry):
                        entry = self._make_entry(entry)
                    if entry is not None:
                        found.append((start, end, entry))
        return sorted(found, key=lambda row: row[:2])

    def _make_entry(self, found: LexiconEntry) -> OntologyEntry:
        identifiers = identifiers_of(found.id, self._ontology)
        for pair in identifiers.items():
            if pair in self._bearers:
                return self._bearers[pair]
        return OntologyEntry(found.id, found.name, found.type, identifiers=identifiers)
