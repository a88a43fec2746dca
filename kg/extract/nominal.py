"""Relations in noun phrases: `inhibition of X by Y`, `Y-induced X`, `X secretion by Y`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kg.extract.base import Mention
from kg.extract.phrases import is_governed, is_head
from kg.types import EntityType

#: Nouns of action with the verb that an ontology of relations knows.
VERBS = {
    "inhibition": "inhibit",
    "suppression": "suppress",
    "repression": "repress",
    "blockade": "block",
    "activation": "activate",
    "induction": "induce",
    "stimulation": "stimulate",
    "upregulation": "upregulate",
    "up-regulation": "upregulate",
    "downregulation": "downregulate",
    "down-regulation": "downregulate",
    "phosphorylation": "phosphorylate",
    "regulation": "regulate",
    "modulation": "modulate",
    "recruitment": "recruit",
    "secretion": "secrete",
    "production": "produce",
}
_NOUN = "|".join(sorted(VERBS, key=len, reverse=True))
_ACTION_BEFORE = re.compile(
    rf"\b({_NOUN}) of (?:(?:the|both|human|basal|cellular|expression|activity) )*(?:of )?$", re.I
)
_ACTION_AFTER = re.compile(rf"\s(?:expression |protein |mRNA |gene )?({_NOUN}) by (?:the )?$", re.I)
_BY = re.compile(
    r"(?: (?:expression|signal?ling|activity|activation|pathway|protein))* by (?:the )?$"
)
_COMPOUND = re.compile(
    r"\s?(?:\([^()]*\))?[-–](induced|mediated|driven|dependent|triggered|associated|related|evoked"
    r"|stimulated|provoked)\s(?:(?:acute|chronic|severe|early|late|human|murine|toxic|fatal|transient"
    r"|delayed|sustained|fulminant|reversible|experimental) )*$"
)
_COMPOUND_VERBS = {"associated": "associated with", "related": "associated with"}
_DENIED = re.compile(r"\b(?:no|not|without|non|never|lack of|absence of)[\s-](?:\w+ ){0,2}$", re.I)
_CAUSED = frozenset({EntityType.DISEASE, EntityType.CLINICAL_ENDPOINT})


@dataclass(frozen=True, slots=True)
class Nominal:
    """Relation in a noun phrase: head, tail, the equivalent verb, and the word in the text."""

    head: Mention
    tail: Mention
    verb: str
    text: str


def nominals(sentence: str, mentions: Sequence[Mention]) -> Iterator[Nominal]:
    """Yield the relations that noun phrases state between neighboring mentions."""
    for first, second in pairwise(mentions):
        between = sentence[first.end : second.start]
        if _DENIED.search(sentence[: first.start]):
            continue
        action = _ACTION_BEFORE.search(sentence[: first.start])
        if (action and _BY.fullmatch(between)) or (action := _ACTION_AFTER.fullmatch(between)):
            if is_head(sentence, second, len(sentence)):
                yield Nominal(second, first, VERBS[action.group(1).lower()], action.group(1))
        elif (compound := _COMPOUND.fullmatch(between)) and not is_governed(sentence, first, 0):
            word = compound.group(1)
            verb = _COMPOUND_VERBS.get(word, "induce")
            if second.type in _CAUSED or is_head(sentence, second, len(sentence)):
                yield Nominal(first, second, verb, word)
