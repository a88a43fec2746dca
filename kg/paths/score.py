"""Scoring and selection of paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kg.paths import scores
from kg.paths.scores import Floats

Rows = NDArray[np.int32]


@dataclass(frozen=True)
class Raw:
    """Raw and normalized scores for all candidates, except Logic."""

    relevance: Floats
    novelty: Floats
    surprise: Floats
    relevance01: Floats
    novelty01: Floats
    surprise01: Floats


@dataclass(frozen=True)
class Choice:
    """The selected rows in order of selection, with their raw Logic."""

    rows: list[int]
    logic: dict[int, float]


def score_candidates(
    rows: Rows,
    distances: NDArray[np.floating],
    degrees: NDArray[np.integer],
    types: NDArray[np.integer],
    n_types: int,
) -> Raw:
    """Compute Relevance, Novelty and Surprise for all candidates (SAGE, B.1.2 to B.1.4).

    Parameters
    ----------
    rows : (n, m) node positions, -1 at the end of short rows
    distances : (n_nodes,) distance of each node to the domain; only nodes on paths are used
    degrees, types : (n_nodes,) degree and type of each node
    """
    relevance = scores.relevance(rows, distances)
    novelty = scores.novelty(rows, scores.information_content(degrees))
    counts = scores.category_counts(rows, types, n_types)
    surprise = scores.surprise(counts, scores.category_distribution(types, n_types))
    return Raw(
        relevance,
        novelty,
        surprise,
        scores.rescale_relevance(relevance),
        scores.min_max(novelty),
        scores.min_max(surprise),
    )


def choose(
    rows: Rows,
    raw: Raw,
    weights: tuple[float, float, float, float],
    k: int,
    diversity: float,
    logic_of: Callable[[Sequence[int]], Floats],
    tie: NDArray[np.integer],
) -> Choice:
    """Select k paths by total, minus `diversity` times the overlap with paths already selected.

    The overlap of two paths is the share of nodes that the smaller path has in common with
    the other. Nodes that all candidates share (the ends of the search) do not count; a path
    that consists only of such nodes does not overlap with any other.

    Parameters
    ----------
    logic_of : function that computes the raw Logic (cosines) of given rows
    tie : (n,) order among equal totals
    """
    w = scores.check_weights(weights)
    logic = logic_of(range(len(rows)))
    value = scores.total(
        w, scores.clamp_logic(logic), raw.relevance01, raw.novelty01, raw.surprise01
    )
    counts = _distinguishing(rows)
    penalty = np.zeros(len(rows))
    open_ = np.ones(len(rows), dtype=np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(k, len(rows)):
        best = _first(np.where(open_, value - penalty, -np.inf), tie)
        chosen.append(best)
        open_[best] = False
        if diversity > 0:
            penalty = np.maximum(penalty, diversity * _overlap(rows, counts, best))
    return Choice(chosen, {c: float(logic[c]) for c in chosen})


#: Number of strongest paths compared with the prompt, per path requested.
_READ = 12


def choose_strongest(
    rows: Rows,
    strength: Floats,
    k: int,
    diversity: float,
    logic_of: Callable[[Sequence[int]], Floats],
    tie: NDArray[np.integer],
) -> Choice:
    """Select k paths that are strong mechanisms, relevant to the prompt, and diverse.

    The strongest paths are ranked by strength times Logic. Overlap with a path already
    selected reduces this value by at most the share `diversity`.

    Parameters
    ----------
    strength : (n,) from `kg.paths.mechanism.strength`
    logic_of : function that computes the raw Logic (cosines) of given rows
    tie : (n,) order among paths with equal value
    """
    some = np.lexsort((tie, -strength))[: _READ * k + 20]
    cosines = logic_of(some.tolist()) if len(some) else np.zeros(0)
    # A low similarity to the prompt alone must not rule out a path: the factor is at least 0.1.
    value = strength[some] * np.maximum(scores.clamp_logic(cosines), 0.1)
    counts = _distinguishing(rows)
    kept = np.ones(len(some))
    open_ = np.ones(len(some), dtype=np.bool_)
    chosen: list[int] = []
    while len(chosen) < min(k, len(some)):
        best = _first(np.where(open_, value * kept, -np.inf), tie[some])
        chosen.append(best)
        open_[best] = False
        shared = _overlap(rows, counts, int(some[best]))[some]
        kept = np.minimum(kept, np.maximum(1.0 - diversity * shared, 0.0))
    logic = {int(some[c]): float(cosines[c]) for c in chosen}
    return Choice([int(some[c]) for c in chosen], logic)


def _first(values: Floats, tie: NDArray[np.integer]) -> int:
    top = np.flatnonzero(values == values.max())
    return int(top[np.argmin(tie[top])])


def _distinguishing(rows: Rows) -> NDArray[np.bool_]:
    """Mark the entries whose nodes do not occur in every row, (n, m)."""
    there = rows >= 0
    if not len(rows):
        return there
    common = [node for node in rows[0][rows[0] >= 0] if (rows == node).any(axis=1).all()]
    return there & ~np.isin(rows, common)


def _overlap(rows: Rows, counts: NDArray[np.bool_], of: int) -> Floats:
    """Compute each row's share of counted nodes in common with row `of`, (n,).

    The share is relative to the smaller of the two node sets.
    """
    own = rows[of][counts[of]]
    shared = (np.isin(rows, own) & counts).sum(axis=1)
    sizes = np.minimum(counts.sum(axis=1), len(own))
    return np.where(sizes > 0, shared / np.maximum(sizes, 1), 0.0)
