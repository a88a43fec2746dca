"""Novelty of a hypothesis from co-mentions in the retrieved literature, without a model.

This is a proxy. It counts the parts of the hypothesis that occur together, measures the
similarity of the nearest prior claim, and finds sentences that deny the hypothesis. It
does not follow arguments, as the report states.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from agents.core.types import ExpandedHypothesis
from agents.novelty.direction import Opposition
from agents.novelty.parts import Part, body_key, not_looked_for, parts_of
from agents.novelty.types import CitedRecord, JudgePosition, Turn, VerifierPosition
from kg.lexicon.ontology import Ontology
from kg.literature.cancers import list_other_cancers
from kg.literature.text import phrase_key, words
from kg.literature.types import MissingSource, Record
from sage.core.printable import quote_text

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
_ASIDE = re.compile(r"\([^()]*\)")
_MARKED = re.compile(r"\([^()]*\bnegative finding\b[^()]*\)", re.IGNORECASE)
"""Pattern for a note's own marker; other bracketed text concerns other findings."""
_PROGNOSIS = re.compile(r"\b(prognos\w+|outcomes?)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")

NEAR = 0.6
"""Share of the hypothesis (weighted by rarity) that a prior claim must cover to count as near."""

_HALF_SEEN = 4.0
"""Number of relevant records at which the evidence weighs as much as the critic's prior."""


def denies(sentence: str) -> bool:
    """Check whether a sentence reports a negative finding outside its parenthetical remarks."""
    return bool(_DENIAL.search(_ASIDE.sub(" ", sentence)) or _MARKED.search(sentence))


@dataclass(frozen=True)
class Nearest:
    """A record and its coverage of the hypothesis; for denials, also the sentence.

    `met` gives the related term used in the record for each of `parts` that is not named
    directly; `whole` is False for a sentence that omits an exposure in the claim or mentions
    its outcome only as prognosis.
    """

    ref: str
    record: Record
    overlap: float
    parts: tuple[str, ...]
    sentence: str = ""
    met: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True

    def list_parts(self) -> str:
        """List the parts that the record names, for use in a sentence."""
        return ", ".join(
            f"{part} (counted for it: {self.met[part]})" if part in self.met else f"{part}"
            for part in self.parts
        )

    def short(self) -> str:
        """Describe the record in a few words, for use in a sentence."""
        title = self.record.title
        cut = title if len(title) <= 70 else title[:70].rsplit(" ", 1)[0] + " …"
        return f"{quote_text(cut)}, {self.record.year}" if self.record.year else quote_text(cut)


