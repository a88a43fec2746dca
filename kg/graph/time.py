"""Reconstruction of the graph as of a past year."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kg.fusion.edges import components
from kg.graph.arrays import NO_YEAR, GraphArrays
from kg.graph.belief import best_per_document, damped_or

G = TypeVar("G", bound=GraphArrays)
_NODES = ("types", "node_row")
_EDGES = (
    "head", "tail", "relation", "polarity", "negated", "weight", "belief", "documents",
    "first_year", "last_year", "edge_row",
)  # fmt: skip
_READINGS = (
    "reading_edge", "reading_document", "reading_year", "reading_confidence",
    "reading_speculative", "reading_retracted", "reading_place",
)  # fmt: skip


def cut_graph(graph: G, year: int) -> G:
    """Cut the graph at a year, as described in `kg.graph.model.Graph.as_of`."""
    known = (graph.reading_year != NO_YEAR) & (graph.reading_year <= year)
    if not len(graph.reading_edge):
        # A foreign graph has no readings; its edges may still say when they were first seen.
        alive = (graph.first_year != NO_YEAR) & (graph.first_year <= year)
        out = subgraph(graph, alive, known)
    else:
        alive = np.zeros(graph.n_edges, dtype=np.bool_)
        alive[graph.reading_edge[known]] = True
        out = subgraph(graph, alive, known)
        out.measure()
    out.meta["as_of"] = year
    return view_graph(out, out.meta["min_belief"]) if "min_belief" in out.meta else out


def view_graph(graph: G, min_belief: float) -> G:
    """Restrict the graph to edges of enough support (see `kg.graph.model.Graph.view`)."""
    if not len(graph.reading_edge):
        return graph  # a foreign graph
    at, _, best = best_per_document(
        graph.reading_edge,
        graph.reading_document,
        graph.reading_confidence,
        int(graph.reading_document.max()) + 1,
    )
    shown = damped_or(at, best, graph.n_edges) >= min_belief - 1e-6
    out = subgraph(graph, shown, np.ones(len(graph.reading_edge), dtype=np.bool_))
    out.meta["min_belief"] = min_belief
    return out


def subgraph(graph: G, edges: NDArray[np.bool_], readings: NDArray[np.bool_]) -> G:
    """Restrict the graph to some edges and readings and prune small components; share texts."""
    below = int(graph.meta.get("options", {}).get("prune_below", 1))
    labels = components(graph.n_nodes, np.stack([graph.head[edges], graph.tail[edges]], axis=1))
    touched = np.zeros(graph.n_nodes, dtype=np.bool_)
    touched[graph.head[edges]] = True
    touched[graph.tail[edges]] = True
    sizes = np.bincount(labels, minlength=1) if graph.n_nodes else np.zeros(1, dtype=np.int64)
    nodes = touched & (sizes[labels] >= below) if graph.n_nodes else touched
    edges = edges & nodes[graph.head] if graph.n_nodes else edges
    readings = readings & edges[graph.reading_edge] if len(readings) else readings
    node_new = np.cumsum(nodes, dtype=np.int32) - 1
    edge_new = np.cumsum(edges, dtype=np.int32) - 1
    keep = np.flatnonzero(nodes)
    columns: dict[str, Any] = {name: getattr(graph, name)[nodes] for name in _NODES}
    columns |= {name: getattr(graph, name)[edges] for name in _EDGES}
    columns |= {name: getattr(graph, name)[readings] for name in _READINGS}
    columns["head"] = node_new[columns["head"]]
    columns["tail"] = node_new[columns["tail"]]
    columns["reading_edge"] = edge_new[columns["reading_edge"]]
    columns["ids"] = [graph.ids[n] for n in keep.tolist()]
    columns["names"] = [graph.names[n] for n in keep.tolist()]
    known = nodes[graph.alias_node] if len(graph.alias_node) else np.zeros(0, dtype=np.bool_)
    columns["alias_keys"] = [
        k for k, there in zip(graph.alias_keys, known.tolist(), strict=True) if there
    ]
    columns["alias_node"] = node_new[graph.alias_node[known]]
    columns["node_rows"] = graph.node_rows
    columns["edge_rows"] = graph.edge_rows
    columns["vectors"] = None if graph.vectors is None else graph.vectors[nodes]
    return type(graph)(columns, dict(graph.meta))
