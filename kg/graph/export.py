"""Exports: GraphML, JSON, CX2, RDF, BEL, tables, and an interactive page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kg.graph import graphml
from kg.graph.arrays import TYPES
from kg.graph.model import Graph
from sage.core.errors import FaultError, InputError
from sage.core.files import write_text, writing
from sage.core.models import Strict

if TYPE_CHECKING:
    import networkx as nx


#: Formats of two tables in a folder.
TABLES = ("kgx", "neo4j")
FORMATS = ("graphml", "json", "cx2", "turtle", "bel", "html", *TABLES)


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
    """Write the graph in one of `FORMATS`.

    `graphml`, `json` (node-link), `cx2` (Cytoscape), `turtle` (RDF), `bel` (BEL 2.2, and beside it
    a table of what it cannot say), `html` (a page that opens offline), or the two tables of `kgx`
    (KGX and Biolink, tab-separated) or `neo4j` (its import tool's CSV).

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
    if format in TABLES and path.exists() and not path.is_dir():
        raise InputError(f"--out {path} is a file; {format} writes a folder: name another")
    if format in FORMATS and format not in TABLES and path.is_dir():
        raise InputError(f"--out {path} is a folder; {format} writes a file: name one in it")
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
    if format == "cx2":
        from kg.graph.cx2 import cx2

        _write(path, cx2(graph, path.stem))
        return _exported(graph.n_nodes, graph.n_edges, path, format)
    if format == "turtle":
        from sage_exchange.rdf import turtle

        with _failing(path), writing(path) as stream:
            stream.writelines(line.encode() for line in turtle(graph))
        return _exported(graph.n_nodes, graph.n_edges, path, format)
    if format == "bel":
        return _export_bel(graph, path)
    if format in TABLES:
        from kg.graph.tables import write_tables

        write_tables(graph, path, format)
        return _exported(graph.n_nodes, graph.n_edges, path, format, "Two tables in one folder.")
    raise InputError(f'export format "{format}": choose {", ".join(FORMATS)}.')


def _export_bel(graph: Graph, path: Path) -> Exported:
    """The script, and beside it the table of what BEL cannot say."""
    from sage_exchange.bel import bel

    script = bel(graph, path.stem)
    rest = path.with_name(f"{path.name}.left_out.tsv")
    rows = [(row.head, row.relation, row.tail, row.reason) for row in script.left_out]
    text = io.StringIO()
    table = csv.writer(text, delimiter="\t", lineterminator="\n")
    table.writerows([("head", "relation", "tail", "reason"), *rows])
    _write(path, script.text)
    _write(rest, text.getvalue())
    reasons = "; ".join(f"{reason} {count}" for reason, count in script.reasons().items())
    note = f"{script.statements} statements. Left out, listed in {rest}: {reasons or 'nothing'}."
    return _exported(graph.n_nodes, graph.n_edges, path, "bel", note)


def to_networkx(graph: Graph) -> nx.MultiDiGraph:
    """The graph in networkx: nodes by id, edges and attributes as `node_link` names them."""
    import networkx as nx

    return nx.node_link_graph(node_link(graph), edges="edges")


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
    with _failing(path):
        write_text(path, text)


@contextmanager
def _failing(path: Path) -> Iterator[None]:
    try:
        yield
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
