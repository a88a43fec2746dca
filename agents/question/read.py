"""Rule-based reading of an English question: match names, then infer roles from nearby words.

Names are matched against the cohort's own labels first, then against the ontology. Unmatched words
are reported; they become an unknown part if the question may be about them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agents.question.names import is_english, word_list
from agents.question.subgroups import Condition, find_conditions
from agents.question.types import Asked, Intent, Level, PartRole, Reading, Side
from agents.question.vocabulary import Concept, Vocabulary, organ_of
from kg.lexicon.phrases import (
    STOP_WORDS,
    Word,
    is_code,
    phrases_at,
    split_words,
    unmatched_runs,
)
from kg.types import EntityType
from validation.core.hypothesis import Direction

DRUGS = (EntityType.TREATMENT, EntityType.CHEMICAL)
EDGES = STOP_WORDS | {"cause", "causes"}
"""Words that neither begin nor end a name."""
BENEFIT = re.compile(r"\b(?:respon\w+|benefit\w*|sensitiv\w+|resist\w+)\b")
PREDICT = re.compile(r"\b(?:predict\w*|benefit\w*|sensitiv\w+|resist\w+|markers? of response)\b")
CHANGES = re.compile(
    r"\b(?:modif\w+|(?:chang|alter|influenc)\w+ the (?:effect|association|role))\b"
)
DEPENDS = re.compile(
    r"\b(?:depends? (?:up)?on|differs? (?:by|with|between|across)|var(?:y|ies) (?:by|with|across)|"
    r"different (?:by|between|in|across)|(?:more|less|stronger|weaker|longer|shorter) in"
    r"(?= .*\bthan in\b))\b"
)
TOGETHER = re.compile(r"\binteract\w*\b")
EXPLAIN = re.compile(
    r"\b(?:mediat\w+|mechanisms?|why|through (?:what|which)|explain\w*|how does|underl\w+)\b"
)
NEGATION = re.compile(
    r"\b(?:other than|except(?: for)?|apart from|besides|excluding|(?:but|and) not(?: in)?|"
    r"instead of|rather than)\s+(?:the |high |low )?$"
)
COMPARED = re.compile(r"\b(?:compared (?:with|to)|versus|vs|than)\s+(?:the )?(?:high |low )?$")
ADJUSTED = re.compile(
    r"\b(?:adjust(?:ed|ing|ment)? (?:for|by)|controll?(?:ed|ing)? for|account(?:ed|ing)? for|"
    r"correct(?:ed|ing) for|independent(?:ly)? (?:of|from)|given)\s+(?:the |an? )?$"
)
PEOPLE_WITH = re.compile(
    r"\b(?:patients?|tumors?|women|men|people|cases?)\s+(?:with|who have|having)\s+(?:an? |the )?$"
)
HIGH = re.compile(
    r"\b(?:high|higher|elevated|increased|abundant|strong|more|many|(?:lots|plenty) of)\s+$"
)
LOW = re.compile(r"\b(?:low|lower|reduced|decreased|scarce|sparse|weak|less|few|fewer|little)\s+$")
WORSE = re.compile(
    r"\b(?:shorten\w*|shorter|worse\w*|poor(?:er)?|harm\w*|unfavorable|adverse|"
    r"(?:die\w*|dying|relapse\w*|recur\w*) (?:earlier|sooner|more often)|"
    r"(?:rais|increas)\w* (?:the )?(?:risk|recurrences?|relapses?|mortality|deaths?))\b"
)
BETTER = re.compile(
    r"\b(?:prolong\w*|longer|improv\w+|better|extend\w*|favorable|protect\w*|"
    r"benefit\w* (?:more|most)|(?:reduc|lower|decreas|prevent)\w* "
    r"(?:the )?(?:risk|recurrences?|relapses?|mortality|deaths?|progression))\b"
)
BOTH_WAYS = re.compile(
    rf"(?:{WORSE.pattern}) and (?:{BETTER.pattern})|(?:{BETTER.pattern}) and (?:{WORSE.pattern})"
)
NO_RELATION = re.compile(
    r"\b(?:negative control|unrelated|no relation|not (?:associated|related|linked|relate))\b"
)
LISTED = frozenset({"and", "or", "as", "well", "the", "both", "patient", "patients", "tumors"})
"""Words that separate the members of a list."""
PLAIN_OUTCOMES = (
    (re.compile(r"\b(?:prognos\w+|outcomes?)\b"), "survival"),
    (re.compile(r"\b(?:liv(?:e|es|ed|ing)|surviv(?:e|es|ed|ing)|outliv\w+|die[sd]?|dying)\b"),
     "survival"),
    (re.compile(r"\brecur(?:s|red)?\b"), "recurrence"),
)  # fmt: skip
"""Everyday words for an outcome, with the outcome that they mean."""
EMPTY = (
    'The question is empty. Say what to look for, e.g. sage ask "Does FGFR3 expression relate to'
    ' overall survival?"'
)
NOT_ENGLISH = (
    "The question's language is not English. Without a language model SAGE reads English only: ask"
    " in English, or configure a model and use --reasoner chat."
)
OFF_TOPIC = (
    "The question is off topic: it names no gene, cell, feature, treatment or outcome that SAGE"
    " knows. Ask about a marker and an outcome of patients."
)


@dataclass(frozen=True)
class Match:
    """A name or a subgroup in the prompt, from character `start` to `end`."""

    start: int
    end: int
    phrase: str
    concept: Concept | None = None
    condition: Condition | None = None
    corrected_from: str = ""

    @property
    def outcome(self) -> bool:
        """True for an endpoint, whether or not the cohort has it."""
        return self.concept is not None and self.concept.outcome


class Matcher:
    """Matcher of a prompt's words against a vocabulary."""

    def __init__(self, prompt: str, vocabulary: Vocabulary) -> None:
        self.prompt = prompt
        self.vocabulary = vocabulary
        self.text = "".join(low if len(low := char.lower()) == 1 else char for char in prompt)
        self.words = [piece for word in split_words(prompt) for piece in self._split(word)]
        self.notes: list[str] = []
        self.matches, taken = self._match()
        self.unmatched = self._respell(taken)
        self.matches = _without_class_words(sorted(self.matches, key=lambda it: it.start))

    def _split(self, word: Word) -> list[Word]:
        """Split two genes written as one word ("FABP5/CXCL13")."""
        pieces = word.text.split("/")
        find = self.vocabulary.find
        if len(pieces) == 1 or find(word.text) or not all(find(piece) for piece in pieces):
            return [word]
        starts = [word.start + sum(len(piece) + 1 for piece in pieces[:at])
                  for at in range(len(pieces))]  # fmt: skip
        return [Word(piece, at, at + len(piece)) for piece, at in zip(pieces, starts, strict=True)]

    def _match(self) -> tuple[list[Match], set[int]]:
        """Match subgroups, then the longest names from the left; return which words were used."""
        found: list[Match] = []
        taken: set[int] = set()
        for condition in find_conditions(self.text, self.vocabulary.cohort.variables):
            inside = {
                at
                for at, word in enumerate(self.words)
                if condition.start <= word.start < condition.end
            }
            taken |= inside
            words = self.prompt[condition.start : condition.end]
            found.append(Match(condition.start, condition.end, words, condition=condition))
        at = 0
        while at < len(self.words):
            size, match = 0, None
            for size, phrase in phrases_at(self.prompt, self.words, at, EDGES):
                if taken & set(range(at, at + size)):
                    continue
                if (match := self._name(phrase, at, size)) is not None:
                    found.append(match)
                    taken |= set(range(at, at + size))
                    break
            at += size if match is not None else 1
        return found, taken

    def _name(self, phrase: str, at: int, size: int) -> Match | None:
        bare = re.sub(r"['’]s$", "", phrase)
        concept = self.vocabulary.find(phrase) or self.vocabulary.find(bare)
        if concept is None and size == 1 and any(char.isdigit() for char in bare):
            concept = self.vocabulary.find_gene(bare)
        if concept is None or self._one_side(bare, concept):
            return None
        return Match(self.words[at].start, self.words[at + size - 1].end, bare, concept)

    def _one_side(self, phrase: str, concept: Concept) -> bool:
        """Check whether a name ("high mutational burden") is one side of a measured variable."""
        rest, sided = re.subn(r"^(?:high|low)[- ]", "", phrase, count=1, flags=re.IGNORECASE)
        measured = self.vocabulary.find(rest) if sided else None
        return measured is not None and bool(measured.variables) and not concept.variables

    def _respell(self, taken: set[int]) -> list[Match]:
        """Match misspelled names and return the words that stay unmatched."""
        stop = STOP_WORDS | word_list("function")
        unmatched = []
        for first, last in unmatched_runs(self.prompt, self.words, taken, stop):
            start, end = self.words[first].start, self.words[last - 1].end
            beside = next((it for it in self.matches if it.start == end + 1 and it.outcome), None)
            for until in ([beside.end] if beside else []) + [end]:
                words = self.prompt[start:until]
                name = self.vocabulary.respelled(words)
                concept = self.vocabulary.find(name) if name else None
                if concept is not None:
                    self.matches = [it for it in self.matches if not start <= it.start < until]
                    self.matches.append(Match(start, until, name, concept, None, words))
                    self.notes.append(f'"{words}" is read as "{name}".')
                    break
            else:
                words = self.prompt[start:end]
                plain = words.casefold()
                if len(words) > 1 and plain not in (
                    *stop,
                    self.vocabulary.cohort.cohort.casefold(),
                ):
                    unmatched.append(Match(start, end, words))
        return unmatched

    def text_before(self, match: Match) -> str:
        """Return the lower-case text before a match."""
        return self.text[: match.start]

    def words_between(self, first: Match, second: Match) -> set[str]:
        """Return the words between two matches."""
        return set(re.findall(r"\w+", self.text[first.end : second.start]))


