"""The domain ontology: entities with synonyms, types, definitions; relations with polarity."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ontology:
    """Entities and relations of the domain, loaded from `data/ontology`."""
