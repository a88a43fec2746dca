"""Export of a graph as RDF (Turtle), BEL, or tables for KGX and Neo4j."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from kg.graph.export import Exported, describe_export, report_write_errors, write_export
from kg.graph.model import Graph
from sage.core.errors import InputError
from sage.core.files import writing
from sage_exchange.bel import render_bel
from sage_exchange.rdf import render_turtle
from sage_exchange.tables import write_tables

#: Formats that consist of two tables in a folder.
TABLES = ("kgx", "neo4j")
FORMATS = ("turtle", "bel", *TABLES)


def export_graph(graph: Graph, path: Path, format: str) -> Exported:
    """Write the graph in one of the formats in `FORMATS`.

    `turtle` (RDF with evidence), `bel` (BEL 2.2, with a table of what BEL cannot
    express), `kgx` (KGX and Biolink, tab-separated) or `neo4j` (CSV for its import tool).

    Raises
    ------
    InputError
        If the format is unknown, or if `path` is a file but the format writes a folder, or the
        reverse.
    """
    if format not in FORMATS:
        raise InputError(f'unknown export format "{format}"; choose from {", ".join(FORMATS)}.')
    if format in TABLES and path.exists() and not path.is_dir():
        raise InputError(
            f"--out {path} is a file, but {format} writes a folder; choose another path"
        )
    if format not in TABLES and path.is_dir():
        raise InputError(
            f"--out {path} is a folder, but {format} writes a file; give a file name inside it"
        )
    note = None
    if format == "turtle":
        with report_write_errors(path), writing(path) as stream:
            stream.writelines(line.encode() for line in render_turtle(graph))
    elif format == "bel":
        note = _write_bel(graph, path)
    else:
        write_tables(graph, path, format)
        note = "Two tables in a folder."
    return describe_export(path, format, graph.n_nodes, graph.n_edges, note)


def _write_bel(graph: Graph, path: Path) -> str:
    """Write the script and the table of omitted relations, and summarize both."""
    script = render_bel(graph, path.stem)
    omitted = path.with_name(f"{path.name}.left_out.tsv")
    rows = [(row.head, row.relation, row.tail, row.reason) for row in script.left_out]
    text = io.StringIO()
    table = csv.writer(text, delimiter="\t", lineterminator="\n")
    table.writerows([("head", "relation", "tail", "reason"), *rows])
    write_export(path, script.text)
    write_export(omitted, text.getvalue())
    reasons = "; ".join(f"{reason} {count}" for reason, count in script.reasons().items())
    return f"{script.statements} statements. Omitted, listed in {omitted}: {reasons or 'nothing'}."
