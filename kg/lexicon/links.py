"""Relations between different entities: narrower, opposite, inverse measure.

`related.tsv`: id, relation, other. Synonyms belong to their entity; other related
entities are here, so that a narrower term is found without being taken for the broader term,
and an opposite never counts as the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

COLUMNS = ("id", "relation", "other")


class Link(StrEnum):
    """Relation between entities; files hold the first three, `narrower` is derived."""

    BROADER = "broader"
    OPPOSITE = "opposite"
    INVERSE_MEASURE = "inverse_measure"
    NARROWER = "narrower"

    @property
    def sign(self) -> int:
        """+1 where both increase together, -1 where they oppose."""
        return -1 if self in (Link.OPPOSITE, Link.INVERSE_MEASURE) else 1


@dataclass(frozen=True, slots=True)
class Related:
    """`other` is the broader (opposite, ...) entity of `id`."""

    id: str
    relation: Link
    other: str


class Links:
    """The relations of an ontology's entities, read in both directions."""

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
        """List the direct relations of an entity: (relation, id of the other entity)."""
        found = [(Link.BROADER, other) for other in self._up[entity]]
        found += [(Link.NARROWER, other) for other in self._down[entity]]
        return (*found, *self._against[entity])

    def broader(self, entity: str) -> tuple[str, ...]:
        """All broader entities, the nearest first."""
        return _reach(entity, self._up)

    def narrower(self, entity: str) -> tuple[str, ...]:
        """All narrower entities, the nearest first."""
        return _reach(entity, self._down)

    def sign(self, first: str, second: str) -> int:
        """Direction in which the second entity changes with the first.

        Returns
        -------
        1 for the same entity or a narrower and a broader entity, -1 for opposites and inverse
        measures and what is narrower than either, 0 where the ontology relates them in neither way.
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
