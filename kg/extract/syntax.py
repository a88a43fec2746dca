"""Shallow syntax of a sentence: triggers, their voice, and the groups of mentions around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kg.extract import cues
from kg.extract.base import Mention
from kg.ontology import Ontology, RelationEntry, inflected

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
    """Finds the relation phrases of an ontology in running text with one compiled pattern."""

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
            r"[\s-]+(?:\w+ly\s+)?".join(inflected(word) for word in words) for words in phrases
        ]
        self._pattern = re.compile(rf"\b(?:{'|'.join(alternatives)})\b", re.IGNORECASE)
        self._relation = lru_cache(maxsize=4096)(ontology.relation)

    def find(self, sentence: str, mentions: Sequence[Mention]) -> list[Trigger]:
        """Triggers outside mentions and parentheses, in order."""
        blocked = [(m.start, m.end) for m in mentions]
        blocked += [match.span() for match in _PARENS.finditer(sentence)]
        ends = {m.end for m in mentions}
        found: list[Trigger] = []
        for match in self._pattern.finditer(sentence):
            start, end = match.span()
            if any(start < b and a < end for a, b in blocked):
                continue
            trigger = self._read(sentence, start, end, ends, bool(found))
            if trigger is not None:
                found.append(trigger)
        return found

    def _read(
        self, sentence: str, start: int, end: int, ends: set[int], after: bool
    ) -> Trigger | None:
        text = sentence[start:end]
        before = sentence[:start]
        word = text.split()[0].lower()
        be = bool(_BE.search(before))
        by = bool(re.match(r"\s+(?:\w+ly\s+)?by\b", sentence[end:]))
        single = len(re.split(r"[\s-]+", text.strip())) == 1
        stripped = re.sub(r"(?:[\s,]*\b(?:\w+ly|also|then|further|not))*[\s,]*(?:\([^()]*\))?\s*$",
                          "", before)  # fmt: skip
        after_mention = len(stripped) in ends or len(before.rstrip()) in ends
        passive = False
        if single:
            if word.endswith("ed") or word in {"driven", "bound", "led", "given"}:
                if by:
                    passive = True
                elif (
                    be
                    or (not after_mention and not _SUBJECT_NOUN.search(before))
                    or re.search(r"\b(?:with|of|a|the|by|to|show|shows|and|or)\s+$", before)
                ):
                    return None
            elif word.endswith("ion"):
                return None
            elif word.endswith("ing"):
                if not re.search(r"(?:\bby|,|\band|\bthus|\bthereby|\bthrough|\bwhile)\s+(?:\w+ly\s+)?$",
                                 before):  # fmt: skip
                    return None
            elif _DETERMINER.search(before) and not before.rstrip().endswith(" that"):
                return None
        relation = self._relation(text)
        tail = before.rstrip()
        continues = after and bool(
            re.search(r"(?:\b(?:and|or|but|by|thus|thereby|then|also|through)|,)(?:\s+\w+ly|\s+not"
                      r"|\s+may|\s+is|\s+are|\s+was|\s+were|\s+also|\s+has|\s+can)*$", tail)
        )  # fmt: skip
        relative = bool(re.search(r",?\s*\b(?:which|that|who)(?:\s+\w+){0,2}$", tail))
        return Trigger(start, end, relation, text, passive, continues and not relative, relative)


def clause_bounds(sentence: str, start: int, end: int) -> tuple[int, int]:
    """The clause around `start:end`; boundaries inside parentheses do not count."""
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
    """Whether the mention stands inside parentheses."""
    return any(
        match.start() < mention.start and mention.end < match.end()
        for match in _PARENS.finditer(sentence)
    )


def coordinated(sentence: str, left: Mention, right: Mention) -> bool:
    """Whether two neighboring mentions are joined as a list (`A, B and C`, `A/B`)."""
    between = _PARENS.sub(" ", sentence[left.end : right.start])
    if len(between) > 60 or re.search(r"\b(?:in|of|on|from|by|to|than|versus)\b", between, re.I):
        # `of`, `in` and the like subordinate, except `with X and with Y` forms.
        if not re.match(r"^[\s,]*(?:and|or|but also|and also)\s+(?:of|by|to|with)\s", between):
            return False
    if not re.search(r"[,/&+]|\b(?:and|or|plus|as well as)\b|^-$", between):
        return False
    return bool(cues.COORDINATION.match(between))


def setting(sentence: str, mention: Mention, floor: int = 0) -> bool:
    """Whether a preposition makes the mention the setting (`in bladder cancer`)."""
    return bool(cues.SETTING.search(sentence[floor : mention.start]))


def sign(sentence: str, mention: Mention, floor: int) -> int:
    """+1, -1 or 0 for the modifiers of a mention: `low X`, `loss of X`, `X knockdown`, `shorter X`."""
    surface = cues.WORDS.findall(sentence[mention.start : mention.end].lower())
    if surface and surface[0].split("-")[0] in {"high", "advanced", "late", "higher"}:
        return 1
    if surface and surface[0].split("-")[0] in {"low", "early", "lower"}:
        return -1
    words = cues.WORDS.findall(sentence[max(floor, mention.start - 60) : mention.start].lower())
    for word in reversed(words[-4:]):
        if word in cues.DOWN or word in cues.LOSS:
            return -1
        if word in cues.UP:
            return 1
        if word in {"in", "with", "by", "and", "or", "than", "on", "from", "is", "are", "was"}:
            break
    after = cues.WORDS.findall(sentence[mention.end : mention.end + 45].lower())
    if after and after[0] in cues.LOSS:
        return -1
    if len(after) > 1 and after[0] in {"gene", "protein", "expression", "mrna"}:
        if after[1] in cues.LOSS:
            return -1
    if after and after[0] in {"overexpression", "upregulation", "amplification"}:
        return 1
    return 0
