"""The `rules` extractor, which uses a lexicon and patterns but no language model.

For each sentence, the extractor finds mentions and relation phrases. It assigns each
phrase the coordinated groups of mentions that are its subject and object, considering
voice, relative clauses and shared subjects. It then converts modifiers (`low X`, `X
knockdown`, `shorter survival`) to polarity, and negation and speculation to flags. A
phrase such as `was not associated` is kept as a negated statement, never as an affirmed
edge.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from kg.corpus.chunks import Chunk
from kg.corpus.textnorm import sentences
from kg.extract import cues, groups, phrases, syntax
from kg.extract.base import Emit, Extraction, Mention, Statement
from kg.extract.mentions import MentionFinder
from kg.extract.nominal import nominals
from kg.extract.probability import KEPT, SHOWN, Reading, Side, Signs
from kg.extract.prose import is_prose, quoted_matter
from kg.extract.related import BROAD, Meeting, score_pairs
from kg.extract.syntax import Trigger, TriggerFinder
from kg.lexicon.index import Lexicon
from kg.lexicon.ontology import Ontology
from kg.types import EntityType, Polarity

VERSION = "20"
BELOW = "probability below the threshold"
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
_TELLS = frozenset({"associated_with", "correlates_with", "correlates_negatively_with", "predicts"})
# Allowed text between the last argument and `in D`: no new clause and no denial.
_SETTING_OF = re.compile(
    r"(?:(?!\b(?:without|not|no|but|which|that|while|whereas|and|than)\b)[^;:.])*", re.IGNORECASE
)
_CAUSAL = frozenset({"promotes", "inhibits", "upregulates", "downregulates", "activates"})
_INSTRUMENTS = frozenset({EntityType.ALGORITHM, EntityType.IMAGING_FEATURE})
# Entities that may `identify` or `mark` something in the sense of predicting it.
_FINDERS = frozenset({EntityType.ALGORITHM, EntityType.SIGNATURE, EntityType.IMAGING_FEATURE})
_FINDS = re.compile(r"(?:identif|detect|mark(?:s|ed|ing)?\b(?! of)|separat|discriminat)", re.I)
_REMEDIES = frozenset({EntityType.TREATMENT, EntityType.CHEMICAL, EntityType.CELL_TYPE})
_TREATED = frozenset({EntityType.DISEASE, EntityType.CLINICAL_FACTOR})
# `increases bladder cancer`, `induces torsade de pointes`: nothing is expressed there.
_HARMED = frozenset({EntityType.DISEASE, EntityType.CLINICAL_ENDPOINT})
_AS_CAUSE = {
    "upregulates": "promotes", "activates": "promotes", "secretes": "promotes",
    "downregulates": "inhibits",
}  # fmt: skip
# `by limiting Y` refers to the clause's subject, wherever that is.
_BY_DOING = re.compile(
    r"\b(?:by|through|via|for|of|while|when|without|after|before)\s+(?:\w+ly\s+)?\w+ing$"
)
_OPENS = re.compile(r"(?:(?:\band|,|\bbut|\bor|\bas)\s+(?:[\w-]+\s){0,2}|\bthat\s+)$")
# A relational noun: its argument is right before it, not at the start of the clause.
_NOMINAL = re.compile(
    r"(?:\w+ion|\w+ment|effects?|impacts?|influence|links?|markers?|biomarkers?|role|increase|"
    r"decrease|complex|overexpression)s?\b(?! to be)",
    re.IGNORECASE,
)
# `enhanced or weakened`: neither is stated.
_TURNED = re.compile(r"\s+(?:or|and/or) (?:\w+(?:ed|s)|not)\b(?=.*\brespectively)", re.IGNORECASE)
_COMMA_ALONE = re.compile(r"(?: \w+)?(?:\s*\([^()]*\))?,\s*(?:\w+ly\s+)?")
# Without it (`MYC expression, increased in tumors, promotes X`) nothing is listed.
_EARLIER_VERB = re.compile(r"(?<![\w-])(?:\w{3,}ed|had|has|have|shows?|led)\b(?!-)")
_NONE = re.compile(r"\s*(?:-\s*)?(?:no(?:ne of| \w+)?\b|neither (?:\w+ ){0,2}$)", re.IGNORECASE)
_OR_BASE = re.compile(r"\bor (?:\w+ly )?\w+(?<!ed)(?<![^s]s)(?: \w+)?$")
_JOINED = re.compile(r"(?:[\s,]|and|or|\w+ly|also|then|thereby|thus)*")  # `activates and raises X`
_BIBLIOGRAPHY = re.compile(r"^(?:references?|bibliography|literature cited)\b", re.IGNORECASE)
_NOT_CAUSES = frozenset(
    {EntityType.COHORT, EntityType.ORGANISM, EntityType.STAINING_METHOD, EntityType.ALGORITHM,
     EntityType.CLINICAL_ENDPOINT, EntityType.IMAGING_FEATURE}
)  # fmt: skip
_NEVER = frozenset({EntityType.COHORT, EntityType.ORGANISM, EntityType.STAINING_METHOD})
_CONTEXT = frozenset({EntityType.DISEASE})
_POLARITY = {1: Polarity.POSITIVE, -1: Polarity.NEGATIVE, 0: Polarity.NEUTRAL}
_VALUE = {Polarity.POSITIVE: 1, Polarity.NEGATIVE: -1, Polarity.NEUTRAL: 0}


def _of_outcomes(trigger: Trigger) -> bool:
    """Check whether an outcome may be the head; outcomes correlate but do not cause or predict."""
    return trigger.relation.canonical in {"correlates_with", "correlates_negatively_with"}


_worker: RulesExtractor | None = None


def _start_worker(ontology: Ontology, lexicons: tuple[Lexicon, ...], broad: bool) -> None:
    global _worker
    _worker = RulesExtractor(ontology, lexicons, broad=broad)


def _read_batch(chunks: Sequence[Chunk]) -> list[Extraction]:
    assert _worker is not None
    return [_worker.read_chunk(chunk) for chunk in chunks]


def _unsaid(sentence: str, trigger: Trigger, low: int, high: int, before: str) -> bool:
    """Check whether the sentence only questions, examines, intends or assumes the relation."""
    return bool(
        cues.INDIRECT.search(sentence[: trigger.start])
        or cues.EXAMINED.search(sentence[trigger.end : high])
        or cues.INQUIRY.search(sentence[low : trigger.end])
        or _TURNED.match(sentence[trigger.end :])
        or cues.SUFFICIENT.search(before)
        or cues.PURPOSE.search(sentence[: trigger.start])
        or cues.CONDITION.search(sentence[: trigger.start])
    )


def _fits(trigger: Trigger, head: Mention, head_sign: int, tail: Mention) -> bool:
    """Check whether the relation may connect entities of these types."""
    relation = trigger.relation.canonical
    if head.type in _NEVER or tail.type in _NEVER:
        return False
    if head.type == EntityType.CLINICAL_ENDPOINT and not _of_outcomes(trigger):
        return False
    if _FINDS.match(trigger.text) and head.type not in _FINDERS:
        return False  # `we identified`: a method, not a prediction
    if relation in _IN and tail.type in _NO_PLACE:
        return False
    if relation in _CAUSAL and head.type in _INSTRUMENTS:
        return False  # a model does not cause an outcome
    return relation != "treats" or (
        head_sign >= 0 and head.type in _REMEDIES and tail.type in _TREATED
    )


class RulesExtractor:
    """Extractor that uses an ontology, optional imported lexicons, and rules."""

    name = "rules"

    def __init__(
        self,
        ontology: Ontology,
        lexicons: Sequence[Lexicon] = (),
        workers: int = 1,
        *,
        broad: bool = False,
    ) -> None:
        self._workers = workers
        self.threshold = BROAD if broad else KEPT
        self.shown = BROAD if broad else SHOWN
        self._broad = broad
        self._lexicons = tuple(lexicons)
        self._ontology = ontology
        self.mentions = MentionFinder(ontology, lexicons)
        self._triggers = TriggerFinder(ontology)
        digest = hashlib.sha256(f"{VERSION}:{self.threshold}".encode())
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
        """Version of the rules and hash of the ontology and lexicons."""
        return self._key

    def extract(self, chunks: Sequence[Chunk], emit: Emit) -> None:
        """Emit an extraction per chunk; distribute large corpora over worker processes."""
        if self._workers < 2 or sum(len(chunk.text) for chunk in chunks) < PARALLEL_FROM:
            for chunk in chunks:
                emit(chunk, self.read_chunk(chunk))
            return
        size = 64
        batches = [chunks[at : at + size] for at in range(0, len(chunks), size)]
        with ProcessPoolExecutor(
            self._workers,
            mp_context=get_context("forkserver"),
            initializer=_start_worker,
            initargs=(self._ontology, self._lexicons, self._broad),
        ) as pool:
            for batch, results in zip(batches, pool.map(_read_batch, batches), strict=True):
                for chunk, result in zip(batch, results, strict=True):
                    emit(chunk, result)

    def read_chunk(self, chunk: Chunk) -> Extraction:
        """Extract the statements and mentions of a chunk."""
        result = Extraction()
        result.mentions = self.mentions.find(chunk.text, chunk.abbreviations)
        if _BIBLIOGRAPHY.search(chunk.section):
            return result
        for statement in self.read_text(chunk.text, result.mentions):
            confidence = round(statement.confidence - (0.1 if chunk.weak else 0.0), 3)
            if confidence < self.threshold:
                result.drop(BELOW)
                continue
            result.statements.append(statement.model_copy(update={"confidence": confidence}))
        return result

    def read_text(self, text: str, mentions: Sequence[Mention]) -> list[Statement]:
        """Extract the statements of a passage with their probabilities, including unlikely ones.

        With `broad`, every pair of entities in a sentence without a connecting relation phrase
        also yields a statement of association, with the probability that the pair is related at
        all.
        """
        spans = list(sentences(text))
        quoted = list(quoted_matter(text, spans))
        mentions = [m for m in mentions if not any(a <= m.start < b for a, b in quoted)]
        found: list[Statement] = []
        joined = set()
        for start, end in spans:
            inside = [
                Mention(m.start - start, m.end - start, m.name, m.type, m.entity_id)
                for m in mentions
                if start <= m.start and m.end <= end
            ]
            for statement in self.read_sentence(text[start:end], inside):
                if statement.confidence >= self.threshold:
                    joined.add(frozenset({statement.head, statement.tail}))
                found.append(statement.model_copy(update={"start": start, "end": end}))
        if self._broad:
            for pair, met, probability in score_pairs(text, spans, mentions):
                if frozenset(pair) not in joined:
                    found.append(_co_mentioned(text, spans, met, probability))
        return found

    def read_sentence(self, sentence: str, mentions: Sequence[Mention]) -> list[Statement]:
        """Extract the statements from a sentence, given its mentions."""
        return [reading.statement for reading in self.readings(sentence, mentions)]

    def readings(self, sentence: str, mentions: Sequence[Mention]) -> list[Reading]:
        """Extract the statements from a sentence with the evidence for their probabilities."""
        mentions = [m for m in mentions if m.type != EntityType.ORGANISM]
        if len({m.name for m in mentions}) < 2 or not is_prose(sentence):
            return []
        found: dict[tuple[str, str, str], Reading] = {}
        subjects = Side((), ())
        triggers = self._triggers.find(sentence, mentions)
        for index, trigger in enumerate(triggers):
            previous = triggers[index - 1].end if index else 0
            following = triggers[index + 1].start if index + 1 < len(triggers) else len(sentence)
            left, right = self._arguments(
                sentence, mentions, trigger, previous, following, subjects
            )
            if left and not trigger.passive:
                subjects = left
            if trigger.passive:
                left, right = right, left
            if left.mentions and not right.mentions and trigger.text.endswith("each other"):
                left, right = left.split()
            if not left or not right:
                continue
            for reading in self._combine(sentence, mentions, trigger, left, right, previous):
                statement = reading.statement
                key = (statement.head, statement.tail, statement.relation)
                if key not in found or statement.confidence > found[key].statement.confidence:
                    found[key] = reading
        for reading in self._nominal(sentence, mentions):
            said = reading.statement
            found.setdefault((said.head, said.tail, said.relation), reading)
        return list(found.values())

    def _nominal(self, sentence: str, mentions: Sequence[Mention]) -> Iterator[Reading]:
        """Extract the statements from noun phrases: `inhibition of X by Y`, `Y-induced X`."""
        for phrase in nominals(sentence, mentions):
            head, tail = phrase.head, phrase.tail
            if head.name == tail.name or head.type in _NOT_CAUSES or tail.type in _NEVER:
                continue
            words = Trigger(
                0, 0, self._ontology.relation(phrase.verb), phrase.text, False, False, False
            )
            low = min(head.start, tail.start)
            statement = _statement(
                words, head, 0, tail, 0, False,
                bool(cues.SPECULATION.search(sentence[max(0, low - 60) : low])), len(sentence),
            )  # fmt: skip
            evidence = Signs(
                subject=True,
                object=True,
                relation=statement.relation,
                words_before=0,
                words_after=0,
                members=1,
                length=len(sentence.split()),
            )
            yield Reading(
                statement.model_copy(update={"confidence": evidence.probability()}),
                evidence,
                max(head.end, tail.end),
            )

    def _arguments(
        self,
        sentence: str,
        mentions: Sequence[Mention],
        trigger: Trigger,
        previous: int,
        following: int,
        subjects: Side,
    ) -> tuple[Side, Side]:
        """Find the coordinated mentions to the left and right of a trigger."""
        low, high = syntax.clause_bounds(sentence, trigger.start, trigger.end)
        usable = [m for m in mentions if not syntax.in_parentheses(sentence, m)]
        left = [m for m in usable if low <= m.start and m.end <= trigger.start]
        right = [m for m in usable if trigger.end <= m.start and m.end <= high]
        left, right = syntax.heads_of(sentence, left), syntax.heads_of(sentence, right)
        before = self._subject(sentence, mentions, trigger, previous, left, low, subjects)
        limit = following if groups.starts_new(sentence, following, right) else high
        after = [mention for mention in right if mention.start < limit]
        return before, self._object(sentence, after, trigger, following)

    def _subject(
        self,
        sentence: str,
        mentions: Sequence[Mention],
        trigger: Trigger,
        previous: int,
        left: list[Mention],
        low: int,
        subjects: Side,
    ) -> Side:
        """Find the subjects of the trigger: its own, or those shared with an earlier verb."""
        between = [m for m in left if m.start >= previous]
        heads: list[Mention] = []
        shared = False
        if trigger.relative and between:
            heads = groups.group_before(sentence, between)
        elif trigger.continues and subjects:
            shared = True
        elif between and _is_next_verb(sentence, between[-1], trigger, low):
            pass
        elif between and previous > low:
            heads = groups.subject_after(sentence, between)
        elif left and previous <= low:
            heads = groups.subject(sentence, left, low)
        else:
            shared = previous > low
        if shared:
            carries = trigger.continues and not _NOMINAL.match(trigger.text)
            return Side(subjects.mentions, tuple(stands and carries for stands in subjects.stands))
        reached = [
            phrases.subject_reaches(
                sentence,
                mentions,
                head,
                trigger.start,
                adjacent=head.start >= previous > low and not trigger.relative,
            )
            and not self._triggers.verb_in(sentence[head.end : trigger.start])
            and (head.type == heads[-1].type or _is_list(sentence, head, heads[-1]))
            and not _BY_DOING.search(sentence[: trigger.end])
            and (head.start < previous or previous <= low or _opens(sentence, head, trigger))
            and phrases.is_head(sentence, head, trigger.start)
            and not phrases.is_governed(sentence, head, low)
            for head in heads
        ]
        return Side(tuple(heads), tuple(reached))

    def _object(
        self, sentence: str, right: list[Mention], trigger: Trigger, following: int
    ) -> Side:
        """Find the objects of the trigger."""
        place = trigger.relation.canonical in _IN
        tails = groups.object_group(sentence, right, trigger)
        joined = bool(_JOINED.fullmatch(sentence[trigger.end : following]))
        stands = []
        floor = trigger.end
        for tail in tails:
            stands.append(
                phrases.object_follows(sentence, trigger, tail, floor)
                and phrases.is_head(sentence, tail, len(sentence), place=place)
                and not phrases.is_governed(sentence, tail, floor)
                and (tail.start < following or joined)
            )
            floor = tail.end
        return Side(tuple(tails), tuple(stands))

    def _combine(
        self,
        sentence: str,
        mentions: Sequence[Mention],
        trigger: Trigger,
        heads: Side,
        tails: Side,
        previous: int,
    ) -> list[Reading]:
        first = min(m.end for m in (*heads.mentions, *tails.mentions))
        span_start = max(previous, min(first, trigger.start))
        low, high = syntax.clause_bounds(sentence, trigger.start, trigger.end)
        if trigger.continues and _OR_BASE.search(sentence[: trigger.end]):
            span_start = min(span_start, low)  # `did not inhibit A or induce B`
        before = sentence[span_start : trigger.start]
        if _unsaid(sentence, trigger, low, high, before):
            return []
        opening = sentence[low : min(m.start for m in heads.mentions)]
        scope = cues.PSEUDO.sub(" ", cues.EXCEPTED.sub(" ", before + " " + trigger.text))
        unproven = bool(cues.UNPROVEN.search(sentence[: trigger.end]))
        negated = unproven or bool(cues.NEGATION.search(scope)) or bool(_NONE.match(opening))
        speculative = unproven or bool(cues.SPECULATION.search(sentence[low : trigger.end]))
        floor = low if heads.mentions[0].start >= low else 0  # `... lowers A but raises B`
        head_signs = groups.signs_of(sentence, heads.mentions, floor)
        tail_signs = groups.signs_of(
            sentence, tails.mentions, min(trigger.end, tails.mentions[0].start)
        )
        found = []
        for head, head_ok, head_sign in zip(heads.mentions, heads.stands, head_signs, strict=True):
            for tail, tail_ok, tail_sign in zip(
                tails.mentions, tails.stands, tail_signs, strict=True
            ):
                if head.name == tail.name or not _fits(trigger, head, head_sign, tail):
                    continue
                item = any(_is_excepted(sentence, m, trigger, low) for m in (head, tail))
                statement = _statement(
                    trigger,
                    head,
                    head_sign,
                    tail,
                    tail_sign,
                    negated or item,
                    speculative,
                    len(sentence),
                )
                left, right = sorted((head, tail), key=lambda mention: mention.start)
                evidence = Signs(
                    subject=head_ok,
                    object=tail_ok,
                    relation=statement.relation,
                    words_before=len(sentence[left.end : trigger.start].split()),
                    words_after=len(sentence[trigger.end : right.start].split()),
                    members=len(heads.mentions) * len(tails.mentions),
                    length=len(sentence.split()),
                )
                found.append(
                    Reading(
                        statement.model_copy(update={"confidence": evidence.probability()}),
                        evidence,
                        max(trigger.end, right.end),
                    )
                )
        return found + self._in_context(sentence, mentions, trigger, found)

    def _in_context(
        self,
        sentence: str,
        mentions: Sequence[Mention],
        trigger: Trigger,
        readings: list[Reading],
    ) -> list[Reading]:
        """Derive statements about a disease that is the setting of other statements.

        `X is associated with survival in D` also states that X is prognostic in D.
        """
        diseases = [
            m
            for m in mentions
            if m.type in _CONTEXT
            and m.start > trigger.end
            and not syntax.in_parentheses(sentence, m)
            and re.search(r"\bin (?:\w+ ){0,2}$", sentence[trigger.end : m.start])
            and phrases.is_head(sentence, m, len(sentence), place=True)
        ]
        if not diseases:
            return []
        disease = diseases[0]
        extra = []
        for reading in readings:
            base = reading.statement
            if base.tail == disease.name or base.head == disease.name:
                continue
            prognostic = base.tail_type == EntityType.CLINICAL_ENDPOINT and base.relation in _TELLS
            if not _SETTING_OF.fullmatch(sentence[reading.end : disease.start]):
                continue
            if base.head_type == EntityType.DISEASE:
                continue
            if not prognostic and base.negated:
                continue
            evidence = replace(
                reading.evidence, relation="prognostic_in" if prognostic else "acts_in"
            )
            extra.append(
                Reading(
                    base.model_copy(
                        update={
                            "relation": evidence.relation,
                            "tail": disease.name,
                            "tail_type": disease.type,
                            "polarity": Polarity.NEUTRAL,
                            "confidence": evidence.probability(),
                        }
                    ),
                    evidence,
                    reading.end,
                )
            )
        return extra


def _is_next_verb(sentence: str, last: Mention, trigger: Trigger, low: int) -> bool:
    """Check whether the verb is part of a list whose subject precedes the last mention.

    In `treated cells showed more proliferation, stimulated angiogenesis, and ...`,
    "proliferation" is not the subject of "stimulated": a single comma never separates a
    subject from its verb.
    """
    if trigger.passive or trigger.relative or trigger.text.endswith("ing"):
        return False
    opening, gap = sentence[low : last.start], sentence[last.end : trigger.start]
    verb = "," not in opening and _EARLIER_VERB.search(opening)
    return bool(verb and _COMMA_ALONE.fullmatch(gap))


def _is_list(sentence: str, head: Mention, last: Mention) -> bool:
    """Check whether entities of different types form a list, as in `B cells and TLS`."""
    return bool(re.search(r"\b(?:and|or)\b", sentence[head.end : last.start]))


def _opens(sentence: str, head: Mention, trigger: Trigger) -> bool:
    """Check whether a mention after another verb may be a subject, not that verb's object."""
    reduced = trigger.passive or trigger.relative or trigger.text.split()[0].endswith(("ed", "ing"))
    return reduced or bool(_OPENS.search(sentence[: head.start]))


