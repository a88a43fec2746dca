"""What retrieved literature says about a hypothesis's novelty, without a model.

This is a proxy. It counts which parts of the hypothesis were seen together, how near the nearest
prior claim comes, and which sentences deny it. It does not understand an argument, and it says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from agents.novelty.direction import Opposition
from agents.novelty.types import CitedRecord
from agents.types import ExpandedHypothesis
from kg.lexicon.ontology import Ontology
from kg.literature.expansion import synonyms
from kg.literature.text import mentions, phrase_key, words
from kg.literature.types import Record

_DENIAL = re.compile(
    r"\b(no (significant )?(association|correlation|difference|effect|evidence|benefit|"
    r"prognostic)|not (be )?(significantly )?(associated|correlated|related|predict\w*|prognostic|"
    r"differ\w*|improve\w*|reproduc\w*|replicat\w*|confirm\w*|support\w*|detect\w*)|"
    r"(does|do|did|could|can) not|fail(s|ed|ure)? to|refut\w+|contradict\w*|irreproducib\w*|"
    r"retract\w*|fabricat\w*|falsif\w*|misconduct|debunk\w*|disprov\w*|negative finding|"
    r"artifact\w*|contaminat\w*|unfounded|without (any )?(association|effect))\b",
    re.IGNORECASE,
)
_REFUTATION = re.compile(
    r"\b(refut\w+|irreproducib\w*|retract\w*|fabricat\w*|falsif\w*|misconduct|debunk\w*|"
    r"disprov\w*|(could|can) ?not be (reproduced|replicated|confirmed)|"
    r"fail(s|ed|ure)? to (reproduce|replicate|confirm)|not (reproduced|replicated|reproducible)|"
    r"contaminat\w*|artifact\w*|unfounded)\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")

NEAR = 0.6
"""Share of the hypothesis (weighted by rarity) that a prior claim must cover to count as near."""

_HALF_SEEN = 4.0
"""Relevant records at which the reading counts half, against the critic's prior stance."""


@dataclass(frozen=True)
class Nearest:
    """A record and how much of the hypothesis it covers; for denials, the sentence."""

    ref: str
    record: Record
    overlap: float
    parts: tuple[str, ...]
    sentence: str = ""

    def short(self) -> str:
        """The record in a few words, for prose."""
        title = self.record.title
        cut = title if len(title) <= 70 else title[:70].rsplit(" ", 1)[0] + " …"
        return f"“{cut}”, {self.record.year}" if self.record.year else f"“{cut}”"


