"""Typed views of a graph."""

from __future__ import annotations

from pydantic import Field

from kg.fusion.model import Support
from kg.types import EntityType, Polarity
from sage.core.models import Strict


class NodeView(Strict):
    """A node with its names and its ontology information.

    `aliases` were found in texts; `synonyms` are additional names in the ontology.
    """

    id: str
    name: str
    type: EntityType
    degree: int
    aliases: tuple[str, ...] = ()
    synonyms: tuple[str, ...] = ()
    definition: str | None = None
    identifiers: dict[str, str] = Field(default_factory=dict)


class EdgeView(Strict):
    """An edge with all its evidence, and the evidence against it.

    `weight` sums the local maxima over documents (SAGE, A.4); `belief` is in [0, 1].
    """

    head: str
    head_name: str
    relation: str
    tail: str
    tail_name: str
    weight: float
    belief: float
    polarity: Polarity
    negated: bool
    documents: int
    first_year: int | None
    last_year: int | None
    supports: tuple[Support, ...] = ()
    contradicting: tuple[Support, ...] = ()


class Neighbor(Strict):
    """A node one step away and the edges that lead to it."""

    node: NodeView
    relations: tuple[str, ...]
    forward: bool
    belief: float


class GraphStats(Strict):
    """The size and shape of a graph."""

    nodes: int
    edges: int
    negated_edges: int
    documents: int
    readings: int
    first_year: int | None
    last_year: int | None
    components: int
    largest_component: int
    mean_degree: float
    max_degree: int
    hubs: tuple[tuple[str, int], ...]
    types: dict[str, int]
    relations: dict[str, int]
    contradicted_edges: int
    merges: int
    mode: str
    embedder: str | None


class Quotation(Strict):
    """A sentence with its paper, and whether it supports the relation."""

    text: str
    title: str
    year: int | None
    paper: str
    speaks_for: bool
    speculative: bool
    retracted: bool


class Relation(Strict):
    """A relation of the concept, with the papers for and against it.

    `denied` means that no paper affirms it; its papers deny it and are counted as against.
    """

    head: str
    relation: str
    tail: str
    polarity: Polarity
    denied: bool
    belief: float
    papers_for: int
    papers_against: int
    quotations: tuple[Quotation, ...]


class YearCount(Strict):
    """Papers in a year for and against the concept's relations."""

    year: int
    papers_for: int
    papers_against: int