def _without_class_words(matches: list[Match]) -> list[Match]:
    """Drop a class word that only describes the name next to it ("the gene HPRT1")."""

    def is_beside(match: Match) -> bool:
        return not match.phrase.endswith("s") and any(
            other.concept is not None and other.concept.variables
            for other in matches
            if other.start == match.end + 1 or other.end + 1 == match.start
        )

    return [
        match
        for match in matches
        if not (match.concept is not None and match.concept.open_to and is_beside(match))
    ]


def match_within(name: str, vocabulary: Vocabulary) -> Concept | None:
    """Return the only concept within a longer name, if the rest of the name is matched."""
    matcher = Matcher(name, vocabulary)
    measuring = word_list("function")
    concepts = [it.concept for it in matcher.matches if it.phrase.casefold() not in measuring]
    return concepts[0] if len(concepts) == 1 and not (matcher.unmatched or matcher.notes) else None


def read_by_rules(prompt: str, vocabulary: Vocabulary) -> Reading:
    """Read a question's intent and parts; refuse what cannot be read, with a remedy."""
    if not re.search(r"[^\W\d_]{2,}", prompt):
        return Reading(intent=Intent.DISCOVER, refusals=(EMPTY,))
    if not is_english(prompt):
        return Reading(language="unknown", intent=Intent.RELATE, refusals=(NOT_ENGLISH,))
    matcher = Matcher(prompt, vocabulary)
    text, matches = matcher.text, matcher.matches
    parts = _assign_roles(matcher)
    if not matches and not parts:
        return Reading(intent=Intent.DISCOVER, notes=tuple(matcher.notes), refusals=(OFF_TOPIC,))
    unknown, notes = _place_unmatched(matcher, parts)
    parts = _merge(parts + unknown)
    notes = [*matcher.notes, *notes]
    if NO_RELATION.search(text):
        notes.append(
            "The question expects no relation. SAGE tests for one; that none is found does not"
            " show that there is none unless the confidence interval excludes it."
        )
    refusals = []
    if BOTH_WAYS.search(text):
        refusals.append(
            "The question contradicts itself: an effect cannot both shorten and prolong. Ask for"
            " one direction, or for none."
        )
    outcomes = [match.concept.name for match in matches if match.concept and match.outcome]
    if len(outcomes) > len(set(outcomes)) and len(outcomes) == len(matches):
        refusals.append(
            "The question contradicts itself: it relates an outcome to itself. Name a marker."
        )
    worse, better = bool(WORSE.search(text)), bool(BETTER.search(text))
    direction: Side = Direction.HIGHER_RISK if worse else Direction.LOWER_RISK
    return Reading(
        intent=_intent(text, parts, matches),
        direction=None if worse == better else direction,
        parts=tuple(parts[:16]),
        notes=tuple(dict.fromkeys(notes)),
        refusals=tuple(refusals),
    )


