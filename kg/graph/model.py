"""The graph as arrays: what paths, scores and exports run on.

Edges are directed and keep their relation; `adjacency` is the simple undirected view that path
search walks. Texts (names of nodes, evidence of edges) stay in rows that are parsed on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kg.embedding.embed import FloatArray
from kg.fusion.model import FusedGraph, Merge, Support
from kg.graph.belief import POLARITIES, SIGNS, edge_measures, opponents
from kg.graph.rows import JsonRows
from kg.graph.types import EdgeView, GraphStats, Neighbor, NodeView
from kg.types import ConceptMatch, EntityType
from sage.core.errors import InputError

TYPES = tuple(EntityType)
#: Stands for "no year" in year arrays.
NO_YEAR = 0


class Graph:
    """A knowledge graph of n nodes and m edges with r readings (evidence).

    Attributes
    ----------
    ids, names : n strings
    types : (n,) index into `TYPES`
    head, tail : (m,) node positions; relation : (m,) index into `relations`
    polarity : (m,) index into `kg.graph.belief.POLARITIES`; negated : (m,) bool
    weight, belief : (m,) float32; documents, first_year, last_year : (m,) int
    reading_* : (r,) edge, document, year, confidence, speculative, retracted, position in the row
    vectors : (n, d) unit vectors of the names by `embedder`, or None
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

    # -- making one -------------------------------------------------------------------------

    @classmethod
    def from_fused(cls, fused: FusedGraph) -> Graph:
        """The arrays of a fused graph."""
        from kg.graph.build import columns_of

        return cls(*columns_of(fused))

    @classmethod
    def load(cls, path: str | Path) -> Graph:
        """A graph from a sidecar folder, a folder that holds one, or a GraphML file.

        Raises
        ------
        InputError
            If nothing readable is there; the message says what was looked for.
        """
        from kg.graph.sidecar import SIDECAR, is_sidecar, read_sidecar

        path = Path(path)
        for folder in (path, path / SIDECAR):
            if is_sidecar(folder):
                return cls(*read_sidecar(folder))
        for file in (path, path / "graph.graphml"):
            if file.is_file():
                from kg.graph.graphml_read import read

                return read(file)
        what = "is an empty or foreign folder" if path.is_dir() else "does not exist"
        raise InputError(
            f"{path} {what}: expected a graph folder ({SIDECAR}), or a .graphml file. "
            "Build one first: sage kg build."
        )

    def save_sidecar(self, path: str | Path) -> Path:
        """Write the graph to the folder `path`; a kill leaves the former one; returns it."""
        from kg.graph.sidecar import write_sidecar

        return write_sidecar(self, Path(path))

    def as_of(self, year: int) -> Graph:
        """The graph as the literature up to and including `year` gave it.

        Readings without a year cannot be shown to be that old and are left out. Weights, beliefs
        and years are computed again, and small components pruned as in the build.
        """
        from kg.graph.time import as_of

        return as_of(self, year)

    # -- size and shape ---------------------------------------------------------------------

    @property
    def embedder(self) -> str | None:
        """Name of the model that made `vectors`."""
        name: str | None = self.meta.get("embedder")
        return name

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self.ids)

    @property
    def n_edges(self) -> int:
        """Number of edges, negated ones included."""
        return len(self.head)

    @cached_property
    def adjacency(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """CSR of the simple undirected graph of affirmed edges: (n + 1,) offsets, neighbors.

        The neighbors of a node are ordered by rising degree, then position: the least explored
        first.
        """
        from kg.graph.build import undirected

        return undirected(self.n_nodes, self.head, self.tail, self.negated)

    @cached_property
    def degree(self) -> NDArray[np.int64]:
        """(n,) number of distinct neighbors over affirmed edges."""
        return np.diff(self.adjacency[0])

    @cached_property
    def position(self) -> dict[str, int]:
        """Node positions by id."""
        return {id_: n for n, id_ in enumerate(self.ids)}

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Edges sorted by (head, tail): their codes and positions."""
        code = self.head.astype(np.int64) * max(self.n_nodes, 1) + self.tail
        order = np.argsort(code, kind="stable")
        return code[order], order

    def edges_between(self, head: int, tail: int) -> list[int]:
        """Positions of the edges head -> tail, negated ones included."""
        codes, order = self._pairs
        code = head * max(self.n_nodes, 1) + tail
        start, stop = np.searchsorted(codes, [code, code + 1])
        found: list[int] = sorted(order[start:stop].tolist())
        return found

    def opposed(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs (edge, edge that speaks against it), sorted; see `kg.graph.belief.opponents`."""
        return self._opponents

    @cached_property
    def _opponents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return opponents(self.head, self.tail, self.relation, SIGNS[self.polarity], self.negated)

    def against(self, edge: int) -> list[int]:
        """Positions of the edges that speak against an edge."""
        one, other = self.opposed()
        start, stop = np.searchsorted(one, [edge, edge + 1])
        found: list[int] = other[start:stop].tolist()
        return found

    def measure(self) -> None:
        """Compute weight, belief, documents and years of each edge from the readings."""
        self.weight, self.belief, self.documents = edge_measures(
            self.n_edges,
            self.reading_edge,
            self.reading_document,
            self.reading_confidence,
            self.reading_speculative,
            self.reading_retracted,
            self.opposed(),
        )
        dated = self.reading_year != NO_YEAR
        edges, years = self.reading_edge[dated], self.reading_year[dated]
        first = np.full(self.n_edges, np.iinfo(np.int32).max, dtype=np.int32)
        last = np.full(self.n_edges, NO_YEAR, dtype=np.int32)
        np.minimum.at(first, edges, years)
        np.maximum.at(last, edges, years)
        first[first == np.iinfo(np.int32).max] = NO_YEAR
        self.first_year, self.last_year = first, last

    # -- asking it --------------------------------------------------------------------------

    def find(self, text: str, limit: int = 5) -> list[ConceptMatch]:
        """Nodes whose id, name or alias is, starts with, contains, or resembles the text."""
        found: list[ConceptMatch] = self._lookup.find(text, limit)
        return found

    def exact(self, text: str) -> int | None:
        """The position of the node that has this id, name or alias, or None."""
        found: int | None = self._lookup.exact(text)
        return found

    @cached_property
    def _lookup(self) -> Any:
        from kg.graph.lookup import Lookup

        return Lookup(self)

    def resolve(self, node: str | int) -> int:
        """The position of a node given by position, id, name or alias.

        Raises
        ------
        InputError
            If there is none; the message names the nearest ones.
        """
        if isinstance(node, int):
            if 0 <= node < self.n_nodes:
                return node
            raise InputError(f"node number {node}: the graph has {self.n_nodes} nodes.")
        if node in self.position:
            return self.position[node]
        exact = self.exact(node)
        if exact is not None:
            return exact
        near = ", ".join(f'"{m.name}"' for m in self.find(node, 3))
        raise InputError(
            f'no node is called "{node}".'
            + (f" Nearest: {near}." if near else " The graph is empty.")
        )

    def node(self, id: str | int) -> NodeView:
        """A node by id, name or position; InputError if there is none."""
        n = self.resolve(id)
        row = self.node_rows[int(self.node_row[n])]
        return NodeView(
            id=self.ids[n],
            name=self.names[n],
            type=TYPES[self.types[n]],
            degree=int(self.degree[n]),
            aliases=tuple(row.get("aliases", ())),
            synonyms=tuple(row.get("synonyms", ())),
            definition=row.get("definition"),
            identifiers=row.get("identifiers", {}),
        )

    def neighbors(self, id: str | int, limit: int | None = None) -> list[Neighbor]:
        """The nodes one step away over affirmed edges, the most believed first."""
        n = self.resolve(id)
        indptr, indices = self.adjacency
        out: list[Neighbor] = []
        for other in indices[indptr[n] : indptr[n + 1]].tolist():
            for head, tail in ((n, other), (other, n)):
                edges = [e for e in self.edges_between(head, tail) if not self.negated[e]]
                if edges:
                    out.append(
                        Neighbor(
                            node=self.node(other),
                            relations=tuple(self.relations[self.relation[e]] for e in edges),
                            forward=head == n,
                            belief=max(float(self.belief[e]) for e in edges),
                        )
                    )
        out.sort(key=lambda x: (-x.belief, x.node.id, not x.forward))
        return out[:limit]

    def supports(self, edge: int) -> tuple[Support, ...]:
        """The readings of one edge, in the order of the build."""
        readings = self.readings_of(edge)
        row = self.edge_rows[int(self.edge_row[edge])]
        return tuple(Support.model_validate(row[p]) for p in self.reading_place[readings].tolist())

    def readings_of(self, edge: int) -> slice:
        """Where the readings of an edge stand; they are stored in order of their edge."""
        start, stop = np.searchsorted(self.reading_edge, [edge, edge + 1])
        return slice(int(start), int(stop))

    def edge(self, edge: int) -> EdgeView:
        """An edge by position, with its evidence and the evidence against it."""
        h, t = int(self.head[edge]), int(self.tail[edge])
        return EdgeView(
            head=self.ids[h],
            head_name=self.names[h],
            relation=self.relations[self.relation[edge]],
            tail=self.ids[t],
            tail_name=self.names[t],
            weight=float(self.weight[edge]),
            belief=float(self.belief[edge]),
            polarity=POLARITIES[self.polarity[edge]],
            negated=bool(self.negated[edge]),
            documents=int(self.documents[edge]),
            first_year=int(self.first_year[edge]) or None,
            last_year=int(self.last_year[edge]) or None,
            supports=self.supports(edge),
            contradicting=tuple(s for other in self.against(edge) for s in self.supports(other)),
        )

    def evidence(self, head: str | int, tail: str | int) -> tuple[EdgeView, ...]:
        """All edges head -> tail with their evidence; empty if there is none."""
        pair = self.resolve(head), self.resolve(tail)
        return tuple(self.edge(e) for e in self.edges_between(*pair))

    def merges(self, about: str | None = None) -> tuple[Merge, ...]:
        """The merges that made the nodes, all or those of one node."""
        rows: Sequence[int] = range(self.n_nodes) if about is None else [self.resolve(about)]
        out: list[Merge] = []
        for n in rows:
            row = self.node_rows[int(self.node_row[n])]
            out.extend(
                Merge(node=self.ids[n], kept=self.names[n], kept_type=TYPES[self.types[n]], **m)
                for m in row.get("merges", ())
            )
        return tuple(out)

    def stats(self) -> GraphStats:
        """Size, components, hubs, types, relations."""
        from kg.graph.stats import stats

        return stats(self)