def _is_excepted(sentence: str, mention: Mention, trigger: Trigger, low: int) -> bool:
    """Check whether the mention is in the denied part of a list (`A, but not B and C, predict`)."""
    if mention.start >= trigger.end:
        return bool(cues.NEGATED_ITEM.search(sentence[trigger.end : mention.start]))
    return bool(cues.BUT_NOT.search(sentence[low : mention.start]))


def _co_mentioned(
    text: str, spans: Sequence[tuple[int, int]], met: Sequence[Meeting], probability: float
) -> Statement:
    """Build an association from the related-pair model, citing the closest joint occurrence."""
    nearest = min(met, key=lambda meeting: len(meeting.between))
    start, end = spans[nearest.sentence]
    return Statement(
        head=nearest.first.name,
        head_type=nearest.first.type,
        relation_text=nearest.between.strip() or text[nearest.first.start : nearest.second.end],
        relation="associated_with",
        tail=nearest.second.name,
        tail_type=nearest.second.type,
        confidence=round(probability, 3),
        start=start,
        end=end,
    )


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
    if canonical in _IN or canonical in cues.MAKES_UP:
        tail_sign = 0  # `overexpressed in high-grade tumors` is about the gene
    value *= (head_sign or 1) * (tail_sign or 1)
    if (head_sign or 1) * (tail_sign or 1) < 0 and canonical in _OPPOSITE:
        canonical = _OPPOSITE[canonical]
    if tail.type in _HARMED and canonical in _AS_CAUSE:
        canonical = _AS_CAUSE[canonical]
    return Statement(
        head=head.name,
        head_type=head.type,
        relation_text=trigger.text,
        relation=canonical,
        tail=tail.name,
        tail_type=tail.type,
        confidence=0.0,
        polarity=Polarity.NEUTRAL if negated else _POLARITY[value],
        negated=negated,
        speculative=speculative,
        start=0,
        end=length,
    )
