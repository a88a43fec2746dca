"""Defensive reader of GraphML written by SAGE or by other programs."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from kg.fusion.model import FusedEdge, FusedGraph, FusedNode, FusionOptions, Merge, Support
from kg.fusion.names import clean_name
from kg.graph.build import build_columns
from kg.graph.graphml import EDGE_KEYS, NODE_KEYS
from kg.types import EntityType, Polarity
from sage.core.errors import InputError

_POLARITIES = {polarity.value: polarity for polarity in Polarity}
_SUPPORTS = TypeAdapter(tuple[Support, ...])
#: Names that programs use for the same attributes, in any case, the most telling first.
_NAME_KEYS = ("display name", "name", "shared name", "label", "title", "nodelabels")
_TYPE_KEYS = ("type", "category", "kind", "node_type", "entity_type")
_RELATION_KEYS = (
    "relation", "relationship", "predicate", "interaction", "shared interaction", "edge label",
    "label", "title", "edgelabels", "type",
)  # fmt: skip
_DRAWN = ("NodeLabel", "EdgeLabel", "Label.Text")
"""Elements in which yEd and yFiles write a label's text."""
_DRAWINGS = {"nodegraphics", "edgegraphics", "portgraphics"}
"""yEd attributes that contain an element's drawing, with its labels."""


