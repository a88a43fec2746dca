"""Pairs that were linked later, and pairs to compare them with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kg.graph.arrays import NO_YEAR
from kg.graph.model import Graph
from sage.core.seeds import generator

Ends = NDArray[np.int64]


class Against(StrEnum):
    """What the pairs that were linked later are compared with."""

    RANDOM = "random"
    DISTANCE = "distance-matched"
    DEGREE = "degree-matched"


@dataclass(frozen=True)
class Window:
    """The graph as of `cut`, and the pairs of its nodes that were linked in the `horizon` after.

    `new` are pairs of positions in `past`; `known` holds the codes of all pairs linked by the end
    of the window, from which no negative is drawn.
    """

    past: Graph
    cut: int
    horizon: int
    new: Ends
    known: NDArray[np.int64]

    @property
    def linkable(self) -> int:
        """Pairs of nodes with a neighbor that were not linked by the cut."""
        alive = int((self.past.degree > 0).sum())
        return alive * (alive - 1) // 2 - len(self.past.adjacency[1]) // 2


def first_years(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Codes `low * n + high` of the pairs linked by a dated affirmed edge, and the first year."""
    keep = ~graph.negated & (graph.first_year != NO_YEAR)
    head, tail = graph.head[keep].astype(np.int64), graph.tail[keep].astype(np.int64)
    codes = np.minimum(head, tail) * max(graph.n_nodes, 1) + np.maximum(head, tail)
    years = graph.first_year[keep].astype(np.int64)
    order = np.lexsort((years, codes))
    codes, years = codes[order], years[order]
    first = np.ones(len(codes), dtype=np.bool_)
    first[1:] = codes[1:] != codes[:-1]
    return codes[first], years[first]


def window(graph: Graph, cut: int, horizon: int) -> Window:
    """What was known at the end of `cut`, and what the `horizon` years after it linked."""
    past = graph.as_of(cut)
    n, whole = past.n_nodes, max(graph.n_nodes, 1)
    place = np.array([past.position.get(node, -1) for node in graph.ids], dtype=np.int64)
    codes, years = first_years(graph)
    one, other = place[codes // whole], place[codes % whole]
    by_then = (one >= 0) & (other >= 0) & (years <= cut + horizon)
    known = np.minimum(one, other)[by_then] * n + np.maximum(one, other)[by_then]
    before, _ = first_years(past)
    new = np.setdiff1d(known, before)
    alive = past.degree > 0
    new = new[alive[new // max(n, 1)] & alive[new % max(n, 1)]] if n else new
    return Window(past, cut, horizon, to_ends(new, n), np.union1d(known, before))


def to_ends(codes: NDArray[np.int64], n: int) -> Ends:
    """(p, 2) positions from codes `low * n + high`."""
    return np.stack([codes // max(n, 1), codes % max(n, 1)], axis=1)


def to_codes(ends: Ends, n: int) -> NDArray[np.int64]:
    """Codes `low * n + high` of (p, 2) positions."""
    codes: NDArray[np.int64] = ends.min(axis=1) * n + ends.max(axis=1)
    return codes


def negatives(given: Window, against: Against, ratio: int, seed: int) -> Ends:
    """Pairs of the past graph that the window did not link, `ratio` for each that it did.

    Random pairs are any two nodes with a neighbor. Distance-matched pairs share one end with a
    linked pair; the other end has the type of the one replaced and stands as far away.
    Degree-matched pairs have, at both ends, the type and about the degree (within a factor of
    1.4) of a linked pair. Fewer are returned where the graph has no more.

    Parameters
    ----------
    given : the graph as of a year, and the pairs that the years after it linked
    against : which negatives: random, distance-matched or degree-matched
    ratio : negatives wanted for each linked pair
    seed : of the draw, into which the kind of negatives and the year of the cut enter too

    Returns
    -------
    (p, 2) node positions in `given.past`, each pair once, the lower position first, in order; p is
    at most `ratio` times the number of linked pairs.
    """
    rng = generator(seed, list(Against).index(against), given.cut)
    draw = {
        Against.RANDOM: _random, Against.DISTANCE: _at_distance, Against.DEGREE: _of_degree,
    }[against](given.past, rng)  # fmt: skip
    n = given.past.n_nodes
    taken = set(given.known.tolist())
    found: list[int] = []
    for one, other in given.new.tolist():
        left = ratio
        for candidates in range(12):
            for a, b in draw(one, other, ratio * (candidates + 1)):
                code = min(a, b) * n + max(a, b)
                if left and a != b and code not in taken:
                    taken.add(code)
                    found.append(code)
                    left -= 1
            if not left:
                break
    return to_ends(np.array(sorted(found), dtype=np.int64), n)


_Draw = Callable[[int, int, int], list[tuple[int, int]]]


def _random(past: Graph, rng: np.random.Generator) -> _Draw:
    alive = np.flatnonzero(past.degree > 0)

    def draw(one: int, other: int, count: int) -> list[tuple[int, int]]:
        picked = rng.choice(alive, (count, 2))
        return [(int(a), int(b)) for a, b in picked]

    return draw


def _of_degree(past: Graph, rng: np.random.Generator) -> _Draw:
    grade = np.floor(2 * np.log2(np.maximum(past.degree, 1))).astype(np.int64)
    alive = np.flatnonzero(past.degree > 0)
    like: dict[tuple[int, int], list[int]] = {}
    for node in alive.tolist():
        like.setdefault((int(past.types[node]), int(grade[node])), []).append(node)

    def draw(one: int, other: int, count: int) -> list[tuple[int, int]]:
        left = like[int(past.types[one]), int(grade[one])]
        right = like[int(past.types[other]), int(grade[other])]
        return [(int(rng.choice(left)), int(rng.choice(right))) for _ in range(count)]

    return draw


#: Beyond this many steps, pairs are as good as unconnected.
_FARTHEST = 5


def _at_distance(past: Graph, rng: np.random.Generator) -> _Draw:
    from kg.paths.search import distance_field

    indptr, indices = past.adjacency
    alive = past.degree > 0
    fields: dict[int, NDArray[np.int8]] = {}

    def draw(one: int, other: int, count: int) -> list[tuple[int, int]]:
        if rng.random() < 0.5:
            one, other = other, one
        if one not in fields:
            start = np.array([one], dtype=np.int32)
            fields[one] = distance_field(indptr, indices, start, _FARTHEST)
        steps = fields[one]
        fit = alive & (steps == steps[other]) & (past.types == past.types[other])
        places = np.flatnonzero(fit)
        return [(one, int(rng.choice(places))) for _ in range(count)] if len(places) else []

    return draw
