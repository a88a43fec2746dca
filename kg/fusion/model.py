"""Options and results of fusion: nodes, edges, evidence and merges as plain typed data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pydantic import Field

from kg.types import EntityType, Evidence, Polarity
from sage.core.models import Strict

if TYPE_CHECKING:
    from kg.embedding.embed import FloatArray


class FusionOptions(Strict):
    """Options for fusion.

    `guarded` mode merges in tiers (lexical key, dictionary, guarded similarity to a leader).
    `paper` mode is the rule of SAGE, 3.1: names above tau are merged by chaining, with one edge per
    ordered pair. `apart` undoes merges: it lists pairs of names that guarded fusion keeps in
    different nodes. `min_belief` is the support from which an edge belongs to the default view.
    """

    mode: Literal["guarded", "paper"] = "guarded"
    tau: float = Field(default=0.95, gt=0.0, le=1.0)
    lexical: bool = True
    dictionary: bool = True
    similarity: bool = True
    prune_below: int = Field(default=3, ge=1)
    apart: tuple[tuple[str, str], ...] = ()
    min_confidence: float = Field(default=0.3, ge=0.0, le=1.0)
    min_belief: float = Field(default=0.0, ge=0.0, le=1.0)

    @classmethod
    def paper(cls) -> FusionOptions:
        """Return the paper's options: tau = 0.9, no guard."""
        return cls(mode="paper", tau=0.9)


class Entry(Protocol):
    """Fields of an ontology entry used in fusion."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> EntityType: ...
    @property
    def synonyms(self) -> Sequence[str]: ...
    @property
    def definition(self) -> str | None: ...
    @property
    def identifiers(self) -> Mapping[str, str]: ...


class OntologyLike(Protocol):
    """Protocol for an ontology that finds an entry by any of its names."""

    def find(self, name: str, /) -> Entry | None: ...


class MergeTier(StrEnum):
    """Rules that merge names, in the order in which they are applied."""

    LEXICAL = "lexical"
    DICTIONARY = "dictionary"
    ABBREVIATION = "abbreviation"
    COSINE = "cosine"
    COSINE_CHAINED = "cosine-chained"


class Merge(Strict):
    """A name merged into a node, with the reason."""

    node: str
    kept: str
    joined: str
    kept_type: EntityType
    joined_type: EntityType
    tier: MergeTier
    reason: str
    score: float | None = None


class Support(Strict):
    """A text's reading of an edge."""

    evidence: Evidence
    confidence: float
    relation_text: str
    speculative: bool = False
    extractor: str = ""


class FusedNode(NamedTuple):
    """An entity with all its names.

    `names` are all surface forms, the chosen name first; `synonyms` are further names from
    the ontology, by which the entity can be found even if no text uses them.
    """

    id: str
    name: str
    type: EntityType
    names: tuple[str, ...]
    definition: str | None = None
    identifiers: Mapping[str, str] = MappingProxyType({})
    synonyms: tuple[str, ...] = ()


class FusedEdge(NamedTuple):
    """All readings of a statement; if `negated` is true, they deny it."""

    head: int
    relation: str
    tail: int
    polarity: Polarity
    negated: bool
    supports: tuple[Support, ...]


@dataclass(frozen=True)
class FusedGraph:
    """Nodes, edges between node positions, merges, and counts of dropped items."""

    nodes: tuple[FusedNode, ...]
    edges: tuple[FusedEdge, ...]
    merges: tuple[Merge, ...]
    options: FusionOptions
    embedder: str | None
    vectors: FloatArray | None
    dropped: Mapping[str, int]
