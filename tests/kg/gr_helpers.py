"""Builders of small graphs for the tests of fusion, graph and paths."""

from __future__ import annotations

from collections.abc import Sequence

from kg.embedding.embed import HashingEmbedder
from kg.fusion.fuse import fuse
from kg.fusion.model import FusedGraph, FusionOptions
from kg.graph.model import Graph
from kg.types import EntityType, Evidence, Polarity, Triple

EMBEDDER = HashingEmbedder(128)
G = EntityType.GENE
D = EntityType.DISEASE
P = EntityType.PATHWAY
C = EntityType.CELL_TYPE
E = EntityType.CLINICAL_ENDPOINT
T = EntityType.TISSUE_REGION
O = EntityType.OTHER  # noqa: E741


def triple(
    head: str,
    tail: str,
    *,
    relation: str = "associated_with",
    types: tuple[EntityType, EntityType] = (O, O),
    doc: str = "doc-1",
    confidence: float = 0.8,
    year: int | None = 2020,
    polarity: Polarity = Polarity.NEUTRAL,
    negated: bool = False,
    speculative: bool = False,
    text: str | None = None,
    doi: str | None = None,
    retracted: bool = False,
    start: int = 0,
) -> Triple:
    """A triple with plausible evidence."""
    text = text or f"{head} {relation} {tail}."
    return Triple(
        head=head,
        head_type=types[0],
        relation_text=relation.replace("_", " "),
        relation=relation,
        tail=tail,
        tail_type=types[1],
        confidence=confidence,
        polarity=polarity,
        negated=negated,
        speculative=speculative,
        evidence=Evidence(
            doc_id=doc,
            chunk_id=f"{doc}:0",
            section="Results",
            start=start,
            end=start + len(text),
            text=text,
            title=f"Title of {doc}",
            year=year,
            doi=doi,
            retracted=retracted,
        ),
    )


def fused(triples: Sequence[Triple], **options: object) -> FusedGraph:
    """Fusion with the hashing embedder."""
    return fuse(triples, FusionOptions.model_validate(options), EMBEDDER)


def graph(triples: Sequence[Triple], **options: object) -> Graph:
    """A graph from triples, small components kept."""
    return Graph.from_fused(fused(triples, **{"prune_below": 1, **options}))


def bladder() -> list[Triple]:
    """A dozen statements around tertiary lymphoid structures in bladder cancer."""
    tls, bc, os_ = "tertiary lymphoid structures", "bladder cancer", "overall survival"
    return [
        triple("TLS", "CXCL13", types=(T, G), relation="expresses", doc="a", year=2015),
        triple(tls, "B cells", types=(T, C), relation="contains", doc="a", year=2015,
               text="Tertiary lymphoid structures (TLS) contain B cells."),
        triple("B cell", "MS4A1", types=(C, G), relation="expresses", doc="b", year=2016),
        triple("CXCL13", os_, types=(G, E), relation="associated_with", doc="b", year=2016,
               polarity=Polarity.POSITIVE),
        triple("CXCL13", os_, types=(G, E), relation="decreases", doc="c", year=2019,
               polarity=Polarity.NEGATIVE),
        triple("CXCL13", "CXCR5", types=(G, G), relation="binds", doc="c", year=2019),
        triple("CXCR5", "B cells", types=(G, C), relation="recruits", doc="d", year=2018),
        triple("FABP5", "lipid metabolism", types=(G, P), relation="regulates", doc="d", year=2021),
        triple("lipid metabolism", bc, types=(P, D), relation="promotes", doc="e", year=2021),
        triple(bc, os_, types=(D, E), relation="decreases", doc="e", year=2012),
        triple("MS4A1", bc, types=(G, D), relation="expressed_in", doc="f", year=2022),
        triple("FABP5", "TLS", types=(G, T), relation="inhibits", doc="f", year=2022,
               polarity=Polarity.NEGATIVE, speculative=True),
    ]  # fmt: skip
