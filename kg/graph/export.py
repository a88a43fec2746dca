"""Exports: JSON, GraphML, and an interactive page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kg.graph import graphml
from kg.graph.arrays import TYPES
from kg.graph.model import Graph
from sage.core.errors import FaultError, InputError
from sage.core.files import write_text
from sage.core.models import Strict

if TYPE_CHECKING:
    import networkx as nx


#: Formats of two tables in a folder.
TABLES = ("kgx", "neo4j")


class Exported(Strict):
    """What was written where."""

    path: str
    format: str
    nodes: int
    edges: int
    bytes: int
    note: str | None = None


def export(
    graph: Graph,
    path: str | Path,
    format: str,
    *,
    focus: str | None = None,
    max_nodes: int = 400,
) -> Exported:
    """Write the graph as `graphml`, `json` (node-link), `html` (a page that opens offline), or as
    the two tables of `kgx` (KGX and Biolink, tab-separated) or `neo4j` (its import tool's CSV).

    Parameters
    ----------
    focus : for html: the node around which the shown part is taken; None takes the most connected
    max_nodes : for html: most nodes shown

    Raises
    ------
    InputError
        If the format is unknown, or no node is called `focus`.
    """
    path = Path(path)
    if format == "graphml":
        graphml.write(graph, path)
        return _exported(graph.n_nodes, graph.n_edges, path, format)
    if format == "json":
        _write(path, json.dumps(node_link(graph), ensure_ascii=False, sort_keys=True))
        return _exported(graph.n_nodes, graph.n_edges, path, format)
    if format == "html":
        from kg.graph.export_page import page

        text, nodes, edges = page(graph, focus=focus, max_nodes=max_nodes)
        _write(path, text)
        note = None
        if nodes < graph.n_nodes:
            note = f"The page shows {nodes} of {graph.n_nodes} nodes."
        return _exported(nodes, edges, path, format, note)
    if format in TABLES:
        from kg.graph.tables import write_tables

        write_tables(graph, path, format)
        return _exported(graph.n_nodes, graph.n_edges, path, format, "Two tables in one folder.")
    raise InputError(f'export format "{format}": choose graphml, json, html, kgx or neo4j.')


def to_networkx(graph: Graph) -> nx.MultiDiGraph:
    """The graph in networkx: nodes by id, edges and attributes as `node_link` names them."""
    import networkx as nx

    return nx.node_link_graph(node_link(graph), edges="edges")


def communities(graph: Graph, seed: int = 0) -> list[list[str]]:
    """Names of the nodes of each community, largest first, most connected nodes first.

    Louvain's method on the undirected graph (Blondel et al. 2008, J Stat Mech), by networkx.
    """
    import networkx as nx

    parts = nx.community.louvain_communities(nx.Graph(to_networkx(graph)), weight=None, seed=seed)
    found = [sorted((graph.position[i] for i in ids), key=lambda n: (-graph.degree[n], n))
             for ids in parts]  # fmt: skip
    found.sort(key=lambda nodes: (-len(nodes), nodes[0]))
    return [[graph.names[node] for node in nodes] for nodes in found]


def node_link(graph: Graph) -> dict[str, Any]:
    """The whole graph in the node-link form that networkx and D3 read."""
    nodes = [
        {
            "id": graph.ids[n],
            "name": graph.names[n],
            "type": TYPES[graph.types[n]].value,
            "degree": int(graph.degree[n]),
            **graph.node_rows[int(graph.node_row[n])],
        }
        for n in range(graph.n_nodes)
    ]
    links = [
        {
            **view.model_dump(
                mode="json", exclude={"head", "tail", "contradicting", "head_name", "tail_name"}
            ),
            "source": view.head,
            "target": view.tail,
            "key": n,
        }
        for n in range(graph.n_edges)
        for view in (graph.edge(n),)
    ]
    return {"directed": True, "multigraph": True, "graph": {}, "nodes": nodes, "edges": links}


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise FaultError(f"{path}: could not be written ({error}).") from error


def _exported(nodes: int, edges: int, path: Path, format: str, note: str | None = None) -> Exported:
    return Exported(
        path=str(path),
        format=format,
        nodes=nodes,
        edges=edges,
        bytes=sum(f.stat().st_size for f in ([path] if path.is_file() else path.iterdir())),
        note=note,
    )
