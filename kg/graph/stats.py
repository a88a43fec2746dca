"""Size and shape of a graph."""

from __future__ import annotations

from collections import Counter

import numpy as np

from kg.fusion.edges import components
from kg.graph.arrays import NO_YEAR, TYPES, GraphArrays
from kg.graph.types import GraphStats


def count_stats(graph: GraphArrays, merges: int) -> GraphStats:
    """Compute counts over the entire graph; hubs are the ten nodes with the most neighbors."""
    labels = components(graph.n_nodes, np.stack([graph.head, graph.tail], axis=1))
    sizes = np.bincount(labels) if graph.n_nodes else np.zeros(0, dtype=np.int64)
    degree = graph.degree
    top = np.lexsort((np.arange(graph.n_nodes), -degree))[:10].tolist()
    years = graph.reading_year[graph.reading_year != NO_YEAR]
    if not len(years):
        years = np.concatenate([graph.first_year, graph.last_year])
        years = years[years != NO_YEAR]
    types = np.bincount(graph.types, minlength=len(TYPES)).tolist()
    relations = Counter(graph.relation.tolist())
    contradicted = set(graph.list_opposed()[0].tolist())
    return GraphStats(
        nodes=graph.n_nodes,
        edges=graph.n_edges,
        negated_edges=int(graph.negated.sum()),
        documents=len(np.unique(graph.reading_document)),
        readings=len(graph.reading_edge),
        first_year=int(years.min()) if len(years) else None,
        last_year=int(years.max()) if len(years) else None,
        components=len(sizes),
        largest_component=int(sizes.max()) if len(sizes) else 0,
        mean_degree=float(degree.mean()) if graph.n_nodes else 0.0,
        max_degree=int(degree.max()) if graph.n_nodes else 0,
        hubs=tuple((graph.names[n], int(degree[n])) for n in top),
        types={t.value: c for t, c in zip(TYPES, types, strict=True) if c},
        relations={
            graph.relations[r]: c for r, c in sorted(relations.items(), key=lambda x: (-x[1], x[0]))
        },
        contradicted_edges=len([e for e in contradicted if not graph.negated[e]]),
        merges=merges,
        mode=graph.meta.get("options", {}).get("mode", "unknown"),
        embedder=graph.embedder,
    )
