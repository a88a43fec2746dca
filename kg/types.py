"""Data types of the knowledge graph: documents, evidence, triples and scored paths.

These types are plain data exchanged between the store, files, agents and servers.
Performance-critical code works on arrays (`kg.graph.model.Graph`) instead.
"""

from __future__ import annotations

import math
from enum import StrEnum

from pydantic import Field

from sage.core.models import Name, Passage, Strict
from sage.core.printable import quote_text

PATHS, MAX_HOPS = 6, 4
"""Default number of paths in a search, and their maximum length in steps."""


class EntityType(StrEnum):
    """Ontology type of an entity (SAGE, A.3)."""

    GENE = "Gene"
    PROTEIN = "Protein"
    PATHWAY = "Pathway"
    BIOLOGICAL_PROCESS = "BiologicalProcess"
    DISEASE = "Disease"
    CELL_TYPE = "CellType"
    TISSUE_REGION = "TissueRegion"
    IMAGING_FEATURE = "ImagingFeature"
    STAINING_METHOD = "StainingMethod"
    TREATMENT = "Treatment"
    CHEMICAL = "Chemical"
    CLINICAL_ENDPOINT = "ClinicalEndpoint"
    CLINICAL_FACTOR = "ClinicalFactor"
    SIGNATURE = "Signature"
    MUTATION = "Mutation"
    ALGORITHM = "Algorithm"
    COHORT = "Cohort"
    ORGANISM = "Organism"
    OTHER = "Other"
    CELL_LINE = "CellLine"  # at the end: graphs on disk count types in this order


class Polarity(StrEnum):
    """Direction in which the tail changes when the head increases."""

    POSITIVE = "positive"
    NEGATIVE = "negative"
    NEUTRAL = "neutral"


class Section(Strict):
    """A section of a document; `start` is its character offset in the document's text."""

    title: str
    start: int
    end: int


class Document(Strict):
    """A source text with its identifiers. `id` is the SHA-256 of the file's content."""

    id: str
    path: str
    title: str
    text: str
    sections: tuple[Section, ...] = ()
    year: int | None = None
    venue: str | None = None
    doi: str | None = None
    pmid: str | None = None
    pmcid: str | None = None
    retracted: bool = False
    pages: int | None = None
    tier: str | None = None
    basis: str | None = None
    topics: tuple[str, ...] = ()


class Evidence(Strict):
    """Source of a triple: `start:end` are character offsets in the document's text.

    `design`, `cohort` and `n` describe the study, if its abstract states them; an `n` stated in the
    sentence itself takes precedence.
    """

    doc_id: str
    chunk_id: str
    section: str
    start: int
    end: int
    text: Passage
    title: Passage = ""
    year: int | None = None
    doi: str | None = None
    pmid: str | None = None
    retracted: bool = False
    design: str | None = None
    cohort: str | None = None
    n: int | None = None


class Triple(Strict):
    """An extracted statement (h, t_h, r_text, r_norm, t, t_t, c, e) (SAGE, 3.1)."""

    head: str
    head_type: EntityType
    relation_text: str
    relation: str
    tail: str
    tail_type: EntityType
    confidence: float = Field(ge=0.0, le=1.0)
    evidence: Evidence
    polarity: Polarity = Polarity.NEUTRAL
    negated: bool = False
    speculative: bool = False
    extractor: str = "rules"


class PathNode(Strict):
    """An entity on a path, with its ontology information."""

    id: str
    name: Name
    type: EntityType
    degree: int
    definition: Passage | None = None
    identifiers: dict[str, str] = Field(default_factory=dict)


class PathEdge(Strict):
    """A step of a path. `forward` is False if the step runs against the edge's direction."""

    head: str
    relation: str
    tail: str
    forward: bool = True
    weight: float
    belief: float = Field(ge=0.0, le=1.0)
    polarity: Polarity = Polarity.NEUTRAL
    contradicted: bool = False
    evidence: tuple[Evidence, ...] = ()
    contradicting: tuple[Evidence, ...] = ()


class PathScores(Strict):
    """The four scores of a path, raw and normalized to [0, 1] (SAGE, B.1)."""

    logic_raw: float
    relevance_raw: float
    novelty_raw: float
    surprise_raw: float
    logic: float
    relevance: float
    novelty: float
    surprise: float
    total: float


class PathMechanism(Strict):
    """A path as a mechanism.

    `sign` is the product of the steps' signs, neutral if any of them is; `directed` is true
    if every step is causal and all run in the same direction; `weakest` is the index of an
    edge. `noise` is the share of rewired graphs with a path at least as strong for the same
    prompt (`kg.paths.noise`); None if not compared, as for a direct link.
    """

    strength: float
    noise: float | None = None
    sign: Polarity
    causal_steps: int
    directed: bool
    weakest: int


