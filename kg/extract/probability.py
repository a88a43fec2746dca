"""Calibrated logistic model for the probability that an extracted statement is correct.

The weights in `right.tsv` were fitted on judged statements from development abstracts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kg.extract.base import Mention, Statement
from kg.extract.related import probability, read_weights

#: A reading below this probability is not kept.
KEPT = 0.3
#: Readings are shown by default from this probability on: precision before recall.
SHOWN = 0.75

_KINDS = {
    "binds": "binding",
    "associated_with": "association",
    "correlates_with": "association",
    "correlates_negatively_with": "association",
    "predicts": "prediction",
    "prognostic_in": "context",
    "acts_in": "context",
    "treats": "treatment",
    "overexpressed_in": "place",
    "underexpressed_in": "place",
    "expressed_in": "place",
    "mutated_in": "place",
    "affects": "influence",
    "regulates": "influence",
}


@dataclass(frozen=True, slots=True)
class Side:
    """Coordinated mentions before or after a verb, and whether each is an argument of the verb."""

    mentions: tuple[Mention, ...]
    stands: tuple[bool, ...]

    def __bool__(self) -> bool:
        return bool(self.mentions)

    def split(self) -> tuple[Side, Side]:
        """Split off the first mention; return it and the remaining mentions."""
        return (
            Side(self.mentions[:1], self.stands[:1]),
            Side(self.mentions[1:], self.stands[1:]),
        )


@dataclass(frozen=True, slots=True)
class Signs:
    """Evidence for and against a reading.

    `subject` and `object` indicate whether the phrases containing head and tail are arguments
    of the verb; `words_before` and `words_after` count the words between the arguments and
    the verb.
    """

    subject: bool
    object: bool
    relation: str
    words_before: int
    words_after: int
    members: int
    length: int

    def features(self) -> dict[str, float]:
        """Compute the model's features, by name."""
        kind = _KINDS.get(self.relation, "cause")
        return {
            "subject": float(self.subject),
            "object": float(self.object),
            "both": float(self.subject and self.object),
            "words before": math.log1p(self.words_before),
            "words after": math.log1p(self.words_after),
            "members": math.log(self.members),
            "length": math.log(max(1, self.length)) - 3.0,
            f"relation={kind}": 1.0,
        }

    def probability(self) -> float:
        """Compute the probability that the reading is correct in direction, sign and denial."""
        return round(probability(self.features(), _weights()), 3)


@dataclass(frozen=True, slots=True)
class Reading:
    """A statement read in a sentence, with its evidence and the end of its last argument."""

    statement: Statement
    evidence: Signs
    end: int


def forget() -> None:
    """Clear the cached weights, so that they are loaded again when next needed."""
    _weights.cache_clear()


@cache
def _weights() -> dict[str, float]:
    return read_weights(Path(__file__).with_name("right.tsv"))