@dataclass(frozen=True)
class Reading:
    """Counts on which the rules' scores are based.

    `pairs` are all pairs of the hypothesis's parts, and `together[i]` are the records that
    mention both; `several` counts records that mention at least two parts, and `single` those
    that mention one; `degree` gives, for each part, the number of other parts it occurs with,
    that is, its degree in the retrieved co-mention graph. `denials` are sentences that
    contradict the claim and concern one of its exposures, its outcome and its disease;
    `negatives` are negative findings that cover only some of these; `kin` names the related
    terms counted in place of a part; `unlooked` is the claim's population if no search
    covered it; `aside` counts records in which a part was ignored because it occurs only in a
    bracketed remark on other reports.
    """

    parts: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    together: tuple[int, ...]
    degree: tuple[int, ...]
    several: int
    single: int
    nearest: tuple[Nearest, ...]
    denials: tuple[Nearest, ...]
    refutations: tuple[Nearest, ...]
    negatives: tuple[Nearest, ...] = ()
    kin: tuple[tuple[str, str], ...] = ()
    unlooked: str = ""
    aside: int = 0

    def names_of_nearest(self) -> str:
        """Describe the nearest prior claim and the parts that it names, for use in a sentence."""
        if not self.nearest or not self.nearest[0].parts:
            return "no part of the claim was found in a retrieved record"
        near = self.nearest[0]
        count = "all" if len(near.parts) == len(self.parts) else f"{len(near.parts)} of"
        return (
            f"the nearest record, {near.short()}, mentions {count} {len(self.parts)} parts of "
            f"the claim: {near.list_parts()}{self.describe_unsearched()}"
        )

    def describe_unsearched(self) -> str:
        """Describe the part of the claim that was not searched for; empty if everything was."""
        return f" (not searched for: {self.unlooked})" if self.unlooked else ""

    @property
    def unseen_share(self) -> float:
        """Share of pairs that no retrieved record mentions together."""
        return sum(count == 0 for count in self.together) / max(1, len(self.together))

    @property
    def closest(self) -> float:
        """Largest share of the hypothesis that a prior claim covers, in [0, 1]."""
        return max((near.overlap for near in self.nearest), default=0.0)

    @property
    def weight(self) -> float:
        """Weight of the evidence by the amount of literature seen, in [0, 1).

        A record that mentions a single part counts half: it shows that the index covers the
        field, so that a gap in the index is informative.
        """
        seen = self.several + self.single / 2.0
        return seen / (seen + _HALF_SEEN)

    def unseen_pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs that no retrieved record mentions together."""
        return tuple(
            pair for pair, count in zip(self.pairs, self.together, strict=True) if count == 0
        )


def count_mentions(
    expanded: ExpandedHypothesis,
    records: Sequence[CitedRecord],
    ontology: Ontology | None = None,
) -> Reading:
    """Count co-mentions, order prior claims by the parts they name, and find denying sentences.

    A part is mentioned when it, a synonym or a related term occurs as whole words, or if
    words with the same stems occur near each other; denials are matched only by names and
    related terms. Parts are weighted by their rarity among the retrieved records, 1 / (1 +
    ln(1 + n)): "bladder cancer" in every record carries little information. A record's
    overlap is the mean of two weighted shares: the parts it mentions, and the words in the
    statement that it contains.
    """
    parts = parts_of(expanded, ontology)
    keys = [body_key(cited.record) for cited in records]
    met = [[part.find_mention(key, loose=True) for part in parts] for key in keys]
    has = [[name is not None for name in row] for row in met]
    whole = [body_key(cited.record, whole=True) for cited in records]
    aside = [[part.find_mention(key, loose=True) is not None for part in parts] for key in whole]
    frequency = tuple(sum(row[i] for row in has) for i in range(len(parts)))
    weights = [1.0 / (1.0 + math.log1p(count)) for count in frequency]
    vocabulary = [frozenset(words(cited.record.body)) for cited in records]
    claimed = _claimed_words(expanded.hypothesis.statement, vocabulary)

    denying = _Denying(expanded, parts, weights, ontology)
    near: list[Nearest] = []
    denials: list[Nearest] = []
    negatives: list[Nearest] = []
    refutations: list[Nearest] = []
    for cited, named, row, held in zip(records, met, has, vocabulary, strict=True):
        overlap = (_share(row, weights) + _contained(claimed, held)) / 2.0
        found = _nearest(cited, overlap, parts, named)
        near.append(found)
        denial, negative = denying(cited)
        if denial is not None:
            denials.append(denial)
            if _REFUTATION.search(denial.sentence):
                refutations.append(denial)
        elif negative is not None:
            negatives.append(negative)
        if cited.record.retracted and overlap >= NEAR:
            refutations.append(replace(found, sentence="The record is retracted."))
    pairs = tuple(combinations(range(len(parts)), 2))
    together = tuple(sum(row[i] and row[j] for row in has) for i, j in pairs)
    linked = [pair for pair, count in zip(pairs, together, strict=True) if count]
    enough = min(2, len(parts))
    subjects = {part.name for part in parts if part.role == "subject"}

    def place(record: Nearest) -> tuple[int, int, float]:
        # Among records that name as many parts, those on disease and outcome alone are less near.
        return -len(record.parts), -len(subjects & set(record.parts)), -record.overlap

    return Reading(
        parts=tuple(part.name for part in parts),
        pairs=tuple((parts[i].name, parts[j].name) for i, j in pairs),
        together=together,
        degree=tuple(sum(i in pair for pair in linked) for i in range(len(parts))),
        several=sum(sum(row) >= enough for row in has),
        single=sum(0 < sum(row) < enough for row in has),
        nearest=tuple(
            nearest
            for nearest in sorted(near, key=place)
            if not nearest.record.retracted and nearest.overlap > 0.0
        ),
        denials=_most_first(denials),
        refutations=_most_first(refutations),
        negatives=_most_first(negatives),
        kin=tuple(dict.fromkeys(pair for record in near for pair in record.met.items())),
        unlooked=not_looked_for(expanded),
        aside=sum(row != own for row, own in zip(aside, has, strict=True)),
    )


def _most_first(found: Sequence[Nearest]) -> tuple[Nearest, ...]:
    return tuple(sorted(found, key=lambda record: -record.overlap))


def _nearest(
    cited: CitedRecord, overlap: float, parts: Sequence[Part], named: Sequence[str | None]
) -> Nearest:
    pairs = [(part.name, name) for part, name in zip(parts, named, strict=True) if name is not None]
    return Nearest(
        cited.ref,
        cited.record,
        overlap,
        tuple(part for part, _ in pairs),
        met={part: name for part, name in pairs if name != part},
    )


class _Denying:
    """Finder of sentences that deny most of a claim or report a negative finding about it."""

    def __init__(
        self,
        expanded: ExpandedHypothesis,
        parts: Sequence[Part],
        weights: Sequence[float],
        ontology: Ontology | None,
    ) -> None:
        self._parts = parts
        self._weights = weights
        self._ontology = ontology
        self._opposes = Opposition(expanded.hypothesis, ontology)

    def __call__(self, cited: CitedRecord) -> tuple[Nearest | None, Nearest | None]:
        """Return the sentence against the claim, and the negative finding about parts of it."""
        against: Nearest | None = None
        partial: Nearest | None = None
        record = cited.record
        body = body_key(record)
        for text in (record.title, *record.snippets, record.abstract):
            for sentence in _SENTENCE.split(text):
                found = self._negative(cited, sentence)
                if found is None:
                    continue
                if self._on_the_claim(sentence, body):
                    if against is None or found.overlap > against.overlap:
                        against = found
                elif partial is None or found.overlap > partial.overlap:
                    partial = found
        return against, partial

    def _negative(self, cited: CitedRecord, sentence: str) -> Nearest | None:
        """Find a sentence that denies or contradicts the claim for an exposure and another part."""
        plain = _ASIDE.sub(" ", sentence)
        if not self._opposes(plain) and (not denies(sentence) or self._opposes.agrees(plain)):
            return None
        key = phrase_key(plain)
        named = [part.find_mention(key) for part in self._parts]
        row = [name is not None for name in named]
        subjects = [
            hit for hit, part in zip(row, self._parts, strict=True) if part.role == "subject"
        ]
        if (subjects and not any(subjects)) or sum(row) < min(2, len(row)):
            return None
        # A sentence that denies three of four parts denies the claim, however rare the fourth.
        share = max(_share(row, self._weights), sum(row) / len(row))
        found = _nearest(cited, share, self._parts, named)
        # "Better prognosis" is related to the claim's outcome, but is not a finding on it.
        outcomes = [
            hit for hit, part in zip(row, self._parts, strict=True) if part.role == "outcome"
        ]
        whole = (all(subjects) or not self._opposes.has_direction) and (
            not outcomes or any(outcomes)
        )
        return replace(found, sentence=sentence.strip(), whole=whole)

    def _on_the_claim(self, sentence: str, body: str) -> bool:
        """Check whether the sentence concerns the claim's outcome in the claim's disease."""
        plain = _ASIDE.sub(" ", sentence)
        # "Predicts disease-free survival but not progression-free survival" denies the latter.
        denied = re.split(r"\bbut not\b", plain)[-1]
        outcomes = [part for part in self._parts if part.role == "outcome"]
        if outcomes and not _PROGNOSIS.search(denied):
            key = phrase_key(denied)
            if not any(part.find_mention(key) for part in outcomes):
                return False
        return all(
            self._in_the_disease(plain, body, part)
            for part in self._parts
            if part.role == "disease"
        )

    def _in_the_disease(self, sentence: str, body: str, disease: Part) -> bool:
        """Check whether the sentence, or otherwise its record, concerns only the given disease."""
        if disease.find_mention(phrase_key(sentence)):
            return True
        if self._ontology and list_other_cancers(sentence, disease.name, self._ontology):
            return False
        return disease.find_mention(body) is not None


def _share(row: Sequence[bool], weights: Sequence[float]) -> float:
    total = sum(weights)
    held = sum(weight for hit, weight in zip(row, weights, strict=True) if hit)
    return held / total if total else 0.0


def _claimed_words(statement: str, vocabulary: Sequence[frozenset[str]]) -> dict[str, float]:
    """Weight the statement's words by their rarity among the retrieved records."""
    return {
        word: 1.0 / (1.0 + math.log1p(sum(word in held for held in vocabulary)))
        for word in dict.fromkeys(words(statement))
    }


