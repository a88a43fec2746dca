"""Rule-based search queries for a hypothesis, before a critic asks for more."""

from __future__ import annotations

from itertools import combinations

from agents.core.types import ExpandedHypothesis
from kg.literature.types import Query


def opening_queries(expanded: ExpandedHypothesis) -> list[Query]:
    """Build queries for the whole combination, the statement and pairs, leading parts first."""
    parts = expanded.parts
    queries = []
    if len(parts) >= 2:
        queries.append(Query(text=" ".join(parts), phrases=parts))
    queries.append(Query(text=expanded.hypothesis.statement[:300]))
    queries += [Query(text=f"{a} {b}", phrases=(a, b)) for a, b in pairs(parts)]
    return queries


def counter_queries(expanded: ExpandedHypothesis) -> list[Query]:
    """Build queries for work that would overlap or refute: pairs of parts with words of denial."""
    doubts = ("not associated", "retracted", "failed to replicate")
    return [
        Query(text=f"{a} {b} {doubt}", phrases=(a, b))
        for a, b in pairs(expanded.parts)[:2]
        for doubt in doubts[:2]
    ] + [Query(text=f"{' '.join(expanded.parts)} {doubts[2]}")]


def pairs(parts: tuple[str, ...]) -> list[tuple[str, str]]:
    """List pairs of parts, starting with those of the leading parts."""
    return sorted(combinations(parts, 2), key=lambda pair: sum(parts.index(name) for name in pair))
