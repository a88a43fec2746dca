"""Export of a graph as GraphML, node-link JSON, CX2 (Cytoscape), or an interactive page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kg.graph import graphml
from kg.graph.arrays import TYPES
from kg.graph.model import Graph
from sage.core.errors import FaultError, InputError
from sage.core.files import write_text
from sage.core.models import Strict

FORMATS = ("graphml", "json", "cx2", "html")


class Exported(Strict):
    """Location and size of an exported file or folder."""

    path: str
    format: str
    nodes: int
    edges: int
    bytes: int
    note: str | None = None


def export_graph(
    graph: Graph,
    path: str | Path,
    format: str,
    *,
    focus: str | None = None,
    max_nodes: int = 400,
) -> Exported:
    """Write the graph in one of the formats in `FORMATS`.

    Parameters
    ----------
    focus : (html only) the node at the center; None starts from the best-connected node
    max_nodes : (html only) maximum number of nodes shown

    Raises
    ------
    InputError
        If the format is unknown, `path` is a folder, or there is no node named `focus`.
    """
    path = Path(path)
    if format not in FORMATS:
        raise InputError(f'unknown export format "{format}"; choose from {", ".join(FORMATS)}.')
    if path.is_dir():
        raise InputError(
            f"--out {path} is a folder, but {format} writes a file; give a file name inside it"
        )
    if format == "html":
        from kg.graph.export_page import render_page

        text, nodes, edges = render_page(graph, focus=focus, max_nodes=max_nodes)
        write_export(path, text)
        shown = f"The page shows {nodes} of {graph.n_nodes} nodes."
        note = shown if nodes < graph.n_nodes else None
        return describe_export(path, format, nodes, edges, note)
    if format == "graphml":
        graphml.write(graph, path)
    elif format == "json":
        write_export(path, json.dumps(node_link(graph), ensure_ascii=False, sort_keys=True))
    else:
        from kg.graph.cx2 import render_cx2

        write_export(path, render_cx2(graph, path.stem))
    return describe_export(path, format, graph.n_nodes, graph.n_edges)


def node_link(graph: Graph) -> dict[str, Any]:
    """Return the entire graph in the node-link format read by networkx and D3."""
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
    about = {key: graph.meta[key] for key in ("groups", "notes") if graph.meta.get(key)}
    return {"directed": True, "multigraph": True, "graph": about, "nodes": nodes, "edges": links}


def write_export(path: Path, text: str) -> None:
    """Write a file; raise FaultError if the operating system reports an error."""
    with report_write_errors(path):
        write_text(path, text)


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Convert operating system errors into a FaultError that names the file."""
    try:
        yield
    except OSError as error:
        raise FaultError(f"{path}: could not be written ({error}).") from error


def describe_export(
    path: Path, format: str, nodes: int, edges: int, note: str | None = None
) -> Exported:
    """Describe a written file or folder of files."""
    files = [path] if path.is_file() else path.iterdir()
    size = sum(file.stat().st_size for file in files)
    return Exported(path=str(path), format=format, nodes=nodes, edges=edges, bytes=size, note=note)
