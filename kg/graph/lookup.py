"""Lookup of nodes by text."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from kg.fusion.names import lexical_key
from kg.graph.arrays import TYPES, GraphArrays
from kg.graph.build import lookup_keys
from kg.types import ConceptMatch


class Lookup:
    """Lexical index over the names and aliases of a graph."""

    def __init__(self, graph: GraphArrays) -> None:
        self._graph = graph

    @cached_property
    def keys(self) -> dict[str, list[int]]:
        """Nodes by lexical key, those with that name first, then by number of neighbors."""
        out: dict[str, list[int]] = {}
        for key, node in zip(self._graph.alias_keys, self._graph.alias_node.tolist(), strict=True):
            out.setdefault(key, []).append(node)
        degree = self._graph.degree
        names, types = self._graph.names, self._graph.types
        for key, nodes in out.items():
            if len(nodes) > 1:
                own = {n: key in lookup_keys(names[n], TYPES[types[n]]) for n in nodes}
                nodes.sort(key=lambda n, own=own: (not own[n], -degree[n], n))  # type: ignore[misc]
        return out

    def exact(self, text: str) -> int | None:
        """Find the best node whose id, name or alias equals the text, or None."""
        if text in self._graph.position:
            return self._graph.position[text]
        for type_ in (None, *TYPES[:1]):
            key = lexical_key(text) if type_ is None else lexical_key(text, type_)
            if key in self.keys:
                return self.keys[key][0]
        return None

    def find(self, text: str, limit: int) -> list[ConceptMatch]:
        """Find at most `limit` matches: exact, then by prefix, substring and similar spelling."""
        from rapidfuzz import fuzz, process

        text = text.strip()
        key = lexical_key(text)
        found: dict[int, tuple[str, float]] = {}
        if text in self._graph.position:
            found[self._graph.position[text]] = ("id", 1.0)
        for n in self.keys.get(key, ()):
            found.setdefault(n, ("exact", 1.0))
        for n in self.keys.get(lexical_key(text, TYPES[0]), ()):
            found.setdefault(n, ("exact", 1.0))
        if len(found) < limit and key:
            inside = [
                (not k.startswith(key), len(k), k) for k in self.keys if key in k and k != key
            ]
            for rest, size, k in sorted(inside)[: 4 * limit]:
                for n in self.keys[k]:
                    how = "contains" if rest else "prefix"
                    found.setdefault(n, (how, round(len(key) / size, 4)))
        if len(found) < limit and text:
            near = process.extract(
                text.casefold(),
                self._folded_names,
                scorer=fuzz.WRatio,
                limit=2 * limit,
                score_cutoff=65,
            )
            for _, score, n in sorted(near, key=lambda x: (-x[1], x[2])):
                found.setdefault(int(n), ("similar spelling", round(score / 100, 4)))
        graph = self._graph
        order = {"id": 0, "exact": 1, "prefix": 2, "contains": 3, "similar spelling": 4}
        ranked = sorted(
            found.items(), key=lambda x: (order[x[1][0]], -x[1][1], -graph.degree[x[0]], x[0])
        )
        return [
            ConceptMatch(
                phrase=text,
                node_id=graph.ids[n],
                name=graph.names[n],
                type=TYPES[graph.types[n]],
                how=how,
                score=float(np.clip(score, 0.0, 1.0)),
            )
            for n, (how, score) in ranked[:limit]
        ]

    @cached_property
    def _folded_names(self) -> list[str]:
        return [name.casefold() for name in self._graph.names]
