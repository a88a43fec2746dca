"""Biolink model: classes, predicates, and concept identifiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kg.graph.identifiers import references
from kg.types import EntityType as T

#: Biolink classes of the node types that have one; other types are `NamedThing`.
CATEGORIES = {
    T.GENE: "Gene", T.PROTEIN: "Protein", T.PATHWAY: "Pathway",
    T.BIOLOGICAL_PROCESS: "BiologicalProcess", T.DISEASE: "Disease", T.CELL_TYPE: "Cell",
    T.CELL_LINE: "CellLine",
    T.TISSUE_REGION: "GrossAnatomicalStructure", T.TREATMENT: "Treatment",
    T.CHEMICAL: "ChemicalEntity", T.CLINICAL_ENDPOINT: "ClinicalFinding",
    T.CLINICAL_FACTOR: "ClinicalAttribute", T.MUTATION: "SequenceVariant", T.COHORT: "Cohort",
    T.ORGANISM: "OrganismTaxon", T.STAINING_METHOD: "Procedure",
}  # fmt: skip
#: Biolink predicates of the relations that have one; other relations are `related_to`.
PREDICATES = {
    "binds": "physically_interacts_with", "treats": "treats", "expressed_in": "expressed_in",
    "regulates": "regulates", "affects": "affects", "correlates_with": "positively_correlated_with",
    "correlates_negatively_with": "negatively_correlated_with",
    "associated_with": "associated_with", "contains": "has_part",
}  # fmt: skip


def choose_references(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str] | None]:
    """Choose a public reference for each node; None if the node has none of its own.

    An identifier that an earlier node uses is not reused, so nodes are never merged.
    """
    taken = set()
    chosen = []
    for row in rows:
        first = next(iter(references(row.get("identifiers", {}))), None)
        chosen.append(None if first in taken else first)
        taken.add(first)
    return chosen
