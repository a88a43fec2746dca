"""The `rules` extractor: lexicon and patterns, no model.

Per sentence: find mentions and relation phrases; give each phrase the coordinated group of mentions
that is its subject and its object, minding voice, relative clauses and shared subjects; then read
modifiers (`low X`, `X knockdown`, `shorter survival`) into polarity, and negation and speculation
into flags. `was not associated` is kept as a negated statement, never as an edge that affirms.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from kg.corpus.chunks import Chunk
from kg.corpus.textnorm import sentences
from kg.extract import cues, groups, syntax
from kg.extract.base import MIN_CONFIDENCE, Emit, Extraction, Mention, Statement
from kg.extract.mentions import MentionFinder
from kg.extract.syntax import Trigger, TriggerFinder
from kg.lexicon.index import Lexicon
from kg.lexicon.ontology import Ontology
from kg.types import EntityType, Polarity

VERSION = "10"
PARALLEL_FROM = 1_500_000  # characters; below, starting processes costs more than it saves

_OPPOSITE = {
    "promotes": "inhibits",
    "inhibits": "promotes",
    "activates": "inhibits",
    "upregulates": "downregulates",
    "downregulates": "upregulates",
    "correlates_with": "correlates_negatively_with",
    "correlates_negatively_with": "correlates_with",
    "prolongs": "shortens",
    "shortens": "prolongs",
    "overexpressed_in": "underexpressed_in",
    "underexpressed_in": "overexpressed_in",
    "sensitizes_to": "confers_resistance_to",
    "confers_resistance_to": "sensitizes_to",
}
_IN = frozenset({"overexpressed_in", "underexpressed_in", "expressed_in", "mutated_in"})
# Relations between things, not between amounts of them.
_PLAIN = frozenset({"binds", "targets", "target_of", "contains", "secretes", "treats"})
# Nothing is expressed `in` a treatment or an outcome.
_NO_PLACE = frozenset({EntityType.TREATMENT, EntityType.CLINICAL_ENDPOINT, EntityType.ALGORITHM})
_CAUSAL = frozenset({"promotes", "inhibits", "upregulates", "downregulates", "activates"})
_INSTRUMENTS = frozenset({EntityType.ALGORITHM, EntityType.IMAGING_FEATURE})
# What may `identify` or `mark` something in the sense of predicting it.
_FINDERS = frozenset({EntityType.ALGORITHM, EntityType.SIGNATURE, EntityType.IMAGING_FEATURE})
_FINDS = re.compile(r"(?:identif|detect|mark(?:s|ed|ing)?\b(?! of)|separat|discriminat)", re.I)
_NEVER = frozenset({EntityType.COHORT, EntityType.ORGANISM, EntityType.STAINING_METHOD})
_CONTEXT = frozenset({EntityType.DISEASE})
_POLARITY = {1: Polarity.POSITIVE, -1: Polarity.NEGATIVE, 0: Polarity.NEUTRAL}
_VALUE = {Polarity.POSITIVE: 1, Polarity.NEGATIVE: -1, Polarity.NEUTRAL: 0}


def _of_outcomes(trigger: Trigger) -> bool:
    """Whether an outcome may be the head: it correlates, but causes and predicts nothing."""
    return trigger.relation.canonical in {"correlates_with", "correlates_negatively_with"}


_worker: RulesExtractor | None = None


def _start_worker(ontology: Ontology, lexicons: tuple[Lexicon, ...]) -> None:
    global _worker
    _worker = RulesExtractor(ontology, lexicons)


def _read_batch(chunks: Sequence[Chunk]) -> list[Extraction]:
    assert _worker is not None
    return [_worker.read(chunk) for chunk in chunks]


_ADVERSE_GRADE = re.compile(r"grades? ?[≥>]? ?\d.{0,40}(?:adverse|toxicit)", re.IGNORECASE)


_PLAIN_WORD = re.compile(r"(?<![\w-])[a-z]{2,}(?![\w-])")


def _prose(sentence: str) -> bool:
    """Whether this is a sentence, not a table row or a run of labels from a page."""
    if len(sentence) > 900:
        return False
    plain = len(_PLAIN_WORD.findall(sentence))
    return plain >= 3 or plain >= 0.25 * len(sentence.split())


class RulesExtractor:
    """Extracts statements with an ontology, optional imported lexicons, and rules."""

    name = "rules"

    def __init__(
        self, ontology: Ontology, lexicons: Sequence[Lexicon] = (), workers: int = 1
    ) -> None:
        self._workers = workers
        self._lexicons = tuple(lexicons)
        self._ontology = ontology
        self.mentions = MentionFinder(ontology, lexicons)
        self._triggers = TriggerFinder(ontology)
        digest = hashlib.sha256(VERSION.encode())
        for entry in ontology.entries():
            digest.update(repr((entry.id, entry.name, entry.type, entry.synonyms)).encode())
        for relation in ontology.relations():
            digest.update(repr(relation).encode())
        digest.update(repr(ontology.homonyms.readings).encode())
        for lexicon in lexicons:
            digest.update(lexicon.digest.encode())
        self._key = f"rules-{VERSION}-{digest.hexdigest()[:16]}"

    @property
    def key(self) -> str:
        """Version of the rules and hash of ontology and lexicons."""
        return self._key

    def extract(self, chunks: Sequence[Chunk], emit: Emit) -> None:
        """Emit one extraction per chunk; long corpora are shared between worker processes."""
        if self._workers < 2 or sum(len(chunk.text) for chunk in chunks) < PARALLEL_FROM:
            for chunk in chunks:
                emit(chunk, self.read(chunk))
            return
        size = 64
        batches = [chunks[at : at + size] for at in range(0, len(chunks), size)]
        with ProcessPoolExecutor(
            self._workers,
            mp_context=get_context("forkserver"),
            initializer=_start_worker,
            initargs=(self._ontology, self._lexicons),
        ) as pool:
            for batch, results in zip(batches, pool.map(_read_batch, batches), strict=True):
                for chunk, result in zip(batch, results, strict=True):
                    emit(chunk, result)

    def read(self, chunk: Chunk) -> Extraction:
        """Statements and mentions of one chunk."""
        result = Extraction()
        result.mentions = self.mentions.find(chunk.text, chunk.abbreviations)
        for start, end in sentences(chunk.text):
            inside = [
                Mention(m.start - start, m.end - start, m.name, m.type, m.entity_id)
                for m in result.mentions
                if start <= m.start and m.end <= end
            ]
            for statement in self.read_sentence(chunk.text[start:end], inside):
                confidence = statement.confidence - (0.1 if chunk.weak else 0.0)
                if confidence < MIN_CONFIDENCE:
                    result.drop("confidence below 0.5")
                    continue
                result.statements.append(
                    statement.model_copy(
                        update={"start": start, "end": end, "confidence": round(confidence, 3)}
                    )
                )
        return result

    def read_sentence(self, sentence: str, mentions: Sequence[Mention]) -> list[Statement]:
        """Statements of one sentence, given its mentions."""
        mentions = [m for m in mentions if not _ADVERSE_GRADE.match(sentence[m.start :])]
        if len({m.name for m in mentions}) < 2 or not _prose(sentence):
            return []
        found: dict[tuple[str, str, str], Statement] = {}
        subjects: list[Mention] = []
        triggers = self._triggers.find(sentence, mentions)
        for index, trigger in enumerate(triggers):
            previous = triggers[index - 1].end if index else 0
            following = triggers[index + 1].start if index + 1 < len(triggers) else len(sentence)
            heads, tails = self._arguments(
                sentence, mentions, trigger, previous, following, subjects
            )
            if heads and not tails and trigger.text.endswith("each other"):
                heads, tails = heads[:1], heads[1:]
            if heads and not trigger.passive:
                subjects = heads
            if not heads or not tails:
                continue
            for statement in self._combine(sentence, mentions, trigger, heads, tails, previous):
                key = (statement.head, statement.tail, statement.relation)
                if key not in found or statement.confidence > found[key].confidence:
                    found[key] = statement
        return list(found.values())

    def _arguments(
        self,
        sentence: str,
        mentions: Sequence[Mention],
        trigger: Trigger,
        previous: int,
        following: int,
        subjects: list[Mention],
    ) -> tuple[list[Mention], list[Mention]]:
        """Heads and tails of a trigger, as groups of coordinated mentions."""
        low, high = syntax.clause_bounds(sentence, trigger.start, trigger.end)
        usable = [m for m in mentions if not syntax.in_parentheses(sentence, m)]
        left = [m for m in usable if low <= m.start and m.end <= trigger.start]
        right = [m for m in usable if trigger.end <= m.start and m.end <= high]
        left, right = syntax.heads_of(sentence, left), syntax.heads_of(sentence, right)
        between = [m for m in left if m.start >= previous]
        if trigger.relative and between:
            heads = groups.group_before(sentence, between)
        elif trigger.continues and subjects:
            heads = subjects
        elif between and previous > low:
            heads = groups.subject_after(sentence, between)
        elif left and previous <= low:
            heads = groups.subject(sentence, left, low)
        else:
            heads = subjects if previous > low else []
        limit = following if groups.starts_new(sentence, following, right) else high
        tails = groups.object_group(sentence, [m for m in right if m.start < limit], trigger)
        if trigger.passive:
            heads, tails = tails, heads
        return heads, tails

    def _combine(
        self,
        sentence: str,
        mentions: Sequence[Mention],
        trigger: Trigger,
        heads: list[Mention],
        tails: list[Mention],
        previous: int,
    ) -> list[Statement]:
        first = min(m.end for m in (*heads, *tails))
        span_start = max(previous, min(first, trigger.start))
        before = sentence[span_start : trigger.start]
        low, high = syntax.clause_bounds(sentence, trigger.start, trigger.end)
        opening = sentence[low : min(m.start for m in heads) if heads else low]
        asked = cues.INDIRECT.search(sentence[: trigger.start])
        examined = cues.EXAMINED.search(sentence[trigger.end : high])
        if asked or examined or cues.INQUIRY.search(sentence[low : trigger.end]):
            return []
        scope = cues.PSEUDO.sub(" ", before + " " + trigger.text)
        negated = bool(cues.NEGATION.search(scope)) or bool(
            re.match(r"\s*(?:-\s*)?no(?:ne of| \w+)?\b", opening, re.IGNORECASE)
        )
        speculative = bool(cues.SPECULATION.search(before + trigger.text))
        head_signs = groups.signs_of(sentence, heads, low)
        tail_signs = groups.signs_of(sentence, tails, min(trigger.end, tails[0].start))
        statements = []
        for head, head_sign in zip(heads, head_signs, strict=True):
            for tail, tail_sign in zip(tails, tail_signs, strict=True):
                if head.name == tail.name or head.type in _NEVER or tail.type in _NEVER:
                    continue
                if head.type == EntityType.CLINICAL_ENDPOINT and not _of_outcomes(trigger):
                    continue
                if _FINDS.match(trigger.text) and head.type not in _FINDERS:
                    continue  # `we identified`: a method, not a prediction
                if trigger.relation.canonical in _IN and tail.type in _NO_PLACE:
                    continue
                if trigger.relation.canonical in _CAUSAL and head.type in _INSTRUMENTS:
                    continue  # a model does not cause an outcome
                item = bool(cues.NEGATED_ITEM.search(sentence[trigger.end : tail.start]))
                statements.append(
                    _statement(
                        trigger,
                        head,
                        head_sign,
                        tail,
                        tail_sign,
                        negated or item,
                        speculative,
                        len(sentence),
                    )
                )
        statements += self._in_context(sentence, mentions, trigger, statements)
        return statements

    def _in_context(
        self,
        sentence: str,
        mentions: Sequence[Mention],
        trigger: Trigger,
        statements: list[Statement],
    ) -> list[Statement]:
        """`X is associated with survival in D` also says that X is prognostic in D."""
        diseases = [
            m
            for m in mentions
            if m.type in _CONTEXT
            and m.start > trigger.end
            and not syntax.in_parentheses(sentence, m)
            and re.search(r"\bin (?:\w+ ){0,2}$", sentence[: m.start])
        ]
        if not diseases:
            return []
        disease = diseases[0]
        extra = []
        for base in statements:
            if base.tail == disease.name or base.head == disease.name:
                continue
            prognostic = base.tail_type == EntityType.CLINICAL_ENDPOINT
            if base.head_type == EntityType.DISEASE:
                continue
            if not prognostic and base.negated:
                continue
            extra.append(
                base.model_copy(
                    update={
                        "relation": "prognostic_in" if prognostic else "acts_in",
                        "tail": disease.name,
                        "tail_type": disease.type,
                        "polarity": Polarity.NEUTRAL,
                        "confidence": round(base.confidence - 0.1, 3),
                    }
                )
            )
        return extra


def _statement(
    trigger: Trigger,
    head: Mention,
    head_sign: int,
    tail: Mention,
    tail_sign: int,
    negated: bool,
    speculative: bool,
    length: int,
) -> Statement:
    relation = trigger.relation
    value = _VALUE[relation.polarity]
    canonical = relation.canonical
    vague = canonical in {"predicts", "associated_with"} and tail_sign == 0
    if vague and tail.type == EntityType.CLINICAL_ENDPOINT:
        value = 0  # `associated with survival` does not say in which direction
    if canonical in _PLAIN:
        head_sign = tail_sign = 0
    if canonical in _IN:
        tail_sign = 0  # `overexpressed in high-grade tumors` is about the gene
    value *= (head_sign or 1) * (tail_sign or 1)
    if head_sign < 0 and canonical in _OPPOSITE:
        canonical = _OPPOSITE[canonical]
    confidence = 0.85
    if speculative:
        confidence -= 0.15
    if relation.precedence >= 50:
        confidence -= 0.05
    if length > 350:
        confidence -= 0.1
    return Statement(
        head=head.name,
        head_type=head.type,
        relation_text=trigger.text,
        relation=canonical,
        tail=tail.name,
        tail_type=tail.type,
        confidence=round(confidence, 3),
        polarity=Polarity.NEUTRAL if negated else _POLARITY[value],
        negated=negated,
        speculative=speculative,
        start=0,
        end=length,
    )
