"""Export to CX2, Cytoscape's JSON exchange format, with attributes, years, papers and a style."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kg.graph.arrays import TYPES
from kg.graph.belief import POLARITIES
from kg.graph.export_page import COLORS
from kg.graph.identifiers import list_papers

if TYPE_CHECKING:
    from kg.graph.model import Graph

_NODE = {
    "name": "string", "represents": "string", "type": "string", "degree": "integer",
    "definition": "string", "aliases": "list_of_string", "identifiers": "list_of_string",
}  # fmt: skip
_EDGE = {
    "interaction": "string", "polarity": "string", "negated": "boolean", "belief": "double",
    "weight": "double", "documents": "integer", "first_year": "integer", "last_year": "integer",
    "papers": "list_of_string", "quotations": "list_of_string",
}  # fmt: skip
#: Maximum number of quotations per edge.
QUOTATIONS = 5


def render_cx2(graph: Graph, name: str) -> str:
    """Render the graph as a CX2 file: an array of aspects between metadata and status.

    Nodes are colored by type. An edge with positive polarity ends in an arrow, an edge with
    negative polarity in a bar, and a denied edge is dashed, so that color is never the only
    distinction.
    """
    nodes = [
        {"id": n, "v": _drop_empty(_node(graph, n))} for n in range(graph.n_nodes)
    ]  # an attribute without value is left out, as the format asks
    edges = [
        {
            "id": e,
            "s": int(graph.head[e]),
            "t": int(graph.tail[e]),
            "v": _drop_empty(_edge(graph, e)),
        }
        for e in range(graph.n_edges)
    ]
    declared = [{
        "networkAttributes": {"name": {"d": "string"}, "description": {"d": "string"}},
        "nodes": {key: {"d": kind} for key, kind in _NODE.items()},
        "edges": {key: {"d": kind} for key, kind in _EDGE.items()},
    }]  # fmt: skip
    described = [{
        "name": name,
        "description": "Relations stated in texts, extracted by SAGE: evidence of statements, "
        "not of facts. Denied relations have negated = true.",
    }]  # fmt: skip
    aspects: dict[str, list[Any]] = {
        "attributeDeclarations": declared,
        "networkAttributes": described,
        "nodes": nodes,
        "edges": edges,
        "visualProperties": [_style()],
    }
    metadata = [{"name": key, "elementCount": len(rows)} for key, rows in aspects.items()]
    document = [
        {"CXVersion": "2.0", "hasFragments": False},
        {"metaData": metadata},
        *({key: rows} for key, rows in aspects.items()),
        {"status": [{"success": True}]},
    ]
    return json.dumps(document, ensure_ascii=False, sort_keys=True)


def _node(graph: Graph, n: int) -> dict[str, Any]:
    view = graph.node(n)
    return {
        "name": view.name,
        "represents": view.id,
        "type": view.type.value,
        "degree": view.degree,
        "definition": view.definition,
        "aliases": list(view.aliases),
        "identifiers": [f"{key}={value}" for key, value in sorted(view.identifiers.items())],
    }


def _edge(graph: Graph, e: int) -> dict[str, Any]:
    supports = graph.supports(e)
    return {
        "interaction": graph.relations[graph.relation[e]],
        "polarity": POLARITIES[graph.polarity[e]].value,
        "negated": bool(graph.negated[e]),
        "belief": round(float(graph.belief[e]), 6),
        "weight": round(float(graph.weight[e]), 6),
        "documents": int(graph.documents[e]),
        "first_year": int(graph.first_year[e]) or None,
        "last_year": int(graph.last_year[e]) or None,
        "papers": list_papers(graph, e),
        "quotations": [support.evidence.text for support in supports[:QUOTATIONS]],
    }


def _drop_empty(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value not in (None, [])}


def _style() -> dict[str, Any]:
    def map_values(attribute: str, values: dict[Any, str], kind: str = "string") -> dict[str, Any]:
        rows = [{"v": value, "vp": shown} for value, shown in values.items()]
        return {
            "type": "DISCRETE",
            "definition": {"attribute": attribute, "type": kind, "map": rows},
        }

    label = {"type": "PASSTHROUGH", "definition": {"attribute": "name", "type": "string"}}
    return {
        "default": {
            "network": {"NETWORK_BACKGROUND_COLOR": "#FFFFFF"},
            "node": {"NODE_SHAPE": "ellipse", "NODE_WIDTH": 40.0, "NODE_HEIGHT": 40.0},
            "edge": {"EDGE_LINE_COLOR": "#777777", "EDGE_WIDTH": 1.5},
        },
        "nodeMapping": {
            "NODE_LABEL": label,
            "NODE_BACKGROUND_COLOR": map_values(
                "type", {kind.value: COLORS[kind] for kind in TYPES}
            ),
        },
        "edgeMapping": {
            "EDGE_TARGET_ARROW_SHAPE": map_values(
                "polarity", {"positive": "triangle", "negative": "tee", "neutral": "none"}
            ),
            "EDGE_LINE_STYLE": map_values("negated", {True: "dashed", False: "solid"}, "boolean"),
        },
    }
