"""Shallow syntax of sentences: triggers, their voice, and the mentions around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kg.extract import cues
from kg.extract.base import Mention
from kg.lexicon.ontology import Ontology, RelationEntry, inflected
from kg.lexicon.wordlist import words
from kg.types import EntityType

_BE = re.compile(
    r"\b(?:is|are|was|were|been|being|be|gets?|became)\s+(?:[\w-]+ly\s+|also\s+|not\s+)*$"
)
_DETERMINER = re.compile(
    r"\b(?:the|a|an|of|in|this|that|no|for|with|by|under|as|its|their|these|those|each|any|per|on|"
    r"versus|vs|from|at|into|novel|new|therapeutic|potential|molecular|drug|validated|rational|"
    r"main|chief|normal|healthy|negative|quality|local|disease|tumou?r|case)\s+$",
    re.IGNORECASE,
)
_SUBJECT_NOUN = re.compile(
    r"\b(?:expression|levels?|knockdown|knockout|treatment|activity|cells?|proteins?|depletion|"
    r"overexpression|deficiency|loss|deletion|silencing|inhibition|activation|signall?ing|pathway|"
    r"mutations?|alterations?|infiltration|density|score|inhibitors?|mice|axis|therapy|tumou?rs?|"
    r"which|that|also|has|have|had|and|or|but|significantly|strongly|markedly|directly|independently"
    r"|positively|effectively|then|alone|\w+ly|[A-Z0-9]+|it|we|they|thus|to|not|may|can|could|might"
    r"|both|each)[\s,]+$"
)
_CLAUSE = re.compile(
    r"(?:;|:|\.\s|—|\b(?:whereas|while|although|though|because|since|however|but (?!not\b|also\b)|"
    r"unlike|where|when|if|so(?: that)?)\b)",
    re.IGNORECASE,
)
# `control of`, `target in`: a noun.
_NOUN_AFTER = re.compile(r"\s+(?:of\b|for\b|group\b)")
_MOVES = re.compile(
    r"(increase[sd]?|rises?|rose|decrease[sd]?|declined?s?|drop(?:s|ped)?) (with|in|from)\b"
)
_POSSESSIVE = re.compile(r"\b(?:its|their|his|her|our)\s+(?:\w+\s+)?$", re.IGNORECASE)
# Base forms that are nouns more often than verbs, unless something verbal stands before them.
_NOUNS = words(
    "target parallel mark link complex influence control release cause rescue limit block lead "
    "result support increase decrease mediate effect impact bound"
)
_BEFORE_VERB = re.compile(
    r"\b(?:to|can|may|could|might|will|would|not|also|both|and|or|which|that|who|they|we|it|\w+ly|"
    r"do|does|did|cells|genes|proteins|levels|mutations|alterations|inhibitors|signals)\s+$"
)
_PARENS = re.compile(r"\([^()]*\)")


@dataclass(frozen=True, slots=True)
class Trigger:
    """A relation phrase in a sentence."""

    start: int
    end: int
    relation: RelationEntry
    text: str
    passive: bool
    continues: bool  # shares the subject of the trigger before it
    relative: bool  # `, which drives`: the nearest group is the subject


class TriggerFinder:
    """Finder of an ontology's relation phrases in running text, using a compiled pattern."""

    def __init__(self, ontology: Ontology) -> None:
        self._ontology = ontology
        phrases = []
        for relation in ontology.relations():
            for pattern in relation.patterns:
                words = [
                    w for w in pattern.split() if w not in {"is", "are", "a", "an", "the", "be"}
                ]
                phrases.append(words)
        phrases.sort(key=lambda words: (-len(words), -len(" ".join(words))))
        alternatives = [
            r"[\s-]+(?:\w+ly\s+|at (?:the )?\w+ levels? )?".join(inflected(word) for word in words)
            for words in phrases
        ]
        self._pattern = re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)
        self._relation = lru_cache(maxsize=4096)(ontology.relation)

    def occurs(self, text: str) -> bool:
        """Check whether any relation phrase occurs in `text`, as a verb or otherwise."""
        return bool(self._pattern.search(text))

    def verb_in(self, text: str) -> bool:
        """Check whether `text` contains a relation verb in the past tense or third person."""
        return any(
            match.group().split()[0].lower().endswith(("ed", "s"))
            for match in self._pattern.finditer(text)
        )

    def find(self, sentence: str, mentions: Sequence[Mention]) -> list[Trigger]:
        """Find the triggers outside mentions and parentheses, in order."""
        blocked = [(m.start, m.end) for m in mentions]
        blocked += [match.span() for match in _PARENS.finditer(sentence)]
        ends = {m.end for m in mentions}
        found: list[Trigger] = []
        for match in self._pattern.finditer(sentence):
            start, end = match.span()
            if any(start < b and a < end for a, b in blocked):
                continue
            trigger = self._make_trigger(sentence, start, end, ends, found[-1] if found else None)
            if trigger is not None:
                found.append(trigger)
        return found

    def _make_trigger(
        self, sentence: str, start: int, end: int, ends: set[int], last: Trigger | None
    ) -> Trigger | None:
        text = sentence[start:end]
        before, rest = sentence[:start], sentence[end : end + 12]
        if before.endswith("-") or rest.startswith("-") or _POSSESSIVE.search(before):
            return None
        word = text.split()[0].lower()
        after_mention = len(_ADVERBS.sub("", before)) in ends or len(before.rstrip()) in ends
        single = len(re.split(r"[\s-]+", text.strip())) == 1
        if word == "phosphorylated" and before.rstrip().endswith(","):
            return None
        passive = single and _is_participle(word) and bool(_BY.match(sentence[end:]))
        verb = passive or _single_word_is_verb(word, before, rest, after_mention)
        if single and not verb and not _parallel(word, before, last):
            return None
        if word == "lower" and (
            (not after_mention and _ADJECTIVE_AFTER.search(before)) or _BE.search(before)
        ):
            return None
        moved = _MOVES.match(f"{word} {rest.strip()}")
        if moved and moved.group(2) == "from":
            return None
        relation = self._relation(_moved_phrase(moved) if moved else _LEVELS.sub("", text))
        tail = before.rstrip()
        pronoun = _RELATIVE.search(tail)
        relative = pronoun is not None and not any(pronoun.start() < at <= start for at in ends)
        continues = last is not None and not relative and bool(_CONTINUES.search(tail))
        return Trigger(start, end, relation, text, passive, continues, relative)


