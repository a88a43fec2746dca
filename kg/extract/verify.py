"""Verification that quotations support claims in entities, predicate, roles, sign and denial.

A language model may quote a real sentence for a fact that the sentence does not state. Each claim
is checked against its own quotation by the rules of this package. Claims that fail are dropped and
counted by reason; the grounding rate of a build is the share that passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from kg.corpus.textnorm import sentences
from kg.extract import cues, syntax
from kg.extract.base import Mention
from kg.extract.mentions import acted_on, names_agent
from kg.lexicon.names import Names
from kg.lexicon.ontology import Ontology
from kg.lexicon.wordlist import words as word_set
from kg.types import EntityType, Polarity

#: Reasons why a claim is not grounded in its quotation.
NOT_QUOTED = "evidence not in the chunk"
NO_CLAUSE = "evidence is less than a clause"
NO_HEAD = "head is not in the evidence"
NO_TAIL = "tail is not in the evidence"
NO_RELATION = "relation is not in the evidence"
NOT_STATED = "evidence asks or plans, but states nothing"
DENIED = "denial differs from the evidence"
REVERSED = "roles are reversed"
SIGN = "sign differs from the evidence"
STRONGER = "relation is stronger than the evidence"
APART = "head and tail are not joined by the relation"
UNGROUNDED = frozenset(
    {NOT_QUOTED, NO_CLAUSE, NO_HEAD, NO_TAIL, NO_RELATION, NOT_STATED, DENIED, REVERSED, SIGN,
     STRONGER, APART}
)  # fmt: skip

MIN_WORDS = 4
_SIGN = {Polarity.POSITIVE: 1, Polarity.NEGATIVE: -1, Polarity.NEUTRAL: 0}
_WORD = re.compile(r"\w+")
_PASSIVE = re.compile(r"^\s*(?:\w+ly\s+)?by\b")
_BY_PHRASE = re.compile(r"\bby$")
# Relations that only state that two entities are correlated.
_WEAK = frozenset(
    {"associated_with", "correlates_with", "correlates_negatively_with", "expressed_in",
     "not_different", "affects", "regulates", "prognostic_in", "acts_in", "predicts", "contains"}
)  # fmt: skip
_SYMMETRIC = frozenset(
    {"associated_with", "correlates_with", "correlates_negatively_with", "binds"}
)
_NEW_CLAUSE = re.compile(r";|\b(?:whereas|while|although|but (?!also\b|not\b))\b", re.IGNORECASE)
# `activates X in Y`: a thing, then a place; `an increase in Y` is about Y.
_WHERE = re.compile(
    r"\w.*(?<!\bincrease)(?<!\bdecrease)(?<!\breduction)(?<!\brise)(?<!\bdecline)(?<!\bloss)"
    r"(?<!\bfall)(?<!\bchanges)(?<!\bchange)(?<!\bincreases)(?<!\breductions)(?<!\balterations)"
    r" (?:in|within|among|across)(?: \w+(?: with| of)?){0,3} ?$"
)
# `unlike X`, `instead of X`, `without affecting X`.
_INSTEAD = re.compile(
    r"\b(?:unlike|instead of|rather than|in contrast to|as opposed to|other than|except(?: for)?"
    r"|without) (?:\w+ing )?(?:the )?$",
    re.IGNORECASE,
)
# `the X target Y promotes Z` is about Y.
_KIN = re.compile(r"[ -](?:target|ligand|substrate|partner|effector|homolog(?:ue)?)s? [A-Z]")
_PREVENTED = re.compile(
    r"\b(?:(?:prevent|stop|keep|protect|block)\w* (?:\S+ ){1,4}from|hardly|scarcely|barely"
    r"|(?:myth|wrong|false|untrue) that\b.*) ?$",
    re.IGNORECASE,
)
# `A is thought to promote B, but we ruled this out`; `claims that A drives B were not reproduced`.
_REFUTED = re.compile(
    r"\b(?:(?:not|never|n't) (?:be )?(?:reproduc|replicat|confirm|verif|upheld|borne out)\w*"
    r"|rul(?:ed|es?) (?:this|that|it) out|refuted|disprove[dn]|debunked"
    r"|(?:proved|proven|turned out|found)(?: to be)? (?:wrong|false|untrue))",
    re.IGNORECASE,
)
# `resistance to X` is not X.
_TOWARD = re.compile(
    r"\b(?:resistance|sensitivity|tolerance|susceptibility|response|responsiveness|adaptation)"
    r"(?: of [\w-]+)? (?:to|against) (?:the )?$",
    re.IGNORECASE,
)
# `A fell after B reduced C`, `A antagonizes what B activates`: the verb belongs to B.
_SUBORDINATE = re.compile(r"\w+ \w+ (?:after|when|once|because|since|until) ([\w-]+)[^,]*$")
_WHAT = re.compile(r"\b(?:what|that|which|whom) ([\w-]+) *$")
_JOIN = re.compile(r"[,;]? ?\b(?:and|but) ")
_RELATIVE = re.compile(r",? (?:which|that|who)\b")
_NAME = re.compile(r"[A-Za-z][\w-]*")
# Words allowed between the start of a clause and its verb where the subject is an earlier noun.
_NO_SUBJECT = word_set(
    """
    and or but then also thereby thus which that who it they this these both not to does did do is
    are was were been be has have had may might can could will would further in turn subsequently
    consequently finally therefore significantly directly strongly markedly only no longer even
    """
)
_NOT_CAUSAL = re.compile(r"\b(?:correlat|associat|link|relat|predict|prognos|marker)", re.I)


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement that a reader attributes to a quotation."""

    head: str
    relation_text: str
    relation: str
    tail: str
    polarity: Polarity
    negated: bool


