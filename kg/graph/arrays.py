"""The graph's arrays, and the neighbors, measures and evidence derived from them.

Edges are directed and keep their relation; `adjacency` is the simple undirected view that
path search uses. Texts (node names, edge evidence) are stored in rows that are parsed on
demand.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kg.embedding.embed import FloatArray
from kg.fusion.model import Support
from kg.graph.belief import SIGNS, edge_measures, opponents
from kg.graph.rows import JsonRows
from kg.types import EntityType

TYPES = tuple(EntityType)
#: Placeholder for "no year" in year arrays.
NO_YEAR = 0


class GraphArrays:
    """Arrays of a graph with n nodes and m edges that have r readings (evidence) in total.

    Attributes
    ----------
    ids, names : n strings
    types : (n,) index into `TYPES`
    head, tail : (m,) node positions; relation : (m,) index into `relations`
    polarity : (m,) index into `kg.graph.belief.POLARITIES`; negated : (m,) bool
    weight, belief : (m,) float32; documents, first_year, last_year : (m,) int
    reading_* : (r,) edge, document, year, confidence, speculative, retracted, position in the row
    vectors : (n, d) unit vectors of the names, computed by `embedder`, or None
    """

    def __init__(self, columns: dict[str, Any], meta: dict[str, Any]) -> None:
        self.ids: list[str] = columns["ids"]
        self.names: list[str] = columns["names"]
        self.types: NDArray[np.uint8] = columns["types"]
        self.head: NDArray[np.int32] = columns["head"]
        self.tail: NDArray[np.int32] = columns["tail"]
        self.relation: NDArray[np.int32] = columns["relation"]
        self.polarity: NDArray[np.uint8] = columns["polarity"]
        self.negated: NDArray[np.bool_] = columns["negated"]
        self.weight: NDArray[np.float32] = columns["weight"]
        self.belief: NDArray[np.float32] = columns["belief"]
        self.documents: NDArray[np.int32] = columns["documents"]
        self.first_year: NDArray[np.int32] = columns["first_year"]
        self.last_year: NDArray[np.int32] = columns["last_year"]
        self.reading_edge: NDArray[np.int32] = columns["reading_edge"]
        self.reading_document: NDArray[np.int32] = columns["reading_document"]
        self.reading_year: NDArray[np.int32] = columns["reading_year"]
        self.reading_confidence: NDArray[np.float32] = columns["reading_confidence"]
        self.reading_speculative: NDArray[np.bool_] = columns["reading_speculative"]
        self.reading_retracted: NDArray[np.bool_] = columns["reading_retracted"]
        self.reading_place: NDArray[np.int32] = columns["reading_place"]
        self.alias_keys: list[str] = columns["alias_keys"]
        self.alias_node: NDArray[np.int32] = columns["alias_node"]
        self.node_rows: JsonRows = columns["node_rows"]
        self.edge_rows: JsonRows = columns["edge_rows"]
        self.node_row: NDArray[np.int32] = columns["node_row"]
        self.edge_row: NDArray[np.int32] = columns["edge_row"]
        self.vectors: FloatArray | None = columns["vectors"]
        self.relations: list[str] = meta["relations"]
        self.meta = meta

    @property
    def embedder(self) -> str | None:
        """Name of the model that computed `vectors`."""
        name: str | None = self.meta.get("embedder")
        return name

    @property
    def n_nodes(self) -> int:
        """Number of nodes in the graph."""
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        """Number of edges, including negated edges."""
        return len(self.head)

    @cached_property
    def adjacency(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """CSR arrays of the simple undirected graph of affirmed edges: (n + 1,) offsets, neighbors.

        The neighbors of a node are sorted by increasing degree, then position, so that the least
        connected come first.
        """
        return undirected(self.n_nodes, self.head, self.tail, self.negated)

    @cached_property
    def degree(self) -> NDArray[np.int64]:
        """Number of distinct neighbors of each node over affirmed edges, (n,)."""
        return np.diff(self.adjacency[0])

    @cached_property
    def position(self) -> dict[str, int]:
        """Node positions by id."""
        return {id_: n for n, id_ in enumerate(self.ids)}

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Codes and positions of the edges, sorted by (head, tail)."""
        code = self.head.astype(np.int64) * max(self.n_nodes, 1) + self.tail
        order = np.argsort(code, kind="stable")
        return code[order], order

    def edges_between(self, head: int, tail: int) -> list[int]:
        """Find the positions of the edges head -> tail, including negated edges."""
        codes, order = self._pairs
        code = head * max(self.n_nodes, 1) + tail
        start, stop = np.searchsorted(codes, [code, code + 1])
        found: list[int] = sorted(order[start:stop].tolist())
        return found

    def list_opposed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """List the pairs (edge, opposing edge), sorted; see `kg.graph.belief.opponents`."""
        return self._opponents

    @cached_property
    def _opponents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return opponents(self.head, self.tail, self.relation, SIGNS[self.polarity], self.negated)

    def against(self, edge: int) -> list[int]:
        """Find the positions of the edges that oppose a given edge."""
        edges, opponents = self.list_opposed()
        start, stop = np.searchsorted(edges, [edge, edge + 1])
        found: list[int] = opponents[start:stop].tolist()
        return found

    def measure(self) -> None:
        """Compute each edge's weight, belief, document count and years from the readings."""
        self.weight, self.belief, self.documents = edge_measures(
            self.n_edges,
            self.reading_edge,
            self.reading_document,
            self.reading_confidence,
            self.reading_speculative,
            self.reading_retracted,
            self.list_opposed(),
        )
        dated = self.reading_year != NO_YEAR
        edges, years = self.reading_edge[dated], self.reading_year[dated]
        first = np.full(self.n_edges, np.iinfo(np.int32).max, dtype=np.int32)
        last = np.full(self.n_edges, NO_YEAR, dtype=np.int32)
        np.minimum.at(first, edges, years)
        np.maximum.at(last, edges, years)
        first[first == np.iinfo(np.int32).max] = NO_YEAR
        self.first_year, self.last_year = first, last

    def supports(self, edge: int) -> tuple[Support, ...]:
        """Return an edge's readings, in the order in which they were built."""
        readings = self.readings_of(edge)
        row = self.edge_rows[int(self.edge_row[edge])]
        return tuple(Support.model_validate(row[p]) for p in self.reading_place[readings].tolist())

    def readings_of(self, edge: int) -> slice:
        """Return the slice of an edge's readings, which are stored in edge order."""
        start, stop = np.searchsorted(self.reading_edge, [edge, edge + 1])
        return slice(int(start), int(stop))


def undirected(
    n: int,
    head: NDArray[np.int32],
    tail: NDArray[np.int32],
    negated: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Build the CSR arrays of the simple undirected graph.

    Parameters
    ----------
    n : number of nodes
    head, tail : (m,) node positions of the directed edges, below n
    negated : (m,) whether an edge denies its relation; such edges are left out

    Returns
    -------
    (n + 1,) row starts and (e,) neighbors, sorted by increasing degree, then position. The
    neighbors of node v are `indices[indptr[v]:indptr[v + 1]]`; each appears once, however many
    edges connect the two nodes.
    """
    h = head[~negated].astype(np.int64)
    t = tail[~negated].astype(np.int64)
    codes = np.unique(np.concatenate([h * n + t, t * n + h])) if n else np.zeros(0, np.int64)
    rows, columns = codes // max(n, 1), codes % max(n, 1)
    degree = np.bincount(rows, minlength=n)
    order = np.lexsort((columns, degree[columns], rows))
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(degree, out=indptr[1:])
    return indptr, columns[order].astype(np.int32)
