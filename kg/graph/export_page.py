"""Self-contained interactive page of a graph, colored by type, with evidence on click."""

from __future__ import annotations

import heapq
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kg.graph.arrays import TYPES
from kg.graph.model import Graph
from kg.types import EntityType

#: Distinguishable on white; related types have related hues.
COLORS: dict[EntityType, str] = {
    EntityType.GENE: "#1f77b4",
    EntityType.PROTEIN: "#6baed6",
    EntityType.PATHWAY: "#2ca02c",
    EntityType.BIOLOGICAL_PROCESS: "#74c476",
    EntityType.DISEASE: "#d62728",
    EntityType.CELL_TYPE: "#9467bd",
    EntityType.CELL_LINE: "#c5b0d5",
    EntityType.TISSUE_REGION: "#c49c94",
    EntityType.IMAGING_FEATURE: "#8c564b",
    EntityType.STAINING_METHOD: "#e377c2",
    EntityType.TREATMENT: "#ff7f0e",
    EntityType.CHEMICAL: "#fdae6b",
    EntityType.CLINICAL_ENDPOINT: "#b8860b",
    EntityType.CLINICAL_FACTOR: "#bcbd22",
    EntityType.SIGNATURE: "#17becf",
    EntityType.MUTATION: "#393b79",
    EntityType.ALGORITHM: "#636363",
    EntityType.COHORT: "#a55194",
    EntityType.ORGANISM: "#637939",
    EntityType.OTHER: "#bdbdbd",
}
_MOST_EVIDENCE = 20


def render_page(graph: Graph, *, focus: str | None, max_nodes: int) -> tuple[str, int, int]:
    """Render the page; return its text and the number of nodes and edges shown."""
    shown = select(graph, focus, max_nodes)
    data = page_data(graph, shown, focus)
    template = (Path(__file__).parent / "export_page.html").read_text(encoding="utf-8")
    # "</script>" inside a string would end the script: no "<" gets in.
    text = json.dumps(data, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
    return template.replace("/*DATA*/", text), len(data["nodes"]), len(data["edges"])


def select(graph: Graph, focus: str | None, max_nodes: int) -> NDArray[np.int64]:
    """Select the nodes to show: those nearest to the focus, or the best-connected part.

    Without a focus, the selection starts at the node with the most neighbors and grows by the
    best-connected adjacent node. If a component is exhausted before `max_nodes` is reached,
    the selection continues in the next component.
    """
    indptr, indices = graph.adjacency
    degree = graph.degree.tolist()
    starts = (
        np.lexsort((np.arange(graph.n_nodes), -graph.degree)).tolist()
        if focus is None
        else [graph.resolve(focus)]
    )
    seen: set[int] = set()
    waiting: list[tuple[int, int, int]] = []
    for start in starts:
        if len(seen) >= max_nodes:
            break
        heapq.heappush(waiting, (0, -degree[start], start))
        while waiting and len(seen) < max_nodes:
            steps, _, node = heapq.heappop(waiting)
            if node in seen:
                continue
            seen.add(node)
            for other in indices[indptr[node] : indptr[node + 1]].tolist():
                if other not in seen:
                    away = 0 if focus is None else steps + 1
                    heapq.heappush(waiting, (away, -degree[other], other))
    return np.array(sorted(seen), dtype=np.int64)


def page_data(graph: Graph, shown: NDArray[np.int64], focus: str | None) -> dict[str, Any]:
    """Collect the nodes with their positions and the edges between them, with all evidence."""
    place = {int(n): k for k, n in enumerate(shown)}
    inside = np.isin(graph.head, shown) & np.isin(graph.tail, shown)
    edges = np.flatnonzero(inside)
    ends = np.array(
        [(place[int(graph.head[e])], place[int(graph.tail[e])]) for e in edges], dtype=np.int64
    ).reshape(-1, 2)
    spots = layout(len(shown), ends)
    nodes = []
    for k, n in enumerate(shown.tolist()):
        view = graph.node(n)
        nodes.append(
            {
                "id": view.id,
                "name": view.name,
                "type": view.type.value,
                "degree": view.degree,
                "x": round(float(spots[k, 0]), 2),
                "y": round(float(spots[k, 1]), 2),
                "aliases": list(view.aliases)[:20],
                "definition": view.definition,
                "identifiers": view.identifiers,
            }
        )
    links = []
    for e in edges.tolist():
        edge = graph.edge(e)
        links.append(
            {
                "s": place[int(graph.head[e])],
                "t": place[int(graph.tail[e])],
                "relation": edge.relation,
                "weight": round(edge.weight, 3),
                "belief": round(edge.belief, 3),
                "polarity": edge.polarity.value,
                "negated": edge.negated,
                "years": [edge.first_year, edge.last_year],
                "evidence": [_evidence(s) for s in edge.supports[:_MOST_EVIDENCE]],
                "against": [_evidence(s) for s in edge.contradicting[:_MOST_EVIDENCE]],
                "more": max(0, len(edge.supports) - _MOST_EVIDENCE),
            }
        )
    used = {node["type"] for node in nodes}
    return {
        "nodes": nodes,
        "edges": links,
        "colors": {t.value: COLORS[t] for t in TYPES if t.value in used},
        "total": {"nodes": graph.n_nodes, "edges": graph.n_edges},
        "focus": focus,
    }


def _evidence(support: Any) -> dict[str, Any]:
    e = support.evidence
    return {
        "text": e.text,
        "title": e.title,
        "section": e.section,
        "year": e.year,
        "doi": e.doi,
        "pmid": e.pmid,
        "confidence": support.confidence,
        "retracted": e.retracted,
    }


def layout(n: int, ends: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute a reproducible Fruchterman-Reingold layout, as (n, 2) positions."""
    import networkx as nx

    if n == 0:
        return np.zeros((0, 2))
    drawn = nx.empty_graph(n)
    drawn.add_edges_from(ends.tolist())
    at = np.array(list(nx.spring_layout(drawn, seed=0, iterations=200).values()))
    # Spread a dense middle: the rank of a node's distance counts as much as the distance.
    away = np.linalg.norm(at, axis=1)
    rank = (np.argsort(np.argsort(away, kind="stable"), kind="stable") + 1) / n
    wanted = 0.5 * away / max(float(away.max()), 1e-9) + 0.5 * np.sqrt(rank)
    at = at / np.maximum(away, 1e-9)[:, None] * wanted[:, None]
    spots: NDArray[np.float64] = at / max(float(np.abs(at).max()), 1e-9) * 1000.0
    return spots
