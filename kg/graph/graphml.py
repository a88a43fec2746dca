"""Streaming writer of GraphML.

The file can be opened in networkx, Gephi and Cytoscape. Evidence, aliases, identifiers and merges
are stored as JSON in string attributes, so that reading the file back (`kg.graph.graphml_read`)
loses only the vectors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape, quoteattr

from kg.graph.belief import POLARITIES
from kg.graph.rows import NOTHING_MORE
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
_AT_ONCE = 4096
"""Number of lines written together."""
_SPECIAL = re.compile("[&<>\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_UNQUOTED = re.compile(f'{_SPECIAL.pattern}|["\\n\\r\\t]')
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def write(graph: GraphArrays, path: str | Path) -> Path:
    """Write the graph reproducibly and atomically: a killed write leaves the old file in place."""
    path = Path(path)
    try:
        with writing(path) as stream:
            _stream(graph, stream)
    except OSError as error:
        raise FaultError(f"{path}: the GraphML file could not be written ({error}).") from error
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
        {k: graph.meta.get(k) for k in ("options", "dropped", "as_of")}
        | ({"groups": groups} if (groups := graph.meta.get("groups")) else {}),
        sort_keys=True,
        ensure_ascii=False,
    )
    stream.write(b'<key id="g_sage" for="graph" attr.name="sage" attr.type="string"/>\n')
    stream.write(b'<graph edgedefault="directed">\n')
    stream.write(f'<data key="g_sage">{_text(meta)}</data>\n'.encode())
    ids = [_quote(id_) for id_ in graph.ids]
    for lines in (_nodes(graph, ids), _edges(graph, ids)):
        while some := "".join(islice(lines, _AT_ONCE)):
            stream.write(some.encode())
    stream.write(b"</graph>\n</graphml>\n")


def _nodes(graph: GraphArrays, ids: list[str]) -> Iterator[str]:
    types = [t.value for t in EntityType]
    columns = (graph.types.tolist(), graph.degree.tolist(), graph.node_row.tolist())
    for id_, name, type_, degree, at in zip(ids, graph.names, *columns, strict=True):
        more = ""
        if graph.node_rows.raw(at) != NOTHING_MORE:
            row = graph.node_rows[at]
            for key in ("aliases", "synonyms", "identifiers", "merges"):
                if row.get(key):
                    value = json.dumps(row[key], ensure_ascii=False, sort_keys=True)
                    more += f'<data key="n_{key}">{_text(value)}</data>'
            if row.get("definition"):
                more += f'<data key="n_definition">{_text(row["definition"])}</data>'
        yield (
            f'<node id={id_}><data key="n_name">{_text(name)}</data>'
            f'<data key="n_type">{types[type_]}</data>'
            f'<data key="n_degree">{degree}</data>{more}</node>\n'
        )


def _edges(graph: GraphArrays, ids: list[str]) -> Iterator[str]:
    columns = (
        graph.head, graph.tail, graph.relation, graph.weight, graph.belief, graph.polarity,
        graph.negated, graph.documents, graph.first_year, graph.last_year,
    )  # fmt: skip
    relations = [_text(r) for r in graph.relations]
    polarities = [p.value for p in POLARITIES]
    rows = zip(*(c.tolist() for c in columns), _evidence(graph), strict=True)
    for h, t, r, w, b, p, neg, docs, first, last, evidence in rows:
        years = (f'<data key="e_first_year">{first}</data>' if first else "") + (
            f'<data key="e_last_year">{last}</data>' if last else ""
        )
        yield (
            f"<edge source={ids[h]} target={ids[t]}>"
            f'<data key="e_relation">{relations[r]}</data>'
            f'<data key="e_weight">{w:.6g}</data><data key="e_belief">{b:.6g}</data>'
            f'<data key="e_polarity">{polarities[p]}</data>'
            f'<data key="e_negated">{"true" if neg else "false"}</data>'
            f'<data key="e_documents">{docs}</data>{years}'
            f'<data key="e_evidence">{_text(evidence)}</data></edge>\n'
        )


def _evidence(graph: GraphArrays) -> list[str]:
    """Encode each edge's readings as JSON."""
    rows, places = graph.edge_rows, graph.edge_row.tolist()
    if graph.meta.get("as_of") is None:  # all readings of the row: the bytes as they are
        return [rows.raw(at).decode() for at in places]
    found = []
    for edge, at in enumerate(places):
        whole = rows[at]
        kept = [whole[p] for p in graph.reading_place[graph.readings_of(edge)].tolist()]
        found.append(json.dumps(kept, ensure_ascii=False, sort_keys=True))
    return found


def _quote(value: str) -> str:
    return quoteattr(_ILLEGAL.sub("", value)) if _UNQUOTED.search(value) else f'"{value}"'


def _text(value: str) -> str:
    return escape(_ILLEGAL.sub("", value)) if _SPECIAL.search(value) else value
