"""GraphML, written by streaming.

The file opens in networkx, Gephi and Cytoscape. Evidence, aliases, identifiers and merges are JSON
in string attributes, so that reading the file back (`kg.graph.graphml_read`) loses nothing but the
vectors.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from kg.graph.belief import POLARITIES
from kg.types import EntityType
from sage.core.errors import FaultError
from sage.core.files import writing

if TYPE_CHECKING:
    from kg.graph.arrays import GraphArrays

_NS = "http://graphml.graphdrawing.org/xmlns"
NODE_KEYS = (
    ("name", "string"), ("type", "string"), ("degree", "int"), ("aliases", "string"),
    ("synonyms", "string"), ("definition", "string"), ("identifiers", "string"),
    ("merges", "string"),
)  # fmt: skip
EDGE_KEYS = (
    ("relation", "string"), ("weight", "double"), ("belief", "double"), ("polarity", "string"),
    ("negated", "boolean"), ("documents", "int"), ("first_year", "int"), ("last_year", "int"),
    ("evidence", "string"),
)  # fmt: skip
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def write(graph: GraphArrays, path: str | Path) -> Path:
    """Write the graph; the same graph gives the same bytes. A kill leaves the former file."""
    path = Path(path)
    try:
        with writing(path) as stream:
            _stream(graph, stream)
    except OSError as error:
        raise FaultError(f"{path}: the GraphML could not be written ({error}).") from error
    return path


def _stream(graph: GraphArrays, stream: Any) -> None:
    stream.write(b"<?xml version='1.0' encoding='utf-8'?>\n")
    stream.write(f'<graphml xmlns="{_NS}">\n'.encode())
    for domain, keys in (("node", NODE_KEYS), ("edge", EDGE_KEYS)):
        for name, kind in keys:
            stream.write(
                f'<key id="{domain[0]}_{name}" for="{domain}" attr.name="{name}" '
                f'attr.type="{kind}"/>\n'.encode()
            )
    meta = json.dumps(
        {k: graph.meta.get(k) for k in ("options", "dropped", "as_of")},
        sort_keys=True,
        ensure_ascii=False,
    )
    stream.write(b'<key id="g_sage" for="graph" attr.name="sage" attr.type="string"/>\n')
    stream.write(b'<graph edgedefault="directed">\n')
    stream.write(f'<data key="g_sage">{_text(meta)}</data>\n'.encode())
    types = [t.value for t in EntityType]
    ids = [quoteattr(_ILLEGAL.sub("", i)) for i in graph.ids]
    degree = graph.degree.tolist()
    node_type = graph.types.tolist()
    for n, id_ in enumerate(ids):
        row = graph.node_rows[int(graph.node_row[n])]
        parts = [
            f'<node id={id_}><data key="n_name">{_text(graph.names[n])}</data>'
            f'<data key="n_type">{types[node_type[n]]}</data>'
            f'<data key="n_degree">{degree[n]}</data>'
        ]
        for name in ("aliases", "synonyms", "identifiers", "merges"):
            if row.get(name):
                value = json.dumps(row[name], ensure_ascii=False, sort_keys=True)
                parts.append(f'<data key="n_{name}">{_text(value)}</data>')
        if row.get("definition"):
            parts.append(f'<data key="n_definition">{_text(row["definition"])}</data>')
        parts.append("</node>\n")
        stream.write("".join(parts).encode())
    columns = (
        graph.head, graph.tail, graph.relation, graph.weight, graph.belief, graph.polarity,
        graph.negated, graph.documents, graph.first_year, graph.last_year,
    )  # fmt: skip
    relations = [_text(r) for r in graph.relations]
    rows = zip(*(c.tolist() for c in columns), strict=True)
    for e, (h, t, r, w, b, p, neg, docs, first, last) in enumerate(rows):
        years = (f'<data key="e_first_year">{first}</data>' if first else "") + (
            f'<data key="e_last_year">{last}</data>' if last else ""
        )
        stream.write(
            (
                f"<edge source={ids[h]} target={ids[t]}>"
                f'<data key="e_relation">{relations[r]}</data>'
                f'<data key="e_weight">{w:.6g}</data><data key="e_belief">{b:.6g}</data>'
                f'<data key="e_polarity">{POLARITIES[p].value}</data>'
                f'<data key="e_negated">{"true" if neg else "false"}</data>'
                f'<data key="e_documents">{docs}</data>{years}'
                f'<data key="e_evidence">{_text(_evidence(graph, e))}</data></edge>\n'
            ).encode()
        )
    stream.write(b"</graph>\n</graphml>\n")


def _evidence(graph: GraphArrays, edge: int) -> str:
    rows = graph.edge_rows
    at = int(graph.edge_row[edge])
    if graph.meta.get("as_of") is None:  # all readings of the row: the bytes as they are
        start, stop = int(rows.offsets[at]), int(rows.offsets[at + 1])
        return rows.buffer[start : stop - 1].decode()
    whole = rows[at]
    kept = [whole[p] for p in graph.reading_place[graph.readings_of(edge)].tolist()]
    return json.dumps(kept, ensure_ascii=False, sort_keys=True)


def _text(value: str) -> str:
    return escape(_ILLEGAL.sub("", value))
