"""What the years of the graph say of the ends of a path: plausible, and under-studied."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kg.graph.model import Graph
from kg.types import PathProspect


def prospects_of(
    graph: Graph, ends: NDArray[np.int64], *, learn: bool = True
) -> tuple[PathProspect, ...]:
    """The two axes of each pair of nodes, given by position.

    Parameters
    ----------
    ends : (p, 2) positions in `graph`
    learn : fit how the graph grew (once per graph); else only what was studied is counted
    """
    from kg.foresight.model import foresight_of

    indptr, indices = graph.adjacency
    linked = [int(b) in indices[indptr[a] : indptr[a + 1]] for a, b in ends.tolist()]
    model = foresight_of(graph) if learn and not all(linked) else None
    told: list[tuple[float, float] | None] = [None] * len(ends)
    if model is not None:
        past = model.past.graph
        place = [
            (past.position.get(graph.ids[a]), past.position.get(graph.ids[b]))
            for a, b in ends.tolist()
        ]
        asked = [
            n for n, (a, b) in enumerate(place) if a is not None and b is not None and not linked[n]
        ]
        outlook = model.outlook(np.array([place[n] for n in asked], dtype=np.int64).reshape(-1, 2))
        for n, ratio, percentile in zip(
            asked, outlook.ratio.tolist(), outlook.percentile.tolist(), strict=True
        ):
            told[n] = (round(ratio, 4), round(percentile, 4))
    found = []
    for (a, b), known, answer in zip(ends.tolist(), linked, told, strict=True):
        papers = len(_papers(graph, a) & _papers(graph, b))
        found.append(
            PathProspect(
                linked=known,
                plausible_ratio=answer[0] if answer else None,
                plausible_percentile=answer[1] if answer else None,
                years=model.horizon if model is not None and answer else None,
                understudied=round(1 / (1 + math.log1p(papers)), 4),
                papers=papers,
            )
        )
    return tuple(found)


def _papers(graph: Graph, node: int) -> set[int]:
    """Documents with a statement about a node."""
    edges = np.flatnonzero((graph.head == node) | (graph.tail == node))
    found: set[int] = set()
    for edge in edges.tolist():
        found.update(graph.reading_document[graph.readings_of(edge)].tolist())
    return found