def _assign_roles(matcher: Matcher) -> list[Asked]:
    parts: list[Asked] = []
    matches = matcher.matches
    modifiers, adjusted = _modifiers(matcher), _find_adjusted(matcher)
    markers = any(
        match.concept is not None
        and not match.outcome
        and match.concept.kind not in (*DRUGS, EntityType.DISEASE)
        for match in matches
    )
    excluded: Match | None = None
    for match in matches:
        listed = excluded is not None and matcher.words_between(excluded, match) <= LISTED
        negated = listed or NEGATION.search(matcher.text_before(match)) is not None
        excluded = match if negated else None
        name, level = match.phrase, _level(matcher, match)
        if match.condition is not None:
            contrast = match.condition.contrast
            within = re.search(r"\b(?:in|between|among)\s+(?:the )?$", matcher.text_before(match))
            role = PartRole.POPULATION
            if match in modifiers or (contrast is not None and markers and within):
                role = PartRole.MODIFIER
            elif contrast is not None:
                parts.append(
                    Asked(words=match.phrase, role=PartRole.EXPOSURE, name=contrast.label,
                          level=match.condition.level)
                )  # fmt: skip
                if not match.condition.filters:
                    continue
        elif match in adjusted:
            role = PartRole.COVARIATE
        elif match in modifiers:
            role = PartRole.MODIFIER
        else:
            role = _role_of_name(matcher, match, markers, negated)
        parts.append(
            Asked(
                words=match.corrected_from or match.phrase,
                role=role,
                name=name,
                negated=negated,
                level=level if role in (PartRole.EXPOSURE, PartRole.MODIFIER) else None,
                corrected_from=match.corrected_from,
            )
        )
    if not any(match.outcome and match.concept and match.concept.name for match in matches):
        for pattern, name in PLAIN_OUTCOMES:
            if found := pattern.search(matcher.text):
                words = matcher.prompt[found.start() : found.end()]
                parts.append(Asked(words=words, role=PartRole.ENDPOINT, name=name))
                break
    return parts


