"""Relations between different entities: broader, narrower, opposite, and inverse measure.

The columns of `related.tsv` are id, relation and other. Synonyms are listed with their entity.
Related but different entities are listed here, so that a narrower term can be found without being
mistaken for the broader one, and an opposite is never taken for the same entity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

COLUMNS = ("id", "relation", "other")


class Link(StrEnum):
    """Relation between entities; `narrower` is derived, and files contain only the other types."""

    BROADER = "broader"
    OPPOSITE = "opposite"
    INVERSE_MEASURE = "inverse_measure"
    NARROWER = "narrower"

    @property
    def sign(self) -> int:
        """Sign of the relation: +1 if both entities increase together, -1 if they are opposed."""
        return -1 if self in (Link.OPPOSITE, Link.INVERSE_MEASURE) else 1


@dataclass(frozen=True, slots=True)
class Related:
    """Row in which `other` is the broader (opposite, ...) entity for `id`."""

    id: str
    relation: Link
    other: str


class Links:
    """The relations between an ontology's entities, accessible in both directions."""

    def __init__(self, related: Iterable[Related] = ()) -> None:
        self.related = tuple(related)
        self._up: defaultdict[str, list[str]] = defaultdict(list)
        self._down: defaultdict[str, list[str]] = defaultdict(list)
        self._against: defaultdict[str, list[tuple[Link, str]]] = defaultdict(list)
        for item in self.related:
            if item.relation is Link.BROADER:
                self._up[item.id].append(item.other)
                self._down[item.other].append(item.id)
            else:
                self._against[item.id].append((item.relation, item.other))
                self._against[item.other].append((item.relation, item.id))

    def list_links(self, entity: str) -> tuple[tuple[Link, str], ...]:
        """List an entity's direct relations as (relation, id of the other entity)."""
        found = [(Link.BROADER, other) for other in self._up[entity]]
        found += [(Link.NARROWER, other) for other in self._down[entity]]
        return (*found, *self._against[entity])

    def broader(self, entity: str) -> tuple[str, ...]:
        """List all broader entities, closest first."""
        return _reach(entity, self._up)

    def narrower(self, entity: str) -> tuple[str, ...]:
        """List all narrower entities, closest first."""
        return _reach(entity, self._down)

    def sign(self, first: str, second: str) -> int:
        """Return the direction in which the second entity changes with the first.

        Returns
        -------
        1 if the entities are the same or one is broader than the other; -1 if they, or their
        broader entities, are opposites or inverse measures; 0 otherwise.
        """
        above = (first, *self.broader(first))
        if second in above or first in self.broader(second):
            return 1
        others = {second, *self.broader(second)}
        if any(other in others for entity in above for _, other in self._against[entity]):
            return -1
        return 0


def _reach(entity: str, steps: dict[str, list[str]]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    edge = [entity]
    while edge:
        edge = [other for item in edge for other in steps.get(item, ()) if other not in found]
        found.update(dict.fromkeys(edge))
    return tuple(other for other in found if other != entity)
