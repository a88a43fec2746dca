"""Rewired graphs for comparison with paths: a path equally strong in noise means nothing."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kg.graph.arrays import GraphArrays
from sage.core.seeds import generator

Ends = NDArray[np.int64]

#: Number of rewired graphs.
REWIRINGS = 20
#: Rounds in which every link is offered a swap; after about ten, nothing is left of the originals.
_ROUNDS = 20
#: Larger graphs are rewired anew for each search, because keeping the copies takes too much memory.
_KEPT_EDGES = 50_000
_CACHED = [name for name, value in vars(GraphArrays).items() if isinstance(value, cached_property)]


def rewirings(graph: GraphArrays) -> Iterator[GraphArrays]:
    """Yield `REWIRINGS` copies of the graph with randomly swapped links, always the same copies.

    Each node keeps its number of neighbors; each link keeps its source, relations and
    beliefs.
    """
    kept: list[GraphArrays] | None = graph.__dict__.get("_rewired")
    if kept is None:
        made = (_rewire(graph, seed) for seed in range(REWIRINGS))
        if graph.n_edges > _KEPT_EDGES:
            yield from made
            return
        kept = graph.__dict__["_rewired"] = list(made)
    yield from kept


def _rewire(graph: GraphArrays, seed: int) -> GraphArrays:
    """Swap the targets of pairs of links, keeping all edges between two nodes together."""
    head, tail = graph.head.astype(np.int64), graph.tail.astype(np.int64)
    low, high = np.minimum(head, tail), np.maximum(head, tail)
    affirmed = np.flatnonzero(~graph.negated & (head != tail))
    _, first, link = np.unique(
        (low * graph.n_nodes + high)[affirmed], return_index=True, return_inverse=True
    )
    source, target = head[affirmed][first], tail[affirmed][first]
    reversed_ = head[affirmed] != source[link]
    _swap(source, target, graph.n_nodes, generator(seed))
    out = copy.copy(graph)
    for name in _CACHED:
        out.__dict__.pop(name, None)
    out.head, out.tail = graph.head.copy(), graph.tail.copy()
    out.head[affirmed] = np.where(reversed_, target[link], source[link])
    out.tail[affirmed] = np.where(reversed_, source[link], target[link])
    return out


def _swap(source: Ends, target: Ends, n: int, random: np.random.Generator) -> None:
    """Swap targets in place, without self-links and without linking two nodes twice."""
    for _ in range(_ROUNDS):
        order = random.permutation(len(source))
        half = len(order) // 2
        i, j = order[:half], order[half : 2 * half]
        there = np.minimum(source, target) * n + np.maximum(source, target)
        ends = [(source[i], target[j]), (source[j], target[i])]
        new = np.stack([np.minimum(a, b) * n + np.maximum(a, b) for a, b in ends])
        _, place, times = np.unique(new, return_inverse=True, return_counts=True)
        fits = (times[place.reshape(new.shape)] == 1) & ~np.isin(new, there)
        good = fits.all(axis=0) & (ends[0][0] != ends[0][1]) & (ends[1][0] != ends[1][1])
        i, j = i[good], j[good]
        target[i], target[j] = target[j], target[i]
