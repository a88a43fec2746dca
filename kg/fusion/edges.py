"""Assembly of edges from triples in all documents, with small components pruned (SAGE, A.4)."""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from kg.fusion.mentions import Mention
from kg.fusion.model import FusedEdge, FusedNode, FusionOptions, Support
from kg.types import Polarity, Triple

if TYPE_CHECKING:
    from kg.fusion.merge import Cluster, Clusters

_Key = tuple[int, int, str, bool]


def assemble(
    triples: list[Triple],
    ends: list[tuple[Mention, Mention]],
    clusters: Clusters,
    options: FusionOptions,
    dropped: dict[str, int],
) -> tuple[list[FusedNode], list[FusedEdge]]:
    """Assemble nodes, sorted by id, and edges with evidence, sorted by head, tail and relation.

    Weakly connected components with fewer than `options.prune_below` nodes are left out
    (SAGE, A.4).

    Parameters
    ----------
    triples : extracted triples with their evidence
    ends : head and tail of each triple as mentions, each a member of a cluster
    clusters : the clusters of names, one per entity
    options : in `paper` mode, all triples between an ordered pair form a single edge; in
        `guarded` mode, different relations, affirmed and denied readings, and readings of
        opposite sign form separate edges
    dropped : counts of dropped items by reason, updated in place; triples within a cluster
        are added to the entry "self-loop", which must exist, and the counts for small
        components are set

    Returns
    -------
    Nodes, and edges whose `head` and `tail` are positions in the list of nodes. An edge's
    supports are its distinct readings, the most confident first; its polarity is that with
    the largest sum of confidence, or neutral in a tie.
    """
    ordered = sorted(clusters.clusters, key=lambda cluster: cluster.id)
    place = {member: at for at, cluster in enumerate(ordered) for member in cluster.members}
    gathered: defaultdict[_Key, list[Triple]] = defaultdict(list)
    guarded = options.mode == "guarded"
    for triple, (first, second) in zip(triples, ends, strict=True):
        head, tail = place[first], place[second]
        if head == tail:
            dropped["self-loop"] += 1
        elif guarded:
            gathered[head, tail, triple.relation, triple.negated].append(triple)
        else:
            gathered[head, tail, "", False].append(triple)
    labels = components(len(ordered), [key[:2] for key in gathered])
    kept = (np.bincount(labels)[labels] >= options.prune_below).tolist() if ordered else []
    position = list(accumulate(kept, initial=0))
    nodes = [_node(cluster) for cluster, keep in zip(ordered, kept, strict=True) if keep]
    edges: list[FusedEdge] = []
    small = 0
    for key in sorted(gathered):
        head, tail, relation, negated = key
        groups = _by_sign(gathered[key]) if guarded else [gathered[key]]
        if not kept[head]:
            small += len(groups)
            continue
        for group in groups:
            if len(group) > 1:
                group.sort(key=_reading_order)
            edges.append(
                FusedEdge(
                    head=position[head],
                    relation=relation or group[0].relation,
                    tail=position[tail],
                    polarity=_polarity(group),
                    negated=negated,
                    supports=_distinct(group),
                )
            )
    dropped["nodes in small components"] = len(ordered) - len(nodes)
    dropped["edges in small components"] = small
    return nodes, edges


def _by_sign(group: list[Triple]) -> list[list[Triple]]:
    """Separate positive from negative readings; neutral readings join the stronger group.

    "associated with longer survival" and "associated with shorter survival" contradict each
    other.
    """
    if len(group) == 1:
        return [group]
    sides = [[t for t in group if t.polarity == p] for p in (Polarity.POSITIVE, Polarity.NEGATIVE)]
    if not all(sides):
        return [group]
    stronger = max(sides, key=lambda side: sum(t.confidence for t in side))
    stronger += [t for t in group if t.polarity == Polarity.NEUTRAL]
    return sides


def _node(cluster: Cluster) -> FusedNode:
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
    """Convert triples to distinct readings."""
    marked: dict[tuple[object, ...], Triple] = {}
    if len(group) > 1:
        for t in group:
            e = t.evidence
            marked.setdefault((e.doc_id, e.start, e.end, t.relation_text), t)
    return tuple(
        Support(
            evidence=t.evidence,
            confidence=t.confidence,
            relation_text=t.relation_text,
            speculative=t.speculative,
            extractor=t.extractor,
        )
        for t in (marked.values() or group)
    )


def _polarity(group: list[Triple]) -> Polarity:
    """Find the polarity with the largest sum of confidence; a tie is neutral."""
    if len(group) == 1 and group[0].confidence > 0:
        return group[0].polarity
    mass = {p: sum(t.confidence for t in group if t.polarity == p) for p in Polarity}
    best = max(mass.values())
    winners = [p for p, m in mass.items() if m == best]
    return winners[0] if len(winners) == 1 else Polarity.NEUTRAL


def components(n: int, ends: ArrayLike) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Label each node with its weakly connected component, as an (n,) array."""
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