def _contained(claimed: dict[str, float], held: frozenset[str]) -> float:
    total = sum(claimed.values())
    return sum(weight for word, weight in claimed.items() if word in held) / total if total else 0.0


def score_of(novelty: float, weight: float, prior: float) -> float:
    """Map a novelty in [0, 1] to [1, 10], shrunk to the critic's prior if evidence is scarce.

    `weight` in [0, 1] is the weight of the evidence by the literature seen
    (`Reading.weight`).
    """
    blended = weight * novelty + (1.0 - weight) * prior
    return 1.0 + 9.0 * min(1.0, max(0.0, blended))


def confidence(seen: Reading, missing: Sequence[MissingSource]) -> float:
    """Compute the confidence: 0.1 to 0.9, rising with records, 10% less per missing source."""
    return round((0.1 + 0.8 * seen.weight) * 0.9 ** len(missing), 4)


def score_after_objections(debate: Sequence[Turn]) -> float | None:
    """Return the judge's last score if the verifier's last answers object, else None."""
    answers = [turn.position for turn in debate if isinstance(turn.position, VerifierPosition)]
    verdicts = [turn.position for turn in debate if isinstance(turn.position, JudgePosition)]
    if not answers or not verdicts:
        return None
    objected = any(answer.verdict != "stands" for answer in answers[-1].answers)
    return verdicts[-1].score if objected else None