def read_graphml(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the columns and metadata of a graph from GraphML written by SAGE or another program.

    Attributes from other programs are recognized if their names are common (label, category,
    predicate, weight), and labels also in yEd's drawing elements. Groups are kept in
    `meta["groups"]` as lists of node IDs; everything else is left out and counted in
    `meta["foreign"]`, and `meta["notes"]` reports it.

    Raises
    ------
    InputError
        If the file is not GraphML or declares a DTD or entities, or if an edge refers to a
        node that does not exist.
    """
    path = Path(path)
    fused, extra = _parse(path)
    columns, meta = build_columns(fused)
    bare = np.array([not e.supports for e in fused.edges], dtype=np.bool_)
    for name in ("weight", "belief", "documents", "first_year", "last_year"):
        column = columns[name]
        column[bare] = np.array(extra[name], dtype=column.dtype)[bare]
    meta.update(extra["meta"])
    meta["embedder"] = None
    meta["foreign"] = extra["foreign"]
    meta["groups"] = extra["groups"]
    meta["notes"] = extra["notes"]
    return columns, meta


def _parse(path: Path) -> tuple[FusedGraph, dict[str, Any]]:
    from lxml import etree

    reader = _Reader(path)
    try:
        _check_prolog(path)
        context = etree.iterparse(
            str(path),
            events=("end",),
            tag=("{*}key", "{*}node", "{*}edge", "{*}graph", "{*}hyperedge"),
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
            huge_tree=False,
        )
        for _, element in context:
            if reader.take(element):
                parent = element.getparent()
                if parent is not None:
                    parent.remove(element)
    except etree.XMLSyntaxError as error:
        raise InputError(f"{path}: not well-formed XML ({error}).") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error}).") from error
    except UnicodeError as error:
        raise InputError(f"{path}: not valid text ({error}).") from error
    return reader.finish()


_DOMAINS = ("node", "edge", "graph")
"""Kinds of elements; Cytoscape declares the keys of edges for nodes."""


class _RootSeenError(Exception):
    """Signal that the root element has been reached and the prolog is over."""


def _check_prolog(path: Path) -> None:
    """Reject a DTD before any parser can act on it, and any root element other than GraphML."""
    from xml.parsers import expat

    def doctype(*_: Any) -> None:
        raise InputError(
            f"{path}: contains a DTD or entities, which GraphML does not need and which can be "
            "used for an attack; remove the DOCTYPE."
        )

    def root(tag: str, _: Any) -> None:
        if tag.rpartition(":")[2] != "graphml":
            raise InputError(f"{path}: XML but not GraphML (root element <{tag}>).")
        raise _RootSeenError

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = doctype
    parser.StartElementHandler = root
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(1 << 16):
                parser.Parse(chunk, False)
        parser.Parse(b"", True)
    except _RootSeenError:
        return
    except expat.ExpatError as error:
        raise InputError(f"{path}: not well-formed XML ({error}).") from error


class _Reader:
    """Collector of nodes and edges from parse events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys: dict[tuple[str, str], str] = {}
        self.defaults: dict[str, dict[str, str]] = {}
        self.members: dict[str, list[str]] = {}
        self.undirected = 0
        self.nodes: dict[str, FusedNode] = {}
        self.raw: list[tuple[str, str, dict[str, str]]] = []
        self.merges: list[Merge] = []
        self.meta: dict[str, Any] = {}
        self.foreign: dict[str, int] = {}

    def take(self, element: Any) -> bool:
        """Process a complete element; return True if its memory can be freed."""
        tag = _local(element.tag)
        if tag == "key":
            name = element.get("attr.name") or element.get("yfiles.type") or element.get("id")
            domain = element.get("for", "all")
            self.keys[domain, element.get("id", "")] = name = (name or "").strip()
            default = element.findtext("{*}default")
            if default and name:
                self.defaults.setdefault(domain, {})[name] = default
            return False
        if tag == "node":
            self._node(element)
        elif tag == "edge":
            data = self._data(element)
            self.raw.append((element.get("source", ""), element.get("target", ""), data))
            graph = element.getparent()
            directed = element.get("directed") or graph.get("edgedefault", "directed")
            self.undirected += directed in ("undirected", "false", "0")
        elif tag == "hyperedge":
            self.foreign["hyperedge"] = self.foreign.get("hyperedge", 0) + 1
        elif tag == "graph":
            text = self._data(element).get("sage")
            meta = self._json(text, dict, "graph attribute sage") if text else {}
            self.meta = {k: meta[k] for k in ("options", "dropped", "as_of", "groups") if k in meta}
        return True

    def _data(self, element: Any) -> dict[str, str]:
        domain = _local(element.tag)
        out = dict(self.defaults.get("all", {})) | self.defaults.get(domain, {})
        drawn = ""
        for child in element:
            if isinstance(child.tag, str) and _local(child.tag) == "data":
                key = child.get("key", "")
                named = (self.keys.get((kind, key)) for kind in (domain, "all", *_DOMAINS))
                name = next(filter(None, named), key)
                if len(child):
                    texts = [
                        part.text.strip()
                        for part in child.iter("{*}*")
                        if _local(part.tag) in _DRAWN and (part.text or "").strip()
                    ]
                    drawn = drawn or (texts[0] if texts else "")
                    out[name] = "" if texts else "".join(child.itertext("*"))
                else:
                    out[name] = child.text or ""
        return out | ({f"{domain}labels": drawn} if drawn else {})

    def _json(self, text: str, kind: type, where: str) -> Any:
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InputError(f"{self.path}: {where} is not valid JSON ({error}).") from error
        if not isinstance(value, kind):
            raise InputError(f"{self.path}: {where} is not a JSON {kind.__name__}.")
        return value

    def _count_foreign(self, data: dict[str, str], known: set[str], domain: str) -> None:
        for name in data:
            if name.casefold() in known or not data[name].strip():
                continue
            label = f"{domain}.{name}"
            self.foreign[label] = self.foreign.get(label, 0) + 1

    def _node(self, element: Any) -> None:
        id_ = " ".join((element.get("id") or "").split())
        if not id_:
            raise InputError(f"{self.path}: a node has no ID.")
        if id_ in self.nodes:
            raise InputError(f'{self.path}: two nodes have the same ID "{id_}".')
        data = self._data(element)
        names = [clean_name(data[k]) for k in _sort_keys(data, _NAME_KEYS)]
        words = [n for n in names if n != id_ and not n.isdecimal()]
        name = next(iter([*words, *names]), id_)
        given = _first(data, _TYPE_KEYS)
        owner = element.getparent().getparent()
        if owner is not None and _local(owner.tag) == "node":
            self.members.setdefault(" ".join(owner.get("id", "").split()), []).append(id_)
        ours = _DRAWINGS.union((n for n, _ in NODE_KEYS), _NAME_KEYS, _TYPE_KEYS)
        self._count_foreign(data, ours, "node")
        where = f'node "{id_}"'
        more: dict[str, list[str]] = {"aliases": [], "synonyms": []}
        identifiers, merges = {}, []
        for kind in more:
            if kind in data:
                found = self._json(data[kind], list, f"{kind} of {where}")
                more[kind] = [str(a) for a in found]
        if "identifiers" in data:
            found = self._json(data["identifiers"], dict, f"identifiers of {where}")
            identifiers = {str(k): str(v) for k, v in found.items()}
        if "merges" in data:
            merges = self._json(data["merges"], list, f"merges of {where}")
        type_ = _entity_type(given)
        self.nodes[id_] = FusedNode(
            id=id_,
            name=name,
            type=type_,
            names=(name, *(a for a in more["aliases"] if a != name)),
            synonyms=tuple(more["synonyms"]),
            definition=data.get("definition"),
            identifiers=identifiers,
        )
        for merge in merges:
            try:
                self.merges.append(Merge(node=id_, kept=name, kept_type=type_, **merge))
            except (TypeError, ValueError) as error:
                raise InputError(f"{self.path}: a merge for {where} is invalid: {error}") from error

    def finish(self) -> tuple[FusedGraph, dict[str, Any]]:
        """Return the graph, and the measures given as attributes on edges without evidence."""
        groups = self._take_groups()
        position = {id_: n for n, id_ in enumerate(self.nodes)}
        extra: dict[str, Any] = {
            "weight": [], "belief": [], "documents": [], "first_year": [], "last_year": [],
            "meta": self.meta,
        }  # fmt: skip
        made: list[tuple[FusedEdge, tuple[Any, ...]]] = []
        names = ("weight", "belief", "documents", "first_year", "last_year")
        ours = _DRAWINGS.union((n for n, _ in EDGE_KEYS), _RELATION_KEYS)
        for number, (source, target, data) in enumerate(self.raw, start=1):
            ends = [" ".join(e.split()) for e in (source, target)]
            for end in ends:
                if end not in position:
                    raise InputError(
                        f'{self.path}: edge {number} refers to node "{end}", which does not exist.'
                    )
            self._count_foreign(data, ours, "edge")
            where = f"edge {number}"
            relation = _first(data, _RELATION_KEYS)
            if relation.casefold() in ("", "directed", "undirected"):
                relation = "related_to"
            polarity = _POLARITIES.get(data.get("polarity", ""), Polarity.NEUTRAL)
            edge = FusedEdge(
                head=position[ends[0]],
                relation=clean_name(relation),
                tail=position[ends[1]],
                polarity=polarity,
                negated=data.get("negated", "false").strip().lower() in ("true", "1"),
                supports=self._supports(data.get("evidence"), where),
            )
            weight = self._number(data.get("weight"), where, "weight", 1.0)
            belief = self._number(data.get("belief"), where, "belief", min(max(weight, 0.0), 1.0))
            made.append(
                (
                    edge,
                    (
                        weight,
                        min(max(belief, 0.0), 1.0),
                        int(self._number(data.get("documents"), where, "documents", 0.0)),
                        int(self._number(data.get("first_year"), where, "first_year", 0.0)),
                        int(self._number(data.get("last_year"), where, "last_year", 0.0)),
                    ),
                )
            )
        for values in (row for _, row in made):
            for name, value in zip(names, values, strict=True):
                extra[name].append(value)
        extra["foreign"] = dict(sorted(self.foreign.items()))
        extra["groups"] = (self.meta.pop("groups", None) or {}) | groups
        extra["notes"] = self._describe(groups)
        try:
            options = FusionOptions.model_validate(
                self.meta.get("options") or {"similarity": False, "prune_below": 1}
            )
        except ValueError as error:
            raise InputError(
                f'{self.path}: the graph attribute "sage" is invalid: {error}'
            ) from error
        fused = FusedGraph(
            nodes=tuple(self.nodes.values()),
            edges=tuple(edge for edge, _ in made),
            merges=tuple(self.merges),
            options=options,
            embedder=None,
            vectors=None,
            dropped={},
        )
        return fused, extra

    def _supports(self, text: str | None, where: str) -> tuple[Support, ...]:
        if not text or not text.strip().startswith("["):
            return ()
        try:
            return _SUPPORTS.validate_json(text)
        except ValueError as error:
            raise InputError(
                f"{self.path}: the evidence for {where} is invalid: {error}"
            ) from error

    def _number(self, text: str | None, where: str, name: str, missing: float) -> float:
        if text is None or not text.strip():
            return missing
        try:
            value = float(text)
        except ValueError as error:
            raise InputError(
                f'{self.path}: {name} of {where} is "{text}", not a number.'
            ) from error
        if not np.isfinite(value):
            raise InputError(f"{self.path}: {name} of {where} is not finite.")
        return value

    def _take_groups(self) -> dict[str, list[str]]:
        """Separate the groups from the nodes: enclosing boxes at which no edge ends."""
        ends = {" ".join(end.split()) for edge in self.raw for end in edge[:2]}
        groups: dict[str, list[str]] = {}
        for id_, inner in self.members.items():
            held = [leaf for part in inner for leaf in self._leaves(part)]
            groups.setdefault(self.nodes[id_].name, []).extend(held)
        for id_ in self.members.keys() - ends:
            del self.nodes[id_]
        return groups

    def _leaves(self, id_: str) -> list[str]:
        if id_ not in self.members:
            return [id_]
        return [leaf for part in self.members[id_] for leaf in self._leaves(part)]

    def _describe(self, groups: dict[str, list[str]]) -> list[str]:
        notes = []
        if groups:
            sized = ", ".join(f"{name} ({len(held)})" for name, held in groups.items())
            notes.append(f"groups, which are no nodes: {sized}")
        if self.undirected:
            notes.append(f"{self.undirected} edges without a direction run from source to target")
        if unnamed := sum(node.name == node.id for node in self.nodes.values()):
            notes.append(f"{unnamed} nodes without a label are named by their ID")
        bare = sum(not _first(data, _RELATION_KEYS) for _, _, data in self.raw)
        if bare:
            notes.append(f"{bare} edges without a label are of the relation related_to")
        if self.foreign:
            left = ", ".join(f"{name} ({count})" for name, count in sorted(self.foreign.items()))
            notes.append(f"attributes left out: {left}")
        return notes


def _first(data: dict[str, str], keys: tuple[str, ...]) -> str:
    """Return the first attribute with text under any of these case-insensitive names."""
    return next((data[name].strip() for name in _sort_keys(data, keys)), "")


def _sort_keys(data: dict[str, str], keys: tuple[str, ...]) -> list[str]:
    """List the attributes with text under any of these names, in the order of `keys`."""
    return [name for name in _order(tuple(data), keys) if data[name].strip()]


@lru_cache(maxsize=1024)
def _order(names: tuple[str, ...], keys: tuple[str, ...]) -> list[str]:
    named = [name for name in names if name.casefold() in keys]
    return sorted(named, key=lambda name: keys.index(name.casefold()))


@lru_cache(maxsize=1024)
def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


@lru_cache(maxsize=1024)
def _entity_type(text: str) -> EntityType:
    """Find the type with this name, ignoring case and separators; OTHER if there is none."""
    folded = re.sub(r"[^a-z]", "", text.casefold())
    return next((t for t in EntityType if t.value.casefold() == folded), EntityType.OTHER)
