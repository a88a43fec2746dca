"""Conversion of a fused graph to arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kg.fusion.model import FusedEdge, FusedGraph, FusedNode, Support
from kg.fusion.names import lexical_key
from kg.graph.arrays import NO_YEAR, GraphArrays
from kg.graph.belief import POLARITIES
from kg.graph.rows import NOTHING_MORE, JsonRows, encode_row
from kg.types import EntityType, Evidence

_TYPE = {t: n for n, t in enumerate(EntityType)}
_POLARITY = {p: n for n, p in enumerate(POLARITIES)}


def build_columns(fused: FusedGraph) -> tuple[dict[str, Any], dict[str, Any]]:
    """Build the columns and metadata of `kg.graph.model.Graph`, including computed measures."""
    ends = list(zip(*fused.edges, strict=True)) or [()] * len(FusedEdge._fields)
    head, named, tail, polarity, negated, supports = ends
    count = [len(s) for s in supports]
    edge = np.repeat(np.arange(len(count), dtype=np.int32), count)
    readings = [s for readings in supports for s in readings]
    evidence = [s.evidence for s in readings]
    document = _independent_documents(evidence)
    merges: dict[str, list[dict[str, Any]]] = {}
    for merge in fused.merges:
        merges.setdefault(merge.node, []).append(
            merge.model_dump(mode="json", exclude={"node", "kept", "kept_type"})
        )
    alias_keys, alias_node = _alias_table(
        [
            (n, name, node.type)
            for n, node in enumerate(fused.nodes)
            for name in (*node.names, *node.synonyms)
        ]
    )
    relations = sorted(set(named))
    relation = {r: n for n, r in enumerate(relations)}
    columns: dict[str, Any] = {
        "ids": [node.id for node in fused.nodes],
        "names": [node.name for node in fused.nodes],
        "types": np.array([_TYPE[node.type] for node in fused.nodes], dtype=np.uint8),
        "head": np.array(head, dtype=np.int32),
        "tail": np.array(tail, dtype=np.int32),
        "relation": np.array([relation[r] for r in named], dtype=np.int32),
        "polarity": np.array([_POLARITY[p] for p in polarity], dtype=np.uint8),
        "negated": np.array(negated, dtype=np.bool_),
        "reading_edge": edge,
        "reading_place": (np.arange(len(edge)) - np.searchsorted(edge, edge)).astype(np.int32),
        "reading_document": np.array([document[e.doc_id] for e in evidence], dtype=np.int32),
        "reading_year": np.array([e.year or NO_YEAR for e in evidence], dtype=np.int32),
        "reading_confidence": np.array([s.confidence for s in readings], dtype=np.float32),
        "reading_speculative": np.array([s.speculative for s in readings], dtype=np.bool_),
        "reading_retracted": np.array([e.retracted for e in evidence], dtype=np.bool_),
        "alias_keys": alias_keys,
        "alias_node": alias_node,
        "node_rows": JsonRows.from_texts(_node_row(node, merges) for node in fused.nodes),
        "edge_rows": JsonRows.from_texts(map(_supports, supports)),
        "node_row": np.arange(len(fused.nodes), dtype=np.int32),
        "edge_row": np.arange(len(fused.edges), dtype=np.int32),
        "vectors": fused.vectors,
    }
    for name in ("weight", "belief", "documents", "first_year", "last_year"):
        columns[name] = np.zeros(len(fused.edges), dtype=np.float32)
    meta = {
        "relations": relations,
        "embedder": fused.embedder,
        "options": fused.options.model_dump(mode="json"),
        "dropped": dict(fused.dropped),
        "as_of": None,
    }
    graph = GraphArrays(columns, meta)
    graph.measure()
    for name in ("weight", "belief", "documents", "first_year", "last_year"):
        columns[name] = getattr(graph, name)
    return columns, meta


def _node_row(node: FusedNode, merges: dict[str, list[dict[str, Any]]]) -> bytes:
    """Encode a node's aliases, synonyms, definition, identifiers and merges as JSON."""
    joined = merges.get(node.id)
    if not (joined or node.synonyms or node.identifiers or node.definition or node.names[1:]):
        return NOTHING_MORE
    return encode_row(
        {
            "aliases": list(node.names[1:]),
            "synonyms": list(node.synonyms),
            "definition": node.definition,
            "identifiers": dict(node.identifiers),
            "merges": joined or [],
        }
    )


def _supports(supports: tuple[Support, ...]) -> bytes:
    """Encode an edge's readings as a JSON list."""
    encode = Support.__pydantic_serializer__.to_json
    return b"[%s]" % b",".join([encode(s, exclude_defaults=True) for s in supports])


def _independent_documents(evidence: list[Evidence]) -> dict[str, int]:
    """Assign numbers to documents; files with the same DOI or PMID count as the same document."""
    key: dict[str, str] = {}
    for e in evidence:
        name = f"doi:{e.doi.casefold()}" if e.doi else f"pmid:{e.pmid}" if e.pmid else ""
        if name or e.doc_id not in key:
            key[e.doc_id] = min(filter(None, (key.get(e.doc_id), name)), default="")
    number: dict[str, int] = {}
    return {d: number.setdefault(key[d] or f"file:{d}", len(number)) for d in sorted(key)}


def _alias_table(
    names: list[tuple[int, str, EntityType]],
) -> tuple[list[str], NDArray[np.int32]]:
    """Build a sorted table of the distinct pairs of lexical key and node for all names."""
    rows = sorted({(key, n) for n, name, type_ in names for key in lookup_keys(name, type_)})
    return [key for key, _ in rows], np.array([n for _, n in rows], dtype=np.int32)


def lookup_keys(name: str, type_: EntityType) -> set[str]:
    """Compute the keys under which a name is found: for its own type and for an unknown type."""
    return {lexical_key(name, type_), lexical_key(name)} - {""}