def _single_word_is_verb(word: str, before: str, rest: str, after_mention: bool) -> bool:
    """Check whether a single-word trigger that is not passive is the verb of its clause.

    `rest` is the text after the trigger; `after_mention` indicates whether an entity directly
    precedes it.
    """
    if _is_participle(word):
        if (
            _BE.search(before)
            or (not after_mention and not _SUBJECT_NOUN.search(before))
            or _NO_SUBJECT.search(before)
        ):
            return False
    elif word.endswith("ion"):
        return False
    elif word.endswith("ing"):
        if not _BEFORE_ING.search(before):
            return False
    elif _DETERMINER.search(before) and not before.rstrip().endswith(" that"):
        return False
    if word.endswith(("or", "ors")) and not rest.startswith((" of", " between", " for", " in")):
        return False
    if word in _NOUNS and not after_mention and not _BEFORE_VERB.search(before):
        return False
    return not _NOUN_AFTER.match(rest) or word.endswith(("ing", "or", "ed"))


def _parallel(word: str, before: str, last: Trigger | None) -> bool:
    """Check whether a past form after `and` is parallel to an earlier verb (`raised A and cut B`).

    Participles that also describe states do not count, because `induced B cells and activated T
    cells` may be a list.
    """
    return (
        word.endswith("ed")
        and word not in _ALSO_STATES
        and last is not None
        and last.text.isalpha()
        and last.text.endswith("ed")
        and not last.passive
        and bool(_AND.search(before))
    )


def _is_participle(word: str) -> bool:
    return word.endswith("ed") or word in {"driven", "bound", "given"}