class ScoredPath(Strict):
    """A path through the graph with its scores; `edges[i]` joins `nodes[i]` and `nodes[i + 1]`.

    `linked` is true if an edge joins the ends directly; `papers` is the number of papers with
    a statement about each end.
    """

    nodes: tuple[PathNode, ...]
    edges: tuple[PathEdge, ...]
    scores: PathScores
    mechanism: PathMechanism | None = None
    linked: bool = False
    papers: int | None = None

    @property
    def supported(self) -> bool:
        """False if at least half of the rewired graphs have an equally strong path."""
        noise = self.mechanism.noise if self.mechanism else None
        return noise is None or noise < 0.5

    @property
    def understudied(self) -> float | None:
        """1 if no paper covers both ends; decreases with the log of the number of papers."""
        return None if self.papers is None else round(1 / (1 + math.log1p(self.papers)), 4)

    def sentence(self) -> str:
        """Write the path as a sentence: entities and relations in traversal order (SAGE, B.1.1)."""
        words = [self.nodes[0].name]
        for node, edge in zip(self.nodes[1:], self.edges, strict=True):
            phrase = edge.relation.replace("_", " ")
            words.append(phrase if edge.forward else f"(inverse of {phrase})")
            words.append(node.name)
        return " ".join(words)

    def account(self) -> str:
        """Write the path as a readable sentence, with its weakest link and any contradiction."""
        names = {node.id: node.name for node in self.nodes}
        said, before = "", None
        for edge, node, following in zip(self.edges, self.nodes, self.nodes[1:], strict=False):
            verb = _spoken(edge.relation)
            if not edge.forward:
                said += f"{'; ' if said else ''}{following.name} {verb} {node.name}"
            elif before is None:
                said = f"{node.name} {verb} {following.name}"
            else:
                said += f"{', which' if before.forward else ' and'} {verb} {following.name}"
            before = edge
        parts = [said]
        if self.mechanism is not None:
            first, last = self.nodes[0].name, self.nodes[-1].name
            if self.mechanism.sign != Polarity.NEUTRAL:
                way = "more" if self.mechanism.sign == Polarity.POSITIVE else "less"
                parts.append(f"overall, more {first} goes with {way} {last}")
            weak = self.edges[self.mechanism.weakest]
            papers = len({e.doi or e.pmid or e.doc_id for e in weak.evidence})
            years = [e.year for e in weak.evidence if e.year]
            when = f" up to {max(years)}" if years else ""
            parts.append(
                f"weakest link: {names[weak.head]} {_spoken(weak.relation)} {names[weak.tail]} "
                f"(belief {weak.belief:.2f}, {papers} paper{'s' * (papers != 1)}{when})"
            )
            if not self.supported:
                share = f"{self.mechanism.noise:.0%}"
                parts.append(f"no support in the graph: {share} of rewired graphs do as well")
        doubts = [edge for edge in self.edges if edge.contradicted]
        for edge in doubts:
            against = edge.contradicting[0] if edge.contradicting else None
            quoted = f": {quote_text(against.text)}" if against else ""
            dated = f" ({against.year})" if against and against.year else ""
            parts.append(
                f"contradicted that {names[edge.head]} {_spoken(edge.relation)} "
                f"{names[edge.tail]}{quoted}{dated}"
            )
        if self.mechanism is not None and not doubts:
            parts.append("nothing in the graph contradicts it")
        return "; ".join(parts) + "."


def _spoken(relation: str) -> str:
    """Convert a relation to a verb phrase: `overexpressed_in` becomes "is overexpressed in"."""
    words = relation.replace("_", " ")
    first = words.split(" ", 1)[0]
    if relation == "not_different":
        return "does not differ from"
    if relation == "target_of":
        return "is a target of"
    return words if first.endswith("s") and not first.endswith("ss") else f"is {words}"


class ConceptMatch(Strict):
    """A concept in the prompt and the matching graph node."""

    phrase: Name
    node_id: str
    name: Name
    type: EntityType
    how: str
    score: float


class PathSearch(Strict):
    """Result of a path search: the concepts in the prompt, and the ranked paths."""

    prompt: Passage
    concepts: tuple[ConceptMatch, ...]
    unmatched: tuple[Name, ...]
    paths: tuple[ScoredPath, ...]
    candidates: int
    notes: tuple[str, ...] = ()
