"""Scoring and choosing paths."""

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
    """Raw scores of all candidates but Logic, and their normalized forms."""

    relevance: Floats
    novelty: Floats
    surprise: Floats
    relevance01: Floats
    novelty01: Floats
    surprise01: Floats


@dataclass(frozen=True)
class Choice:
    """Chosen rows in order of choice, with their raw Logic."""

    rows: list[int]
    logic: dict[int, float]


def score_candidates(
    rows: Rows,
    distances: NDArray[np.floating],
    degrees: NDArray[np.integer],
    types: NDArray[np.integer],
    n_types: int,
) -> Raw:
    """Relevance, Novelty and Surprise of all candidates (SAGE, B.1.2 to B.1.4).

    Parameters
    ----------
    rows : (n, m) node positions, -1 at the end of short rows
    distances : (n_nodes,) distance of each node to the domain; only those on paths are read
    degrees, types : (n_nodes,)
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
    """K paths, each the best total less `diversity` times its overlap with those chosen before.

    The overlap of two paths is the share of nodes that the smaller has in common with the
    other. Nodes that all candidates share (the ends of the search) do not count; a path of only
    such nodes overlaps with nothing.

    Parameters
    ----------
    logic_of : raw Logic (cosines) of some rows
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


#: Strongest paths compared with the prompt, per path wanted.
_READ = 12


def choose_strongest(
    rows: Rows,
    strength: Floats,
    k: int,
    diversity: float,
    logic_of: Callable[[Sequence[int]], Floats],
    tie: NDArray[np.integer],
) -> Choice:
    """K paths in order of choice: strong as mechanisms, about the prompt, unlike those before.

    Of the strongest, each is worth its strength times its Logic; what it has in common with a path
    chosen before costs up to a share `diversity` of that.

    Parameters
    ----------
    strength : (n,) from `kg.paths.mechanism.strength`
    logic_of : raw Logic (cosines) of some rows
    tie : (n,) order among equals
    """
    some = np.lexsort((tie, -strength))[: _READ * k + 20]
    cosines = logic_of(some.tolist()) if len(some) else np.zeros(0)
    # A path is not unfit because a sentence model sees it far from the prompt: no factor below .1.
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
    """(n, m) entries that are nodes which not every row contains."""
    there = rows >= 0
    if not len(rows):
        return there
    common = [node for node in rows[0][rows[0] >= 0] if (rows == node).any(axis=1).all()]
    return there & ~np.isin(rows, common)


def _overlap(rows: Rows, counts: NDArray[np.bool_], of: int) -> Floats:
    """(n,) share of counting nodes in common with row `of`, relative to the smaller set."""
    own = rows[of][counts[of]]
    shared = (np.isin(rows, own) & counts).sum(axis=1)
    sizes = np.minimum(counts.sum(axis=1), len(own))
    return np.where(sizes > 0, shared / np.maximum(sizes, 1), 0.0)