def _role_of_name(matcher: Matcher, match: Match, markers: bool, negated: bool) -> PartRole:
    before, concept = matcher.text_before(match), match.concept
    assert concept is not None
    if concept.outcome:
        return PartRole.ENDPOINT
    people = PEOPLE_WITH.search(before)
    if concept.kind is EntityType.DISEASE and (organ_of(concept.name) or people):
        return PartRole.POPULATION
    drug = concept.kind in DRUGS
    if markers and (
        (drug and not concept.variables)
        or (BENEFIT.search(matcher.text) and (drug or _is_drug_record(matcher, match)))
    ):
        return PartRole.TREATMENT
    if people:
        return PartRole.POPULATION
    return PartRole.COMPARATOR if COMPARED.search(before) and not negated else PartRole.EXPOSURE


def _is_drug_record(matcher: Matcher, match: Match) -> bool:
    """Check whether a match names a treatment ("benefit from hormonal therapy")."""
    entry = matcher.vocabulary.ontology.find(match.phrase)
    named = entry is not None and entry.type in DRUGS
    return named or bool(re.search(r"therap|treatment|tamoxifen|platin", match.phrase.casefold()))


def _level(matcher: Matcher, match: Match) -> Level | None:
    """Return the side that a name is asked about ("high CD8")."""
    if match.concept is None:
        return None
    before = matcher.text_before(match)
    return "high" if HIGH.search(before) else "low" if LOW.search(before) else None