class Verifier:
    """Checker of claims against their quotations, using known names and an ontology's relations."""

    def __init__(self, ontology: Ontology, names: Names | None = None) -> None:
        self._ontology = ontology
        self._names = names or Names(ontology)
        self._triggers = syntax.TriggerFinder(ontology)

    def fault(
        self,
        claim: Claim,
        text: str,
        span: tuple[int, int],
        abbreviations: Sequence[tuple[str, str]] = (),
        *,
        least: int = MIN_WORDS,
    ) -> str | None:
        """Return the reason why the quotation does not support the claim, or None if it does.

        Parameters
        ----------
        abbreviations : short and long forms defined in the document
        least : minimum number of words in a quotation; a shorter quotation is not a clause

        Returns
        -------
        One of the reasons in `UNGROUNDED`, or None. Words that express denial, questions or plans
        are sought in the whole sentences around the quotation, so a claim cannot pass by omitting
        them from the quotation.
        """
        quote = text[span[0] : span[1]]
        if len(_WORD.findall(quote)) < least:
            return NO_CLAUSE
        spelled = dict(abbreviations)
        heads = list(self._places(claim.head, quote, spelled))
        if not heads:
            return NO_HEAD
        tails = list(self._places(claim.tail, quote, spelled))
        if not tails:
            return NO_TAIL
        relations = list(_phrases(claim.relation_text, quote))
        if not relations:
            return NO_RELATION
        if self._overstates(claim):
            return STRONGER
        faults = []
        for start, end in sentences(text):
            shift = span[0] - start
            inside = [
                [(low + shift, high + shift) for low, high in places
                 if start <= low + span[0] and high + span[0] <= end]
                for places in (heads, tails, relations)
            ]  # fmt: skip
            faults += [
                self._reading(claim, text[start:end], head, tail, at)
                for head, tail, at in product(*inside)
                if not _overlap(head, tail)
            ]
        if not faults:
            return APART
        return None if None in faults else faults[0]

    def _places(
        self, name: str, quote: str, spelled: Mapping[str, str]
    ) -> Iterator[tuple[int, int]]:
        """Find where a name or its synonyms occur in the quotation as separate entities."""
        spellings = {name, *(s for s, long in spelled.items() if _same(long, name))}
        spellings |= {long for short, long in spelled.items() if _same(short, name)}
        entry = self._names.find(name)
        if entry is not None:
            spellings |= {entry.name, *entry.synonyms}
            spellings |= {
                quote[start:end]
                for start, end, other in self._names.find_all(quote)
                if other.id == entry.id
            }
        for spelling in spellings:
            words = _WORD.findall(spelling)
            if not words:
                continue
            pattern = r"[\W_]*".join(re.escape(word) for word in words)
            flags = 0 if len(spelling) <= 3 and spelling.isupper() else re.IGNORECASE
            for hit in re.finditer(rf"(?<![^\W_]){pattern}(?:e?s)?(?![^\W_])", quote, flags):
                if names_agent(name) or not acted_on(quote, hit.start(), hit.end()):
                    yield hit.span()

    def _overstates(self, claim: Claim) -> bool:
        """Check whether the claim asserts a mechanism where the text only states a correlation."""
        read = self._ontology.relation(claim.relation_text).canonical
        if claim.relation == read or claim.relation in _WEAK:
            return False
        return read in _WEAK or bool(_NOT_CAUSAL.search(claim.relation_text))

    def _reading(
        self,
        claim: Claim,
        sentence: str,
        head: tuple[int, int],
        tail: tuple[int, int],
        relation: tuple[int, int],
    ) -> str | None:
        """Check a choice of positions for head, tail and relation; return its fault or None."""
        start, end = relation
        if _overlap((start, end), head) or _overlap((start, end), tail):
            return APART
        low, high = min(head[0], tail[0], start), max(head[1], tail[1], end)
        if _NEW_CLAUSE.search(sentence[low:high]):
            return APART
        before, after = sentence[:start], sentence[end:]
        stated = not (
            cues.INDIRECT.search(before)
            or cues.INQUIRY.search(sentence[max(0, sentence.rfind(";", 0, start)) : end])
            or cues.EXAMINED.search(after)
            or cues.PURPOSE.search(before)
            or cues.CONDITION.search(before)
            or _REFUTED.search(after)
            or sentence.rstrip().endswith("?")
        )
        if not stated:
            return NOT_STATED
        if self._is_denied(sentence, head, tail, start, end) != claim.negated:
            return DENIED
        if claim.relation not in _SYMMETRIC and (
            _is_setting(claim, sentence, head, tail, relation)
            or self._of_another(sentence, head, tail, relation)
            or self._set_against(sentence, head, tail, relation)
        ):
            return APART
        first = head if head[0] < tail[0] else tail
        passive = bool(_PASSIVE.match(after)) or bool(_BY_PHRASE.search(sentence[start:end]))
        directed = claim.relation not in _SYMMETRIC
        if first[1] <= start and directed:
            middle = max(head[0], tail[0]) >= end
            if middle and (first == tail) != passive:
                return REVERSED
        elif directed and not middle_first(sentence, head, tail, start, end):
            return REVERSED
        expected = self._sign(claim, sentence, head, tail, end)
        given = _SIGN[claim.polarity]
        if not claim.negated and given and expected and given != expected:
            return SIGN
        return None

    def _of_another(
        self, sentence: str, head: tuple[int, int], tail: tuple[int, int], relation: tuple[int, int]
    ) -> bool:
        """Check whether the verb has a nearer subject, as in `A secretes B, and B activates C`."""
        gap = sentence[min(head, tail)[1] : relation[0]]
        for hit in (_SUBORDINATE.search(gap), _WHAT.search(gap)):
            if hit and hit[1].lower() not in _NO_SUBJECT and not hit[1].endswith("ly"):
                return True
        joined = list(_JOIN.finditer(gap))
        if not joined or _RELATIVE.match(gap) or max(head, tail)[0] < relation[1]:
            return False
        own = _NAME.findall(gap[joined[-1].end() :])
        return any(word.lower() not in _NO_SUBJECT for word in own) and self._triggers.occurs(
            gap[: joined[-1].start()]
        )

    def _set_against(
        self, sentence: str, head: tuple[int, int], tail: tuple[int, int], relation: tuple[int, int]
    ) -> bool:
        """Check whether an entity is contrasted with the fact, or is the object of a later verb."""
        for place in (head, tail):
            toward = _TOWARD.search(sentence[: place[0]])
            if toward and not _overlap(toward.span(), relation):
                return True
            if _INSTEAD.search(sentence[: place[0]]):
                return True
        if _PREVENTED.search(sentence[: relation[0]]):
            return True
        gap = sentence[relation[1] : max(head, tail)[0]]
        kin = _KIN.match(sentence, min(head, tail)[1])
        # "targets" between two names is the verb itself, not a noun with a verb of its own
        if kin and (not _overlap(kin.span(), relation) or gap.strip()):
            return True
        joined = _JOIN.search(gap)
        return bool(joined and self._triggers.verb_in(gap[joined.end() :]))

    @staticmethod
    def _is_denied(
        sentence: str, head: tuple[int, int], tail: tuple[int, int], start: int, end: int
    ) -> bool:
        low, _ = syntax.clause_bounds(sentence, start, end)
        scope = cues.PSEUDO.sub(" ", sentence[low:end])
        if cues.UNPROVEN.search(sentence[:end]) or cues.NEGATION.search(scope):
            return True
        last = max(head, tail)
        return last[0] >= end and bool(cues.NEGATED_ITEM.search(sentence[end : last[0]]))

    def _sign(
        self,
        claim: Claim,
        sentence: str,
        head: tuple[int, int],
        tail: tuple[int, int],
        after: int,
    ) -> int:
        """Compute the sign stated in the text: the relation's, inverted by `loss of X` and such."""
        relation = self._ontology.relation(claim.relation_text)
        value = _SIGN[relation.polarity]
        first = min(head, tail)
        for start, end in (head,) if relation.canonical in cues.MAKES_UP else (head, tail):
            floor = after if start >= after else 0
            floor = max(floor, first[1]) if start > first[0] else floor
            name = sentence[start:end]
            place = Mention(start, end, name, EntityType.OTHER)
            sign, judged = syntax.sign(sentence, place, min(floor, start))
            harm = judged and name.lower().rstrip("s") in cues.HARMS
            value *= (-sign if harm else sign) or 1
        return value


