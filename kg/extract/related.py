"""Linear model for the probability that a passage relates two entities.

The weights in `related.tsv` were fitted on the training half of BioRED. The features
describe the distance between the two entities, how often they occur together, their
types, and the words between them. The model does not see names or identifiers.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kg.extract.base import Mention
from kg.types import EntityType

#: Minimum probability of pairs kept in broad mode; it has the best F1 on BioRED train.
BROAD = 0.32
_WORD = re.compile(r"[a-z]{3,}")
_LIST = re.compile(r"[\s,/()]*(?:and|or|,)?[\s,/()]*")
_NEVER = frozenset({EntityType.ORGANISM, EntityType.COHORT, EntityType.STAINING_METHOD})
_SAME = {
    EntityType.PROTEIN: EntityType.GENE, EntityType.TREATMENT: EntityType.CHEMICAL,
    EntityType.CELL_LINE: EntityType.CELL_TYPE,
}  # fmt: skip
#: Types between which the corpus that the weights were fitted on annotates relations.
KNOWN = frozenset({EntityType.GENE, EntityType.DISEASE, EntityType.CHEMICAL, EntityType.MUTATION})


@dataclass(frozen=True, slots=True)
class Meeting:
    """Two mentions in the same sentence, with the text between them."""

    sentence: int
    first: Mention
    second: Mention
    between: str


def meetings(
    text: str, spans: Sequence[tuple[int, int]], mentions: Sequence[Mention]
) -> dict[tuple[str, str], list[Meeting]]:
    """Map pairs of names, each in alphabetical order, to their joint occurrences in sentences."""
    found: dict[tuple[str, str], list[Meeting]] = defaultdict(list)
    for number, (start, end) in enumerate(spans):
        inside = [m for m in mentions if start <= m.start and m.end <= end and m.type not in _NEVER]
        for position, first in enumerate(inside):
            for second in inside[position + 1 :]:
                if first.name != second.name:
                    low, high = sorted((first.name, second.name))
                    between = text[first.end : max(first.end, second.start)]
                    found[low, high].append(Meeting(number, first, second, between))
    return found


def features(pair: Sequence[Meeting], counts: Mapping[str, int], last: int) -> dict[str, float]:
    """Compute the features of a pair of entities from its joint occurrences."""
    first, second = pair[0].first, pair[0].second
    types = sorted(_SAME.get(m.type, m.type).value for m in (first, second))
    rarer, commoner = sorted((counts[first.name], counts[second.name]))
    sentences = {meeting.sentence for meeting in pair}
    given = {
        f"types={'|'.join(types)}": 1.0,
        "words between": math.log1p(min(len(m.between.split()) for m in pair)),
        "sentences": float(min(4, len(sentences))),
        "one sentence": float(len(sentences) == 1),
        "first sentence": float(0 in sentences),
        "last sentence": float(last in sentences),
        "rarer": math.log1p(rarer),
        "commoner": math.log1p(commoner),
        "share": len(pair) / rarer,
    }
    for meeting in pair:
        for word in _WORD.findall(meeting.between.lower())[:14]:
            given[f"word={word[:7]}"] = 1.0
        if _LIST.fullmatch(meeting.between):
            given["list"] = 1.0
        elif meeting.between.lstrip().startswith("("):
            given["in parentheses"] = 1.0
    return given


def score_pairs(
    text: str, spans: Sequence[tuple[int, int]], mentions: Sequence[Mention]
) -> Iterator[tuple[tuple[str, str], list[Meeting], float]]:
    """Score the entity pairs in a passage by the probability that they are related."""
    counts = Counter(mention.name for mention in mentions)
    weights = _weights()
    for pair, met in meetings(text, spans, mentions).items():
        given = features(met, counts, len(spans) - 1)
        yield pair, met, probability(given, weights)


def probability(given: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Compute the logistic function of the weighted sum of features."""
    logit = weights["intercept"] + sum(
        value * weights.get(name, 0.0) for name, value in given.items()
    )
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))


@cache
def _weights() -> dict[str, float]:
    return read_weights(Path(__file__).with_name("related.tsv"))


def read_weights(path: Path) -> dict[str, float]:
    """Read the weight of each feature; lines starting with `#` are comments on its origin."""
    rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    return {row[0]: float(row[1]) for row in rows if len(row) == 2}
