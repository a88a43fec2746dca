"""The graph used for paths, scores and exports, with loading, saving and queries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from kg.fusion.model import FusedGraph, Merge
from kg.graph.arrays import TYPES, GraphArrays
from kg.graph.belief import POLARITIES
from kg.graph.build import build_columns
from kg.graph.graphml_read import read_graphml
from kg.graph.lookup import Lookup
from kg.graph.rows import NO_MERGES
from kg.graph.sidecar import SIDECAR, is_sidecar, read_sidecar, write_sidecar
from kg.graph.stats import count_stats
from kg.graph.time import cut_graph, view_graph
from kg.graph.types import EdgeView, GraphStats, Neighbor, NodeView
from kg.types import ConceptMatch
from sage.core.errors import InputError


class Graph(GraphArrays):
    """A knowledge graph that can be loaded, saved, and queried by name."""

    # -- loading and saving -----------------------------------------------------------------

    @classmethod
    def from_fused(cls, fused: FusedGraph) -> Graph:
        """Build the graph from a fusion result."""
        return cls(*build_columns(fused))

    @classmethod
    def load(cls, path: str | Path, min_belief: float | None = None) -> Graph:
        """Load a graph from a sidecar folder, a folder that contains one, or a GraphML file.

        The result is the default view, or that of the given `min_belief`; 0 gives all readings.

        Raises
        ------
        InputError
            If no readable graph is found; the message states what was expected.
        """
        path = Path(path)
        for folder in (path, path / SIDECAR):
            if is_sidecar(folder):
                return cls(*read_sidecar(folder)).view(min_belief)
        for file in (path, path / "graph.graphml"):
            if file.is_file():
                return cls(*read_graphml(file)).view(min_belief)
        what = "is empty or not a graph folder" if path.is_dir() else "does not exist"
        raise InputError(
            f"{path} {what}; expected a graph folder ({SIDECAR}) or a .graphml file. Build a "
            "graph first: sage kg build."
        )

    def save_sidecar(self, path: str | Path) -> Path:
        """Write the graph atomically to the folder `path` and return that folder."""
        return write_sidecar(self, Path(path))

    def as_of(self, year: int) -> Graph:
        """Return the graph based on the literature up to and including `year`.

        Readings without a year are left out, because they may be later. Weights, beliefs and
        years are recomputed, and small components are pruned as when building.
        """
        return cut_graph(self, year)

    def view(self, min_belief: float | None = None) -> Graph:
        """Return the graph of the edges whose readings support them well enough.

        Support is the belief before contradictions, hedges and retractions are counted, so that
        contested and hedged statements stay visible. By default the floor is the build's.
        """
        if min_belief is None:
            min_belief = float((self.meta.get("options") or {}).get("min_belief", 0.0))
        return view_graph(self, min_belief) if min_belief else self

    # -- queries ----------------------------------------------------------------------------

    def find(self, text: str, limit: int = 5) -> list[ConceptMatch]:
        """Find nodes whose id, name or alias equals, begins with, contains or resembles a text."""
        return self._lookup.find(text, limit)

    def exact(self, text: str) -> int | None:
        """Find the position of the node with this id, name or alias, or None."""
        return self._lookup.exact(text)

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self)

    def resolve(self, node: str | int) -> int:
        """Find the position of a node given by position, id, name or alias.

        Raises
        ------
        InputError
            If there is no such node; the message lists the most similar nodes.
        """
        if isinstance(node, int):
            if 0 <= node < self.n_nodes:
                return node
            raise InputError(f"no node number {node}: the graph has {self.n_nodes} nodes.")
        if node in self.position:
            return self.position[node]
        exact = self.exact(node)
        if exact is not None:
            return exact
        near = ", ".join(f'"{m.name}"' for m in self.find(node, 3))
        raise InputError(
            f'no node is named "{node}".'
            + (
                f" Closest names: {near}."
                if near
                else ""
                if self.n_nodes
                else " The graph is empty."
            )
        )

    def node(self, id: str | int) -> NodeView:
        """Return a node by id, name or position; raise InputError if there is none."""
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
        """List the nodes one step away over affirmed edges, in descending order of belief."""
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

    def edge(self, edge: int) -> EdgeView:
        """Return an edge by position, with its evidence and the evidence against it."""
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
        """List all edges head -> tail with their evidence; empty if there are none."""
        pair = self.resolve(head), self.resolve(tail)
        return tuple(self.edge(e) for e in self.edges_between(*pair))

    def merges(self, about: str | None = None) -> tuple[Merge, ...]:
        """List the merges of names into nodes: all of them, or only those into a given node."""
        rows: Sequence[int] = range(self.n_nodes) if about is None else [self.resolve(about)]
        out: list[Merge] = []
        for n in rows:
            at = int(self.node_row[n])
            if NO_MERGES in self.node_rows.raw(at):  # most rows, and parsing them takes the time
                continue
            row = self.node_rows[at]
            out.extend(
                Merge(node=self.ids[n], kept=self.names[n], kept_type=TYPES[self.types[n]], **m)
                for m in row.get("merges", ())
            )
        return tuple(out)

    def stats(self) -> GraphStats:
        """Compute the graph's size, components, hubs, types and relations."""
        return count_stats(self, sum(1 for _ in self.merges()))
