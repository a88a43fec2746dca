"""Edges: local graphs per document, their sum, and the components worth keeping (SAGE, A.4)."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import ArrayLike

from kg.fusion.merge import Clusters
from kg.fusion.model import FusedEdge, FusedNode, FusionOptions, Support
from kg.fusion.names import clean_name
from kg.types import EntityType, Polarity, Triple

_Key = tuple[int, str, int, bool]


def assemble(
    triples: list[Triple], clusters: Clusters, options: FusionOptions, dropped: dict[str, int]
) -> tuple[list[FusedNode], list[FusedEdge]]:
    """Nodes in order of id, and edges in order of head, tail, relation, with all evidence.

    Parameters
    ----------
    triples : as extracted, with their evidence; every head and tail is a member of a cluster
    clusters : which names are one entity
    options : in `paper` mode all triples between an ordered pair make one edge; in `guarded` mode
        relations, affirmed and denied readings, and readings of opposite sign stay apart
    dropped : counts of what was left out, by reason; triples within one cluster are added to its
        entry "self-loop", which has to be there

    Returns
    -------
    Nodes, and edges whose `head` and `tail` are positions among them. An edge's supports are its
    distinct readings, the most confident first; its polarity is that with the largest sum of
    confidence, neutral in a tie.
    """
    order = sorted(range(len(clusters.clusters)), key=lambda n: clusters.clusters[n].id)
    place = {old: new for new, old in enumerate(order)}
    nodes = [_node(clusters, old) for old in order]
    gathered: defaultdict[_Key, list[Triple]] = defaultdict(list)
    known: dict[tuple[str, EntityType], int] = {}

    def placed(name: str, kind: EntityType) -> int:
        if (at := known.get((name, kind))) is None:
            at = known[name, kind] = place[clusters.of[clean_name(name), kind]]
        return at

    for triple in triples:
        head = placed(triple.head, triple.head_type)
        tail = placed(triple.tail, triple.tail_type)
        if head == tail:
            dropped["self-loop"] += 1
        elif options.mode == "paper":
            gathered[head, "", tail, False].append(triple)
        else:
            gathered[head, triple.relation, tail, triple.negated].append(triple)
    edges: list[FusedEdge] = []
    for key in sorted(gathered, key=lambda k: (k[0], k[2], k[1], k[3])):
        head, relation, tail, negated = key
        for group in _by_sign(gathered[key]) if options.mode == "guarded" else [gathered[key]]:
            if len(group) > 1:
                group.sort(key=_reading_order)
            edges.append(
                FusedEdge(
                    head=head,
                    relation=relation or group[0].relation,
                    tail=tail,
                    polarity=_polarity(group),
                    negated=negated,
                    supports=_distinct(group),
                )
            )
    return nodes, edges


def _by_sign(group: list[Triple]) -> list[list[Triple]]:
    """Readings that raise and those that lower, apart; neutral ones go with the stronger side.

    "associated with longer" and "associated with shorter survival" speak against each other.
    """
    if len(group) == 1:
        return [group]
    sides = [[t for t in group if t.polarity == p] for p in (Polarity.POSITIVE, Polarity.NEGATIVE)]
    if not all(sides):
        return [group]
    stronger = max(sides, key=lambda side: sum(t.confidence for t in side))
    stronger += [t for t in group if t.polarity == Polarity.NEUTRAL]
    return sides


def _node(clusters: Clusters, position: int) -> FusedNode:
    cluster = clusters.clusters[position]
    entry = cluster.entry
    if entry is None and len(cluster.members) == 1 and cluster.members[0][0] == cluster.name:
        return FusedNode(cluster.id, cluster.name, cluster.type, (cluster.name,))
    names = list(dict.fromkeys([cluster.name, *(m[0] for m in cluster.members)]))
    return FusedNode(
        id=cluster.id,
        name=cluster.name,
        type=cluster.type,
        names=(names[0], *sorted(names[1:])),
        definition=entry.definition if entry else None,
        identifiers=dict(sorted(entry.identifiers.items())) if entry else {},
        synonyms=tuple(sorted(set(entry.synonyms) - set(names))) if entry else (),
    )


def _reading_order(triple: Triple) -> tuple[object, ...]:
    e = triple.evidence
    return (-triple.confidence, e.doc_id, e.start, e.end, triple.relation_text, triple.extractor)


def _distinct(group: list[Triple]) -> tuple[Support, ...]:
    seen: set[tuple[object, ...]] = set()
    out: list[Support] = []
    for triple in group:
        e = triple.evidence
        mark = (e.doc_id, e.start, e.end, triple.relation_text)
        if mark not in seen:
            seen.add(mark)
            out.append(
                Support(
                    evidence=e,
                    confidence=triple.confidence,
                    relation_text=triple.relation_text,
                    speculative=triple.speculative,
                    extractor=triple.extractor,
                )
            )
    return tuple(out)


def _polarity(group: list[Triple]) -> Polarity:
    """The polarity with the most confidence behind it; a tie is neutral."""
    if len(group) == 1 and group[0].confidence > 0:
        return group[0].polarity
    mass = {p: sum(t.confidence for t in group if t.polarity == p) for p in Polarity}
    best = max(mass.values())
    winners = [p for p, m in mass.items() if m == best]
    return winners[0] if len(winners) == 1 else Polarity.NEUTRAL


def prune(
    nodes: list[FusedNode], edges: list[FusedEdge], below: int, dropped: dict[str, int]
) -> tuple[list[FusedNode], list[FusedEdge], dict[int, int]]:
    """Without the components of fewer than `below` nodes (SAGE, A.4).

    Parameters
    ----------
    nodes : all nodes
    edges : with positions in `nodes`; direction is ignored for components
    below : smallest component that is kept, in nodes; 1 keeps everything
    dropped : counts of what was left out, by reason; nodes and edges in small components are set

    Returns
    -------
    The nodes that are kept in their order, their edges at the new positions, and the new position
    of each kept node by its old one.
    """
    labels = components(len(nodes), [(e.head, e.tail) for e in edges])
    sizes = np.bincount(labels, minlength=1) if len(nodes) else np.zeros(1, dtype=np.int64)
    keep = np.flatnonzero(sizes[labels] >= below).tolist()
    position = {old: new for new, old in enumerate(keep)}
    dropped["nodes in small components"] = len(nodes) - len(keep)
    if len(keep) == len(nodes):
        dropped["edges in small components"] = 0
        return nodes, edges, position
    moved = [
        FusedEdge(position[e.head], e.relation, position[e.tail], e.polarity, e.negated, e.supports)
        for e in edges
        if e.head in position
    ]
    dropped["edges in small components"] = len(edges) - len(moved)
    return [nodes[n] for n in keep], moved, position


def components(n: int, ends: ArrayLike) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """(n,) label of each node's weakly connected component."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not n:
        return np.zeros(0, dtype=np.int32)
    pair = np.asarray(ends, dtype=np.int32).reshape(-1, 2)
    matrix = coo_array((np.ones(len(pair), dtype=np.int8), (pair[:, 0], pair[:, 1])), shape=(n, n))
    labels: np.ndarray[tuple[int], np.dtype[np.int32]] = connected_components(
        matrix, directed=False
    )[1]
    return labels