@dataclass(frozen=True)
class Reading:
    """Counts behind the rules' scores.

    `pairs` are the hypothesis's pairs of parts, `together[i]` the records that mention both;
    `seen` counts records that mention at least two parts, and half of those that mention one (they
    show that the index knows the field, so that a gap in it means something); `degree` counts, per
    part, the other parts it was seen with: its degree in the retrieved co-mention graph.
    """

    parts: tuple[str, ...]
    frequency: tuple[int, ...]
    pairs: tuple[tuple[str, str], ...]
    together: tuple[int, ...]
    degree: tuple[int, ...]
    seen: float
    nearest: tuple[Nearest, ...]
    denials: tuple[Nearest, ...]
    refutations: tuple[Nearest, ...]

    @property
    def unseen_share(self) -> float:
        """Share of pairs that no retrieved record mentions together."""
        return sum(count == 0 for count in self.together) / max(1, len(self.together))

    @property
    def closest(self) -> float:
        """How much of the hypothesis the nearest prior claim covers, in [0, 1]."""
        return self.nearest[0].overlap if self.nearest else 0.0

    @property
    def weight(self) -> float:
        """How far the literature seen carries the reading, in [0, 1)."""
        return self.seen / (self.seen + _HALF_SEEN)

    def unseen_pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs that no retrieved record mentions together."""
        return tuple(
            pair for pair, count in zip(self.pairs, self.together, strict=True) if count == 0
        )


def read(
    expanded: ExpandedHypothesis,
    records: Sequence[CitedRecord],
    ontology: Ontology | None = None,
) -> Reading:
    """Count co-mentions, order prior claims by overlap, and find denying sentences.

    A part is mentioned when it or a synonym occurs as whole words. Parts weigh by rarity among
    the retrieved records, 1 / (1 + ln(1 + n)): "bladder cancer" in every record tells little. A
    record's overlap is the mean of the weighted share of parts it mentions and the weighted share
    of the statement's words it holds.
    """
    parts = expanded.parts or (expanded.hypothesis.statement,)
    names = [synonyms(part, ontology) for part in parts]
    keys = [phrase_key(cited.record.body) for cited in records]
    has = [[mentions(key, name) for name in names] for key in keys]
    frequency = tuple(sum(row[i] for row in has) for i in range(len(parts)))
    weights = [1.0 / (1.0 + math.log1p(count)) for count in frequency]
    vocabulary = [frozenset(words(cited.record.body)) for cited in records]
    claimed = _claimed_words(expanded.hypothesis.statement, vocabulary)

    opposes = Opposition(expanded.hypothesis, ontology)
    near: list[Nearest] = []
    denials: list[Nearest] = []
    refutations: list[Nearest] = []
    for cited, row, held in zip(records, has, vocabulary, strict=True):
        share = _share(row, weights)
        overlap = (share + _contained(claimed, held)) / 2.0
        covered = tuple(part for part, hit in zip(parts, row, strict=True) if hit)
        near.append(Nearest(cited.ref, cited.record, overlap, covered))
        denial = _denial(cited, names, weights, parts, opposes)
        if denial is not None:
            denials.append(denial)
            if _REFUTATION.search(denial.sentence):
                refutations.append(denial)
        if cited.record.retracted and overlap >= NEAR:
            mark = "The record is retracted."
            refutations.append(Nearest(cited.ref, cited.record, overlap, covered, mark))
    pairs = tuple(combinations(range(len(parts)), 2))
    together = tuple(sum(row[i] and row[j] for row in has) for i, j in pairs)
    linked = [pair for pair, count in zip(pairs, together, strict=True) if count]
    order = sorted(near, key=lambda nearest: -nearest.overlap)
    return Reading(
        parts=tuple(parts),
        frequency=frequency,
        pairs=tuple((parts[i], parts[j]) for i, j in pairs),
        together=together,
        degree=tuple(sum(i in pair for pair in linked) for i in range(len(parts))),
        seen=sum(1.0 if sum(row) >= min(2, len(parts)) else 0.5 * any(row) for row in has),
        nearest=tuple(
            nearest for nearest in order if not nearest.record.retracted and nearest.overlap > 0.0
        ),
        denials=tuple(sorted(denials, key=lambda denial: -denial.overlap)),
        refutations=tuple(sorted(refutations, key=lambda refutation: -refutation.overlap)),
    )


def _denial(
    cited: CitedRecord,
    names: Sequence[tuple[str, ...]],
    weights: Sequence[float],
    parts: Sequence[str],
    opposes: Opposition,
) -> Nearest | None:
    """The record's denying or opposing sentence that covers most of the hypothesis."""
    best: Nearest | None = None
    record = cited.record
    for text in (record.title, *record.snippets, record.abstract):
        for sentence in _SENTENCE.split(text):
            if not (_DENIAL.search(sentence) or opposes(sentence)):
                continue
            key = phrase_key(sentence)
            row = [mentions(key, name) for name in names]
            # A sentence that denies three of four parts denies the claim, however rare the fourth.
            share = max(_share(row, weights), sum(row) / len(parts))
            if sum(row) < min(2, len(parts)) or (best is not None and share <= best.overlap):
                continue
            covered = tuple(part for part, hit in zip(parts, row, strict=True) if hit)
            best = Nearest(cited.ref, record, share, covered, sentence.strip())
    return best


def _share(row: Sequence[bool], weights: Sequence[float]) -> float:
    total = sum(weights)
    held = sum(weight for hit, weight in zip(row, weights, strict=True) if hit)
    return held / total if total else 0.0


def _claimed_words(statement: str, vocabulary: Sequence[frozenset[str]]) -> dict[str, float]:
    """The statement's words, weighted by rarity among the retrieved records."""
    return {
        word: 1.0 / (1.0 + math.log1p(sum(word in held for held in vocabulary)))
        for word in dict.fromkeys(words(statement))
    }


def _contained(claimed: dict[str, float], held: frozenset[str]) -> float:
    total = sum(claimed.values())
    return sum(weight for word, weight in claimed.items() if word in held) / total if total else 0.0