def _moved_phrase(moved: re.Match[str]) -> str:
    """Return the relation phrase equivalent to "rises with", "falls in" and the like."""
    up = moved.group(1).startswith(("increas", "ris", "rose"))
    if moved.group(2) == "with":
        return "correlate positively with" if up else "correlate negatively with"
    return "increased in" if up else "decreased in"


_AND = re.compile(r"\band\s+$")
_ALSO_STATES = frozenset({"activated", "phosphorylated", "mutated", "targeted"})
_BY = re.compile(r"\s+(?:\w+ly\s+)?by\b")
_LEVELS = re.compile(r" at (?:the )?\w+ levels?")
_ADVERBS = re.compile(r"(?:[\s,]*\b(?:\w+ly|also|then|further|not))*[\s,]*(?:\([^()]*\))?\s*$")
# `of leukocytes, especially activated T cells`: an adjective of the noun that follows.
_NO_SUBJECT = re.compile(
    r"(?:\b(?:with|of|a|the|by|to|show|shows|and|or|namely|including|and especially)"
    r"|, (?:especially|particularly|notably|mainly|mostly|primarily|predominantly|chiefly"
    r"|specifically))\s+$"
)
_CONTINUES = re.compile(
    r"(?:\b(?:and|or|but|by|thus|thereby|then|also|through)|,)(?:\s+\w+ly|\s+not"
    r"|\s+may|\s+is|\s+are|\s+was|\s+were|\s+also|\s+has|\s+can)*$"
)
_RELATIVE = re.compile(r",?\s*\b(?:which|that|who)(?:\s+\w+){0,2}$")
_BEFORE_ING = re.compile(r"(?:\b(?:by|and|thus|thereby|through|while)|,)\s+(?:\w+ly\s+)?$")
_ADJECTIVE_AFTER = re.compile(r"\b(?:have|has|had|shows?|with|of|at|and|or|in)\s+$")
_SUBORDINATE = re.compile(r"\b(?:in|of|on|from|by|to|than|versus)\b", re.IGNORECASE)
_ED = re.compile(r"(?<![\w-])\w{3,}ed\b(?!-)")
_NEW_CLAUSE = re.compile(
    r"\b(?:which|that|who|is|are|was|were|has|have|had|can|may|after|when|while|whereas|"
    r"(?<!but )not)\b",
    re.I,
)
_PREDICATE = re.compile(
    r"^\s*(?:\([^()]*\)\s*)?(?:(?:expression|levels?|mRNA|protein|cells?|mutations?)\s+)?"
    r"(?:is|are|was|were|has|have|had|can|may|does|do|did)\b"
)


def starts_predicate(sentence: str, mention: Mention) -> bool:
    """Check whether a verb directly follows, making the mention the subject of a new clause."""
    return bool(_PREDICATE.match(sentence[mention.end :]))


def clause_bounds(sentence: str, start: int, end: int) -> tuple[int, int]:
    """Find the bounds of the clause around `start:end`, ignoring any inside parentheses."""
    masked = _PARENS.sub(lambda m: " " * len(m.group()), sentence)
    left, right = 0, len(sentence)
    for match in _CLAUSE.finditer(masked):
        if match.end() <= start:
            left = match.end()
        elif match.start() >= end:
            right = match.start()
            break
    return left, right


def in_parentheses(sentence: str, mention: Mention) -> bool:
    """Check whether the mention is inside parentheses."""
    return any(
        match.start() < mention.start and mention.end < match.end()
        for match in _PARENS.finditer(sentence)
    )


def coordinated(sentence: str, left: Mention, right: Mention) -> bool:
    """Check whether two neighboring mentions are coordinated in a list (`A, B and C`, `A/B`)."""
    between = _PARENS.sub(" ", sentence[left.end : right.start])
    if _NEW_CLAUSE.search(between):
        return False
    if len(between) > 60 or _SUBORDINATE.search(between):
        return False
    if not re.search(r"[,/&+]|\b(?:and|or|plus|as well as|but not)\b|^-$", between):
        return False
    return bool(cues.COORDINATION.match(between))