def middle_first(
    sentence: str, head: tuple[int, int], tail: tuple[int, int], start: int, end: int
) -> bool:
    """Check the order of head and tail if both are on the same side of the relation phrase.

    In `inhibition of X by Y` and `X secretion by Y`, the agent follows `by`.

    Parameters
    ----------
    head, tail : (start, end) offsets of the claim's two entities
    start, end : offsets of the words that state the relation

    Returns
    -------
    Whether the order agrees with the claim. Also True if the order is undetermined: there is
    no `by` between the two, and the relation phrase is not on the same side of both.
    """
    first, second = sorted((head, tail))
    if re.search(r"\bby\b", sentence[first[1] : second[0]]):
        return second == head
    if second[1] <= start or end <= first[0]:
        return first == head
    return True


def _is_setting(
    claim: Claim,
    sentence: str,
    head: tuple[int, int],
    tail: tuple[int, int],
    relation: tuple[int, int],
) -> bool:
    """Check whether the last entity follows the verb's object and only states the location."""
    last = max(head, tail)
    if claim.relation in _WEAK or claim.relation.endswith("_in") or last[0] < relation[1]:
        return False
    return bool(_WHERE.search(sentence[relation[1] : last[0]]))


def _overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def _same(first: str, second: str) -> bool:
    return _WORD.findall(first.casefold()) == _WORD.findall(second.casefold())


def _phrases(phrase: str, quote: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the quotation with the phrase's words in order and close together."""
    words = _WORD.findall(phrase)
    if not words:
        return
    pattern = r"\b" + r"\W+(?:\w+\W+){0,2}?".join(re.escape(word) for word in words) + r"\b"
    for hit in re.finditer(pattern, quote, re.IGNORECASE):
        yield hit.span()