def _modifiers(matcher: Matcher) -> list[Match]:
    """Return the matches on which, according to the question, the effect may depend."""
    plain = [
        match
        for match in matcher.matches
        if match.concept is None
        or not (
            match.outcome
            or (match.concept.kind is EntityType.DISEASE and organ_of(match.concept.name))
        )
    ]
    if found := CHANGES.search(matcher.text):
        return [match for match in plain if match.start < found.start()][-1:]
    if found := DEPENDS.search(matcher.text):
        return [match for match in plain if match.start >= found.end()]
    if TOGETHER.search(matcher.text):
        return [match for match in plain if match.concept is not None][1:2]
    return []


def _find_adjusted(matcher: Matcher) -> list[Match]:
    """Find matches to adjust for: after words of adjustment, or in a list with such a match."""
    found: list[Match] = []
    for match in matcher.matches:
        if match.concept is None or match.concept.kind in DRUGS:
            continue
        listed = bool(found) and matcher.words_between(found[-1], match) <= LISTED
        measured = any(not key.startswith("expression:") for key in match.concept.variables)
        if ADJUSTED.search(matcher.text_before(match)) or (listed and measured):
            found.append(match)
    return found


def _place_unmatched(matcher: Matcher, parts: list[Asked]) -> tuple[list[Asked], list[str]]:
    """Make unmatched words unknown parts if the question may be about them, else notes."""
    unknown: list[Asked] = []
    notes = []
    exposed = any(part.role is PartRole.EXPOSURE and not part.negated for part in parts)
    for match in matcher.unmatched:
        words = match.phrase
        symbol = any(
            is_code(word) and word[0].isalpha() and len(word) > 2 for word in words.split()
        )
        if PEOPLE_WITH.search(matcher.text_before(match)):
            unknown.append(Asked(words=words, role=PartRole.POPULATION, name=words))
        elif symbol or (not exposed and matcher.matches):
            unknown.append(Asked(words=words, role=PartRole.EXPOSURE, name=words))
        else:
            notes.append(f'Not matched, and left out: "{words}".')
    return unknown, notes


def _merge(parts: list[Asked]) -> list[Asked]:
    """Merge parts that are named twice in the same role."""
    out: dict[tuple[PartRole, str, bool], Asked] = {}
    for part in parts:
        out.setdefault((part.role, part.name.casefold(), part.negated), part)
    return list(out.values())


def _intent(text: str, parts: list[Asked], matches: list[Match]) -> Intent:
    roles = {part.role for part in parts}
    drug = PartRole.TREATMENT in roles
    response = any(
        match.outcome and match.phrase.casefold().startswith("respon") for match in matches
    )
    if PartRole.MODIFIER in roles:
        return Intent.MODIFY
    if re.search(r"\bmediat\w+", text):
        return Intent.EXPLAIN
    if (drug and BENEFIT.search(text)) or (PREDICT.search(text) and (drug or response)):
        return Intent.PREDICT_RESPONSE
    classes = any(
        match.concept is not None and (match.concept.open_to or match.concept.every)
        for match in matches
    )
    if classes or not any(part.role is PartRole.EXPOSURE and not part.negated for part in parts):
        return Intent.DISCOVER
    if EXPLAIN.search(text) and not re.search(r"\bhow do(?:es)?\b.*\brelate", text):
        return Intent.EXPLAIN
    return Intent.RELATE
