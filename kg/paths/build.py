"""Conversion of node position rows to sentences and to paths with evidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kg.graph.arrays import TYPES, GraphArrays
from kg.graph.belief import POLARITIES
from kg.graph.model import Graph
from kg.paths import scores
from kg.paths.mechanism import acting, mechanism_of, turns, weigh_relations
from kg.paths.score import Raw, Rows
from kg.types import PathEdge, PathNode, PathScores, ScoredPath


class Steps:
    """Choice of the best edge between neighbors on a path.

    Edges are ranked by belief times the role of their relation, then forward before backward, then
    by weight, then by position.

    With `one_way`, a path whose steps would act in both directions uses edges that act in a single
    direction if there are any: if two entities act on each other, the weaker action may be chosen.
    """

    def __init__(self, graph: GraphArrays, *, one_way: bool = False) -> None:
        keep = np.flatnonzero(~graph.negated)
        self._n = graph.n_nodes
        h, t = graph.head[keep].astype(np.int64), graph.tail[keep].astype(np.int64)
        code = np.concatenate([h * self._n + t, t * self._n + h])
        edge = np.concatenate([keep, keep])
        backward = np.repeat([False, True], len(keep))
        asserted = graph.belief * weigh_relations(graph)
        order = np.lexsort((edge, -graph.weight[edge], backward, -asserted[edge], code))
        self._code, self._edge, self._backward = code[order], edge[order], backward[order]
        self._acts = acting(graph)
        self._one_way = one_way

    def _take(
        self,
        start_nodes: NDArray[np.integer],
        end_nodes: NDArray[np.integer],
        against: bool | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Choose edges from start to end nodes; return them and whether each is traversed forward.

        If `against` is given, causal edges in that direction (True: backward) are preferred, then
        edges that are not causal.
        """
        code = start_nodes.astype(np.int64) * self._n + end_nodes
        at = np.searchsorted(self._code, code)
        if against is not None:
            ends = np.searchsorted(self._code, code, side="right")
            for n, (start, end) in enumerate(zip(at.tolist(), ends.tolist(), strict=True)):
                acts = self._acts[self._edge[start:end]]
                at[n] += np.argmin(np.where(acts, 2 * (self._backward[start:end] != against), 1))
        return self._edge[at], ~self._backward[at]

    def choose_edges(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Choose the (n, m - 1) edges for all steps (-1 if none) and whether each runs forward."""
        there = (rows[:, :-1] >= 0) & (rows[:, 1:] >= 0)
        edges = np.full(there.shape, -1, dtype=np.int64)
        forward = np.ones(there.shape, dtype=np.bool_)
        edges[there], forward[there] = self._take(rows[:, :-1][there], rows[:, 1:][there])
        for against in (False, True) if self._one_way else ():
            mixed = np.flatnonzero(turns(there & self._acts[edges], forward))
            heads, tails = rows[mixed, :-1], rows[mixed, 1:]
            held = there[mixed]
            other_edges, other_forward = edges[mixed], forward[mixed]
            other_edges[held], other_forward[held] = self._take(heads[held], tails[held], against)
            good = ~turns(held & self._acts[other_edges], other_forward)
            edges[mixed[good]], forward[mixed[good]] = other_edges[good], other_forward[good]
        return edges, forward


def write_sentences(graph: Graph, steps: Steps, rows: Rows) -> list[str]:
    """Write each path as a sentence, in the form of `ScoredPath.sentence`."""
    phrases = [r.replace("_", " ") for r in graph.relations]
    out: list[str] = []
    for row in rows:
        nodes = row[row >= 0]
        (edges,), (forward,) = steps.choose_edges(nodes[None])
        words = [graph.names[nodes[0]]]
        for node, edge, ahead in zip(
            nodes[1:].tolist(), edges.tolist(), forward.tolist(), strict=True
        ):
            phrase = phrases[graph.relation[edge]]
            words.append(phrase if ahead else f"(inverse of {phrase})")
            words.append(graph.names[node])
        out.append(" ".join(words))
    return out


def build_path(
    graph: Graph,
    steps: Steps,
    row: NDArray[np.int32],
    raw: Raw,
    n: int,
    logic: float,
    weights: tuple[float, float, float, float],
    strength: float,
    noise: NDArray[np.float64] | None = None,
) -> ScoredPath:
    """Build the typed path of row `n` with evidence, scores and mechanism.

    Parameters
    ----------
    row : (m,) node positions of the path, -1 at the end of a short path
    raw : scores for all candidates, without Logic
    logic : cosine of the path's sentence with the prompt, in [-1, 1]; negative values count
        as 0
    weights : weights of Logic, Relevance, Novelty and Surprise; scaled to sum to 1
    strength : strength as a mechanism, in [0, 1] (`kg.paths.mechanism.strength`)
    noise : strength of the best path on each rewired graph; None if not compared

    Returns
    -------
    The path with raw and normalized scores and their weighted total, in [0, 1].

    Raises
    ------
    ValueError
        If a weight is negative or not finite, or all are zero.
    """
    nodes = row[row >= 0]
    (edges,), (forward,) = steps.choose_edges(nodes[None])
    first, last = int(nodes[0]), int(nodes[-1])
    indptr, indices = graph.adjacency
    logic01 = float(np.clip(logic, 0.0, 1.0))
    w = scores.check_weights(weights)
    r, v, s = float(raw.relevance01[n]), float(raw.novelty01[n]), float(raw.surprise01[n])
    return ScoredPath(
        nodes=tuple(_node(graph, int(x)) for x in nodes),
        edges=tuple(_edge(graph, int(e), bool(f)) for e, f in zip(edges, forward, strict=True)),
        scores=PathScores(
            logic_raw=logic,
            relevance_raw=float(raw.relevance[n]),
            novelty_raw=float(raw.novelty[n]),
            surprise_raw=float(raw.surprise[n]),
            logic=logic01,
            relevance=r,
            novelty=v,
            surprise=s,
            total=w[0] * logic01 + w[1] * r + w[2] * v + w[3] * s,
        ),
        mechanism=mechanism_of(graph, edges, forward, strength, noise),
        linked=bool(np.isin(last, indices[indptr[first] : indptr[first + 1]])),
        papers=len(_documents(graph, first) & _documents(graph, last)),
    )


def _documents(graph: Graph, node: int) -> set[int]:
    """Find the documents that contain a statement about a node."""
    edges = np.flatnonzero((graph.head == node) | (graph.tail == node))
    readings = np.isin(graph.reading_edge, edges)
    return set(graph.reading_document[readings].tolist())


def _node(graph: Graph, n: int) -> PathNode:
    row = graph.node_rows[int(graph.node_row[n])]
    return PathNode(
        id=graph.ids[n],
        name=graph.names[n],
        type=TYPES[graph.types[n]],
        degree=int(graph.degree[n]),
        definition=row.get("definition"),
        identifiers=row.get("identifiers", {}),
    )


def _edge(graph: Graph, edge: int, forward: bool) -> PathEdge:
    against = graph.against(edge)
    return PathEdge(
        head=graph.ids[graph.head[edge]],
        relation=graph.relations[graph.relation[edge]],
        tail=graph.ids[graph.tail[edge]],
        forward=forward,
        weight=float(graph.weight[edge]),
        belief=float(graph.belief[edge]),
        polarity=POLARITIES[graph.polarity[edge]],
        contradicted=bool(against),
        evidence=tuple(s.evidence for s in graph.supports(edge)),
        contradicting=tuple(s.evidence for a in against for s in graph.supports(a)),
    )