def next_verb(between: str, trigger: Trigger) -> bool:
    """Check whether a second past-tense verb separates two objects (`reduced A and increased B`).

    After `associated with` and similar phrases, words such as `increased` are modifiers.
    """
    words = {word.lower() for word in _ED.findall(between)}
    verbs = trigger.text.isalpha() or trigger.text.endswith(
        " on"
    )  # `no effect on A and increased B`
    return bool(words if verbs else words - cues.UP - cues.DOWN - cues.LOSS)


def setting(sentence: str, mention: Mention, floor: int = 0) -> bool:
    """Check whether a preposition makes the mention a setting (`in bladder cancer`)."""
    return bool(cues.SETTING.search(sentence[floor : mention.start]))


# A state of the tumor: `FGFR3-mutated MIBC is enriched in ...` is about the mutation.
_STATES = frozenset({EntityType.MUTATION, EntityType.IMAGING_FEATURE, EntityType.SIGNATURE})


def _qualifier(sentence: str, mention: Mention) -> bool:
    rest = sentence[mention.end :]
    marker = rest[:1] in {"+", "⁺"}
    return bool(cues.QUALIFIER.match(rest)) and (not marker or mention.type == EntityType.GENE)


def heads_of(sentence: str, mentions: Sequence[Mention]) -> list[Mention]:
    """Select the mentions that are heads of their noun phrases, leaving out qualifiers.

    `iCAF-derived FGF2` is about FGF2, `TLS B cells` about B cells, `low-stroma MIBC` about stroma.
    """
    kept: list[Mention] = []
    dropped = -1
    for position, mention in enumerate(mentions):
        if position == dropped:
            continue
        following = mentions[position + 1] if position + 1 < len(mentions) else None
        if following is None:
            kept.append(mention)
            continue
        gap = sentence[mention.end : following.start]
        touching = gap in {" ", "-", "+ "}
        if touching and mention.type in _STATES and following.type == EntityType.DISEASE:
            kept.append(mention)
            dropped = position + 1
            continue
        qualifier = _qualifier(sentence, mention)
        if touching or qualifier:
            continue
        kept.append(mention)
    return kept


def sign(sentence: str, mention: Mention, floor: int) -> tuple[int, bool]:
    """Return the sign (+1, -1 or 0) of a mention's modifiers, and whether they express a judgment.

    `low X`, `loss of X` and `X knockdown` are -1, `longer survival` is +1; `better` and
    `poor` express judgments.
    """
    surface = cues.WORDS.findall(sentence[mention.start : mention.end].lower())
    first = surface[0].split("-")[0] if surface else ""
    if first in cues.STAGES and mention.type == EntityType.CLINICAL_FACTOR:
        return cues.STAGES[first], False
    if first in {"high", "higher"}:
        return 1, False
    if first in {"low", "lower"}:
        return -1, False
    words = cues.WORDS.findall(sentence[max(floor, mention.start - 60) : mention.start].lower())
    for word in reversed(words[-4:]):
        if word in cues.STAGES and mention.type == EntityType.CLINICAL_FACTOR:
            return cues.STAGES[word], False
        if word in {"inhibitor", "inhibitors", "antagonist", "antibody"} and word == words[-1]:
            break  # `the inhibitor p21` is p21
        if word in cues.DOWN or word in cues.LOSS:
            return -1, word in cues.JUDGMENT
        if word in cues.UP:
            return 1, word in cues.JUDGMENT
        if word in {"in", "with", "by", "and", "or", "than", "on", "from", "is", "are", "was"}:
            break
    after = cues.WORDS.findall(sentence[mention.end : mention.end + 45].lower())
    if after and after[0] in {"gene", "protein", "expression", "mrna"}:
        after = after[1:]
    if after and after[0] in cues.LOSS:
        return -1, False
    if after and after[0] in {"overexpression", "upregulation", "amplification"}:
        return 1, False
    return 0, False


def is_loss(sentence: str, mention: Mention) -> bool:
    """Check whether the mention itself ends in a word that means loss (`PD-L1 blockade`)."""
    words = cues.WORDS.findall(sentence[mention.start : mention.end].lower())
    return bool(words) and words[-1] in cues.LOSS
