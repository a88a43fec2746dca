"""Public identifiers of concepts and papers as CURIEs and as IRIs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from kg.types import Evidence

#: Prefix of a CURIE as Biolink writes it, and of identifiers.org, by the space's name; the first
#: that a concept has is the one it is known by.
_SPACES = {
    "HGNC": ("HGNC", "hgnc"),
    "NCBIGene": ("NCBIGene", "ncbigene"),
    "GO": ("GO", "GO"),
    "CL": ("CL", "CL"),
    "DOID": ("DOID", "DOID"),
    "MONDO": ("MONDO", "MONDO"),
    "UBERON": ("UBERON", "UBERON"),
    "HP": ("HP", "HP"),
    "ChEBI": ("CHEBI", "CHEBI"),
    "DrugBank": ("DRUGBANK", "drugbank"),
    "Cellosaurus": ("Cellosaurus", "cellosaurus"),
    "NCBITaxon": ("NCBITaxon", "taxonomy"),
    "MeSH": ("MESH", "mesh"),
    "NCIT": ("NCIT", "ncit"),
}


def references(identifiers: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(CURIE prefix, local id, IRI) of each known identifier, the preferred one first.

    >>> references({"GO": "GO:0002250", "MeSH": "D056704"})[0]
    ('GO', '0002250', 'https://identifiers.org/GO:0002250')
    """
    found = []
    for space, (prefix, registered) in _SPACES.items():
        if value := identifiers.get(space):
            local = value.rpartition(":")[2]
            found.append((prefix, local, f"https://identifiers.org/{registered}:{quote(local)}"))
    return found


def preferred(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str] | None]:
    """For each node, the reference that it is known by abroad; None where it has none of its own.

    An identifier that an earlier node bears is not used again: two nodes never become one.
    """
    taken = set()
    chosen = []
    for row in rows:
        first = next(iter(references(row.get("identifiers", {}))), None)
        chosen.append(None if first in taken else first)
        taken.add(first)
    return chosen


def paper_iri(evidence: Evidence) -> str:
    """The IRI of the paper that a reading comes from; a file without identifier has a URN."""
    if evidence.pmid:
        return f"https://identifiers.org/pubmed:{quote(evidence.pmid, safe='')}"
    if evidence.doi:
        return f"https://doi.org/{quote(evidence.doi, safe='/')}"
    return f"urn:sage:document:{quote(evidence.doc_id, safe='')}"
