"""Options weighed by claims that rest on passages or on priors."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sage_tumor_board.board.types import Cited

SURE, DOUBTED = 0.95, 0.05
"""Chance of a claim that a file bears out, and of one that it speaks against."""
UNKNOWN = 0.3
"""Chance of a claim about which no file says anything."""
MOST_CITED = 6
LONGEST_QUOTE = 600


@dataclass(frozen=True)
class Claim:
    """How likely a part of an option is, and on what that rests."""

    chance: float
    cited: tuple[Cited, ...] = ()


@dataclass(frozen=True)
class Weighed:
    """An option's chance, relative to the other options of its question."""

    chance: float
    cited: tuple[Cited, ...] = ()


def together(claims: Iterable[Claim], factor: float = 1.0) -> Weighed:
    """The chance that all claims hold, taken as independent of each other."""
    known = list(claims)
    cited = dict.fromkeys(item for claim in known for item in claim.cited)
    return Weighed(factor * math.prod(claim.chance for claim in known), tuple(cited)[:MOST_CITED])


def choose(options: Mapping[str, str], weighed: Mapping[str, Weighed]) -> str:
    """The letter of the likeliest option.

    Equal ones are told apart by a hash of their words, never by where they stand.
    """
    return max(weighed, key=lambda letter: (weighed[letter].chance, _tie(options[letter])))


def _tie(words: str) -> str:
    return hashlib.sha256(" ".join(words.split()).casefold().encode()).hexdigest()


def around(text: str, found: re.Match[str], before: int, after: int, ends: str) -> str:
    """A match with what stands about it, up to characters that end a passage.

    Parameters
    ----------
    text : where it was found
    found : the match
    before, after : characters about it at most
    ends : characters that end a passage
    """
    start = max(text.rfind(end, 0, found.start()) for end in ends) + 1
    stops = [at for end in ends if (at := text.find(end, found.end(), found.end() + after)) >= 0]
    stop = min([*stops, found.end() + after])
    first = max(start, found.start() - before)
    return text[first : min(stop, first + LONGEST_QUOTE)]


def logistic(log_odds: float) -> float:
    """Log odds as a chance."""
    return 1 / (1 + math.exp(-log_odds))


def yes_no(
    options: Mapping[str, str], chance: float, cited: tuple[Cited, ...]
) -> dict[str, Weighed]:
    """Options that begin with yes and no, by the chance of yes; others are unknown."""
    found = {}
    for letter, words in options.items():
        said = leading(words)
        weight = UNKNOWN if said is None else chance if said else 1 - chance
        found[letter] = Weighed(weight, cited)
    return found


def leading(words: str) -> bool | None:
    """Whether an option begins with yes (True) or no (False)."""
    found = re.match(r"\s*(yes|no)\b", words, re.IGNORECASE)
    return None if found is None else found[1].casefold() == "yes"
