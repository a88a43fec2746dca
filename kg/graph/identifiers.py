"""Public identifiers of concepts and papers, as CURIEs and IRIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from kg.types import Evidence

if TYPE_CHECKING:
    from kg.graph.arrays import GraphArrays

#: Prefix of a CURIE as Biolink writes it, and of identifiers.org, by the space's name; the first
#: that a concept has identifies it.
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
    """Convert known identifiers to (CURIE prefix, local id, IRI), preferred identifier first.

    >>> references({"GO": "GO:0002250", "MeSH": "D056704"})[0]
    ('GO', '0002250', 'https://identifiers.org/GO:0002250')
    """
    found = []
    for space, (prefix, registered) in _SPACES.items():
        if value := identifiers.get(space):
            local = value.rpartition(":")[2]
            found.append((prefix, local, f"https://identifiers.org/{registered}:{quote(local)}"))
    return found


def paper_iri(evidence: Evidence) -> str:
    """Return the IRI of a reading's paper, or a URN for a file without an identifier."""
    if evidence.pmid:
        return f"https://identifiers.org/pubmed:{quote(evidence.pmid, safe='')}"
    if evidence.doi:
        return f"https://doi.org/{quote(evidence.doi, safe='/')}"
    return f"urn:sage:document:{quote(evidence.doc_id, safe='')}"


def list_papers(graph: GraphArrays, edge: int) -> list[str]:
    """List the distinct papers behind an edge, as `PMID:` or `doi:`, in order."""
    found = [
        f"PMID:{s.evidence.pmid}" if s.evidence.pmid else f"doi:{s.evidence.doi}"
        for s in graph.supports(edge)
        if s.evidence.pmid or s.evidence.doi
    ]
    return list(dict.fromkeys(found))
