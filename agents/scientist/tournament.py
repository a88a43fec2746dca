"""Tournament of candidates: pairwise comparisons, rated by Elo.

Pairs are drawn as in the Swiss system: in each round, candidates adjacent in the rating
that have not met are compared, so that few comparisons rank many candidates. The order
within a pair is drawn at random, since a model may favor the candidate it reads first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from agents.core.base import Agent, Resources, Role, View, prompt_file
from agents.core.words import Words
from agents.scientist.rank import RankParts
from sage.core.seeds import generator

START = 1200.0
STEP = 32.0
"""Largest rating change from a single comparison (Elo 1978, The Rating of Chessplayers)."""
ROUNDS = 3


class Contender(View):
    """A candidate in the form used for comparison."""

    statement: str
    rationale: Words
    parts: RankParts


class Pairing(View):
    """Two candidates, and the question that they should answer."""

    question: str = ""
    first: Contender
    second: Contender


class Preference(View):
    """The candidate that is more worth testing."""

    better: Literal["first", "second"]


def by_parts(given: Pairing, resources: Resources) -> Preference:
    """Prefer the candidate with more expected information; break ties by relevance."""

    def worth(contender: Contender) -> tuple[float, float]:
        return contender.parts.expected_information, contender.parts.relevance

    first = worth(given.first) >= worth(given.second)
    return Preference(better="first" if first else "second")


TOURNAMENT = Agent(
    name="tournament",
    role=Role.MINI,
    reads=Pairing,
    returns=Preference,
    prompt=prompt_file(__file__, "tournament.md"),
    rule=by_parts,
)


def expected_score(rating: float, other: float) -> float:
    """Compute the probability, under Elo's model, that the first candidate is preferred."""
    return float(1 / (1 + 10 ** ((other - rating) / 400)))


def play(
    contenders: Sequence[Contender],
    prefer: Callable[[Contender, Contender], Literal["first", "second"]],
    seed: int,
    rounds: int = ROUNDS,
) -> list[float]:
    """Compute the candidates' Elo ratings after a few rounds of comparisons between neighbors.

    Parameters
    ----------
    seed : seed for the random order within pairs
    rounds : maximum number; fewer if all pairs have met

    Returns
    -------
    (n,) ratings; their sum stays n times the initial rating.
    """
    draw = generator(seed)
    ratings = [START] * len(contenders)
    met: set[frozenset[int]] = set()
    for _ in range(rounds):
        order = sorted(range(len(contenders)), key=lambda at: (-ratings[at], at))
        pairs = _pairs(order, met)
        for pair in pairs:
            first, second = pair if draw.random() < 0.5 else pair[::-1]
            met.add(frozenset(pair))
            won = prefer(contenders[first], contenders[second]) == "first"
            gain = STEP * (float(won) - expected_score(ratings[first], ratings[second]))
            ratings[first] += gain
            ratings[second] -= gain
    return ratings


def comparisons(contenders: int, rounds: int = ROUNDS) -> int:
    """Compute the maximum number of comparisons in a tournament."""
    return min(rounds * (contenders // 2), contenders * (contenders - 1) // 2)


def _pairs(order: Sequence[int], met: set[frozenset[int]]) -> list[tuple[int, int]]:
    """Pair candidates adjacent in the rating order that have not met."""
    left = list(order)
    found = []
    while len(left) > 1:
        first = left.pop(0)
        other = next((at for at in left if frozenset((first, at)) not in met), None)
        if other is not None:
            left.remove(other)
            found.append((first, other))
    return found
