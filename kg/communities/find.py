"""Community detection with the Leiden algorithm, and a description of each community."""

from __future__ import annotations

from collections import Counter

import numpy as np

from kg.graph.arrays import TYPES
from kg.graph.belief import POLARITIES
from kg.graph.identifiers import paper_iri
from kg.graph.model import Graph
from kg.types import Polarity
from sage.core.errors import InputError
from sage.core.models import Strict

#: Number of statements that represent a community, the best supported first.
STATEMENTS = 12


class Cited(Strict):
    """A statement in the graph with its citation number."""

    number: int
    head: str
    relation: str
    tail: str
    polarity: Polarity
    negated: bool
    belief: float
    papers: tuple[str, ...]
    first_year: int | None
    last_year: int | None
    contradicted: bool

    def words(self) -> str:
        """Write the statement as text, with its sign if any."""
        denial = "not: " if self.negated else ""
        sign = f" ({self.polarity.value})" if self.polarity != Polarity.NEUTRAL else ""
        return f"{denial}{self.head} {self.relation.replace('_', ' ')} {self.tail}{sign}"


class Community(Strict):
    """A community: its concepts, most connected first, and its best supported statements.

    `relations` counts the affirmed relations inside the community and `outside` those that leave
    it; `ties` lists (number of another community, relations to it) in descending order.
    """

    number: int
    concepts: tuple[str, ...]
    types: dict[str, int]
    relations: int
    outside: int
    papers: int
    first_year: int | None
    last_year: int | None
    statements: tuple[Cited, ...]
    ties: tuple[tuple[int, int], ...]


def partition(graph: Graph, resolution: float = 1.0, seed: int = 0) -> list[list[int]]:
    """Partition the graph into communities, largest first, as lists of node positions.

    Runs the Leiden algorithm (Traag, Waltman and van Eck 2019, Sci Rep) with modularity on the
    undirected graph of affirmed relations, weighted by summed belief. Every community is connected.
    Nodes without an affirmed relation do not belong to any community.

    Parameters
    ----------
    resolution : values above 1 give more and smaller communities, values below 1 fewer and larger

    Raises
    ------
    InputError
        If the resolution is not a finite number above 0.
    """
    if not 0 < resolution < np.inf:
        raise InputError(f"resolution must be a finite number above 0, got {resolution}")
    import graspologic_native

    kept = ~graph.negated & (graph.head != graph.tail)
    ends = np.sort(np.stack([graph.head[kept], graph.tail[kept]]), axis=0)
    weights: Counter[tuple[int, int]] = Counter()
    for a, b, belief in zip(*ends.tolist(), graph.belief[kept].tolist(), strict=True):
        weights[a, b] += max(belief, 1e-6)
    if not weights:
        return []
    links = [(str(a), str(b), weight) for (a, b), weight in sorted(weights.items())]
    _, found = graspologic_native.leiden(
        links, resolution=resolution, iterations=5, seed=seed, trials=3
    )
    groups: dict[int, list[int]] = {}
    for name, group in found.items():
        groups.setdefault(group, []).append(int(name))
    return sorted((sorted(nodes) for nodes in groups.values()), key=lambda g: (-len(g), g))


def find_communities(graph: Graph, resolution: float = 1.0, seed: int = 0) -> list[Community]:
    """Find the communities of the graph and describe each by the statements inside it."""
    groups = partition(graph, resolution, seed)
    home = np.full(graph.n_nodes, -1)
    for number, nodes in enumerate(groups):
        home[nodes] = number
    here, there = home[graph.head], home[graph.tail]
    affirmed = ~graph.negated
    return [
        _describe(graph, number, nodes, here, there, affirmed)
        for number, nodes in enumerate(groups)
    ]


def _describe(
    graph: Graph,
    number: int,
    nodes: list[int],
    here: np.ndarray,
    there: np.ndarray,
    affirmed: np.ndarray,
) -> Community:
    """Describe a community by the statements inside it.

    Parameters
    ----------
    here, there : (m,) community of each edge's head and tail, -1 if it has none
    """
    inside = np.flatnonzero((here == number) & (there == number))
    leaving = np.flatnonzero(affirmed & ((here == number) ^ (there == number)))
    others = Counter(
        int(o) + 1
        for o in np.where(here[leaving] == number, there[leaving], here[leaving]).tolist()
        if o >= 0
    )
    degree = Counter(
        n for e in inside.tolist() if affirmed[e]
        for n in (int(graph.head[e]), int(graph.tail[e]))
    )  # fmt: skip
    order = sorted(nodes, key=lambda n: (-degree[n], graph.names[n]))
    best = np.lexsort((inside, -graph.weight[inside], -graph.belief[inside]))
    years = [int(y) for e in inside for y in (graph.first_year[e], graph.last_year[e]) if y]
    papers = {paper_iri(s.evidence) for e in inside.tolist() for s in graph.supports(e)}
    return Community(
        number=number + 1,
        concepts=tuple(graph.names[n] for n in order),
        types=dict(Counter(TYPES[graph.types[n]].value for n in nodes).most_common()),
        relations=int(affirmed[inside].sum()),
        outside=len(leaving),
        papers=len(papers),
        first_year=min(years, default=None),
        last_year=max(years, default=None),
        statements=tuple(
            _cite_statement(graph, int(inside[at]), k) for k, at in enumerate(best[:STATEMENTS], 1)
        ),
        ties=tuple(others.most_common(3)),
    )


def _cite_statement(graph: Graph, e: int, number: int) -> Cited:
    view = graph.edge(e)
    return Cited(
        number=number,
        head=view.head_name,
        relation=view.relation,
        tail=view.tail_name,
        polarity=POLARITIES[graph.polarity[e]],
        negated=view.negated,
        belief=round(view.belief, 3),
        papers=tuple(dict.fromkeys(paper_iri(s.evidence) for s in view.supports)),
        first_year=view.first_year,
        last_year=view.last_year,
        contradicted=bool(view.contradicting),
    )
