"""Fusion of names in all documents into the nodes of a graph (SAGE, 3.1, A.4).

Guarded mode merges names in tiers and never by chaining; paper mode applies only the
cosine rule. Both record the reason for each merge. The result does not depend on the
input order: the same set of triples gives the same graph.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kg.embedding.embed import Embedder
from kg.fusion.edges import assemble
from kg.fusion.mentions import Mention, Mentions, find_abbreviations
from kg.fusion.merge import Clusters, merge_guarded, merge_paper
from kg.fusion.model import FusedGraph, FusionOptions, OntologyLike
from kg.types import Triple
from sage.core.errors import InputError


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause garbage collection, because the many small objects made here do not form cycles."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def fuse(
    triples: Iterable[Triple],
    options: FusionOptions | None = None,
    embedder: Embedder | None = None,
    ontology: OntologyLike | None = None,
    *,
    pair_cache: Path | None = None,
) -> FusedGraph:
    """Build a graph from the triples in all documents.

    Parameters
    ----------
    triples : statements; those below `options.min_confidence` are dropped and counted
    options : mode, threshold and tiers; the default is guarded mode with tau = 0.95
    embedder : required for the similarity tier and for paper mode
    pair_cache : file that stores the similar pairs, so that only new names need to be
        compared

    Returns
    -------
    The graph, without components with fewer than `options.prune_below` nodes.

    Raises
    ------
    InputError
        If the options require similarity but no embedder is given.
    """
    with collector_paused():
        return _fuse(triples, options or FusionOptions(), embedder, ontology, pair_cache)


def _fuse(
    triples: Iterable[Triple],
    options: FusionOptions,
    embedder: Embedder | None,
    ontology: OntologyLike | None,
    pair_cache: Path | None,
) -> FusedGraph:
    if embedder is None and (options.mode == "paper" or options.similarity):
        raise InputError(
            "fusion by similarity requires an embedder; pass one (kg.embedding.embed.default()), "
            "or set similarity = false in guarded mode."
        )
    kept: list[Triple] = []
    ends: list[tuple[Mention, Mention]] = []
    dropped = {"low confidence": 0, "empty name": 0, "self-loop": 0}
    mentions = Mentions()
    for triple in triples:
        if triple.confidence < options.min_confidence:
            dropped["low confidence"] += 1
        elif both := mentions.add(triple):
            kept.append(triple)
            ends.append(both)
        else:
            dropped["empty name"] += 1
    clusters: Clusters
    if options.mode == "paper":
        assert embedder is not None
        clusters = merge_paper(mentions, options, embedder, pair_cache)
    else:
        aliases = find_abbreviations(kept) if options.dictionary else {}
        clusters = merge_guarded(mentions, options, embedder, ontology, aliases, pair_cache)
    nodes, edges = assemble(kept, ends, clusters, options, dropped)
    ids = {node.id for node in nodes}
    vectors = None
    if embedder is not None:
        vectors = (
            embedder.embed([node.name for node in nodes])
            if nodes
            else np.zeros((0, embedder.dimension), dtype=np.float32)
        )
    return FusedGraph(
        nodes=tuple(nodes),
        edges=tuple(edges),
        merges=tuple(clusters.merges(ids)),
        options=options,
        embedder=embedder.name if embedder else None,
        vectors=vectors,
        dropped=dropped,
    )
