"""Rule-based reading of an English question: match names, then infer roles from nearby words.

Names are matched against the cohort's own labels first, then against the ontology. Every
other word is a cue used by a rule, a stop word, or an unread word that is always reported
(`find_unread`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from agents.question.names import OPTIONAL, is_english, read_table, terms_of, word_list
from agents.question.subgroups import AGAINST, find_numbers
from agents.question.types import Asked, Intent, Level, PartRole, Reading, Side
from agents.question.vocabulary import PEOPLE, Concept, Vocabulary, organ_of
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
OF = r"(?:share|amount|number|density|level|proportion|percentage|fraction|count|rate)s? of"
PLACES = {
    "word": r"\b(?:{0})\b",
    "before": rf"\b(?:{{0}})\s+(?:{OF} )?(?:(?:the|an?) )?$",
    "next": r"[\s-]*(?:{0})\b",
}
"""Patterns for a cue that may occur anywhere, right before a name, or right after it."""


def _load_cues() -> Iterator[tuple[str, str, re.Pattern[str]]]:
    """Load the reading cues: the meaning, position and pattern of each."""
    parts: dict[str, str] = {}
    for name, place, words in read_table("cues.tsv"):
        filled = re.sub(r"<(\w+)>", lambda part: parts[part[1]], words)
        parts[name] = f"(?:{filled})"
        yield name, place, re.compile(PLACES.get(place, PLACES["word"]).format(filled))


CUES = list(_load_cues())
CUE = {name: it for name, place, it in CUES if place not in ("then", "since", "outcome")}
RELATIONS = [
    (PartRole(name), place == "then", pattern)
    for name, place, pattern in CUES
    if place in ("then", "since")
]
"""Relations other than exposure to outcome, with the role of names after or before a cue."""
PLAIN_OUTCOMES = [(pattern, name) for name, place, pattern in CUES if place == "outcome"]
"""Everyday terms for an outcome, each with the outcome it means."""
WORSE, BETTER = CUE["worse"], CUE["better"]
BOTH_WAYS = re.compile(
    rf"{WORSE.pattern} and {BETTER.pattern}|{BETTER.pattern} and {WORSE.pattern}"
)
IS_SIDE = re.compile(rf" (?:is|are|was|were) {CUE['side'].pattern}")
BESIDE = re.compile("|".join((IS_SIDE.pattern, CUE["group"].pattern, CUE["people"].pattern)))
LISTED = frozenset(
    {"and", "or", "as", "well", "the", "both", "patient", "patients", "tumors", "in"}
)
"""Words that separate the members of a list."""
JOINED = re.compile(r"\b(?:and|or|with|versus|vs|than|as)\b", re.IGNORECASE)
VERB = re.compile(r"\b(?:do|does|did|can|could|will|would|may|might)\b")
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
    concept: Concept
    corrected_from: str = ""


def find_unread(
    prompt: str, read: Iterable[tuple[int, int]], vocabulary: Vocabulary, outcomes: Collection[str]
) -> list[tuple[int, int]]:
    """Find sequences of words that are in no `read` span and are neither cues nor stop words.

    An everyday word for an outcome is a cue only if none of the `outcomes` differs from it.
    """
    text = lower(prompt)
    plain = [it for it, name in PLAIN_OUTCOMES
             if not outcomes or any(name in known.lower() for known in outcomes)]  # fmt: skip
    cues = [*plain, *(it for _, place, it in CUES if place in ("at", "then", "since"))]
    spans = [_widen(text, *span) for span in read]
    cued = [found.span() for cue in cues for found in cue.finditer(text)]
    words, stop = split_words(prompt), STOP_WORDS | word_list("function")
    taken = {
        at
        for at, word in enumerate(words)
        if any(start < word.end and word.start < end for start, end in spans)
        or any(start <= word.start and word.end <= end for start, end in cued)
        or frozenset() < terms_of(word.text) <= OPTIONAL
        or word.text.casefold() == vocabulary.cohort.cohort.casefold()
        or (word.text.casefold() in stop and not word.text.isupper())
        or (len(word.text) == 1 and not word.text.isdigit())
    }
    runs = unmatched_runs(prompt, words, taken, ())
    return [(words[first].start, words[last - 1].end) for first, last in runs]


def _widen(text: str, start: int, end: int) -> tuple[int, int]:
    """Extend a name's span with adjacent words that describe a level or the patients."""
    before = CUE["sided"].search(text[:start])
    after = BESIDE.match(text[end:])
    return before.start() if before else start, end + (after.end() if after else 0)


def lower(prompt: str) -> str:
    """Convert a text to lower case without changing character positions."""
    return "".join(low if len(low := char.lower()) == 1 else char for char in prompt)


class Matcher:
    """Matcher that finds vocabulary names in a prompt."""

    def __init__(self, prompt: str, vocabulary: Vocabulary) -> None:
        self.prompt = prompt
        self.vocabulary = vocabulary
        self.text = lower(prompt)
        self.words = [piece for word in split_words(prompt) for piece in self._split(word)]
        self.notes: list[str] = []
        found = self._match()
        self.matches = [
            it for it in found if it.concept.measured or not self._explaining(it.end, found)
        ]
        self.unmatched = self._respell()
        self.matches = _without_nouns(sorted(self.matches, key=lambda it: it.start))

    def _split(self, word: Word) -> list[Word]:
        """Split two names written as one word ("FABP5/CXCL13"), or a name and its cue."""
        if word.text.lower().endswith("-adjusted"):
            return [Word(word.text[:-9], word.start, word.end - 9)]
        pieces = word.text.split("/")
        find = self.vocabulary.find
        if len(pieces) == 1 or find(word.text) or not all(find(piece) for piece in pieces):
            return [word]
        starts = [word.start + sum(len(piece) + 1 for piece in pieces[:at])
                  for at in range(len(pieces))]  # fmt: skip
        return [Word(piece, at, at + len(piece)) for piece, at in zip(pieces, starts, strict=True)]

    def _match(self) -> list[Match]:
        """Match numbered subgroups, then the longest names and levels from left to right."""
        found: list[Match] = []
        for item in find_numbers(self.text, self.vocabulary.labels):
            concept = Concept(item.name, condition=True, filters=item.filters)
            found.append(Match(item.start, item.end, self.prompt[item.start : item.end], concept))
        pattern, name = PLAIN_OUTCOMES[0]
        for words in pattern.finditer(self.text):
            concept = self.vocabulary.find(name) or Concept(name, outcome=True)
            found.append(Match(*words.span(), self.prompt[slice(*words.span())], concept))
        numbers, at = [(it.start, it.end) for it in found], 0
        while at < len(self.words):
            size, match = 0, None
            for size, phrase in phrases_at(self.prompt, self.words, at, EDGES):
                start, end = self.words[at].start, self.words[at + size - 1].end
                if not any(start < last and first < end for first, last in numbers):
                    match = self._name(phrase, start, end)
                if match is not None:
                    found.append(match)
                    break
            at += size if match is not None else 1
        return found

    def _name(self, phrase: str, start: int, end: int) -> Match | None:
        """Match a phrase by its words, and by what nearby words indicate about patients."""
        if self._is_list(phrase):
            return None
        before, after = self.text[:start], self.text[end:]
        bare = re.sub(r"['’]s$", "", phrase)
        without = CUE["without"].search(before)
        if without or CUE["people with"].search(before):
            concept = self.vocabulary.find_level(bare, present=not without)
            if concept is not None:
                start = without.start() if without else start
                return Match(start, end, self.prompt[start:end], concept)
        if without:
            return None  # what is absent is never read as present
        patients = (
            CUE["group"].match(after)
            or CUE["among"].search(before)
            or CUE["compared"].search(before)
        )
        concept = self.vocabulary.find(bare, patients=bool(patients))
        if concept is None and " " not in bare and any(char.isdigit() for char in bare):
            concept = self.vocabulary.find_gene(bare)
        if concept is None or self._one_side(bare, concept) or _is_inflected(bare, concept):
            return None
        return Match(start, end, bare, concept)

    def _one_side(self, phrase: str, concept: Concept) -> bool:
        """Check whether a name ("high mutational burden") is one level of a measured variable."""
        rest, sided = re.subn(r"^(?:high|low)[- ]", "", phrase, count=1, flags=re.IGNORECASE)
        measured = self.vocabulary.find(rest) if sided else None
        known = bool(concept.variables or concept.filters)
        return measured is not None and bool(measured.variables) and not known

    def _respell(self) -> list[tuple[int, int]]:
        """Match misspelled names and return the words that remain unread."""
        unread: list[tuple[int, int]] = []
        outcomes = [it.concept.name for it in self.matches if it.concept.outcome]
        spans = [(it.start, it.end) for it in self.matches]
        for start, end in find_unread(self.prompt, spans, self.vocabulary, outcomes):
            if not self._is_respelled(start, end):
                joined = unread and re.fullmatch(r" of (?:the )?", self.text[unread[-1][1] : start])
                unread.append((unread.pop()[0] if joined else start, end))
        for start, end in [*unread]:
            if words := self._explaining(end, self.matches):
                self.notes.append(f'"{self.prompt[start:end]}" is read as "{words}".')
                unread.remove((start, end))
        return unread

    def _explaining(self, end: int, matches: list[Match]) -> str:
        """Return the measured name in parentheses that explains the preceding words."""
        found = (
            it.phrase for it in matches if it.concept.measured and self.text[end : it.start] == " ("
        )
        return next(found, "")

    def _is_respelled(self, start: int, end: int) -> bool:
        """Match unread words, singly or with a neighbor, as a misspelled name; record a note."""
        first = next((it.start for it in self.matches if it.end + 1 == start), start)
        spans = [(it.start, it.end) for it in self.matches] + [
            (it.start, it.end) for it in self.words
        ]
        ends = [last for since, last in spans if since == end + 1]
        for since, until in ((first, end), *((start, it) for it in ends), (start, end)):
            words = self.prompt[since:until]
            name = self.vocabulary.respelled(words)
            concept = self.vocabulary.find(name) if name else None
            if concept is not None:
                self.matches = [it for it in self.matches if not since <= it.start < until]
                self.matches.append(Match(since, until, name, concept, words))
            if name:
                if name != words.casefold():
                    self.notes.append(f'"{words}" is read as "{name}".')
                return True
        return False

    def is_group(self, start: int, end: int) -> bool:
        """Check whether words specify a patient group ("in HER2-positive breast cancer")."""
        beside = next((it for it in self.matches if it.start == end + 1), None)
        disease = beside is not None and organ_of(beside.phrase)
        after = self.text[end:]
        grouped = CUE["group"].match(after) or CUE["people"].match(after)
        grouped = grouped or CUE["group"].search(f" {self.text[start:end]}")
        return bool((grouped or disease) and CUE["among"].search(self.text[:start]))

    def _is_list(self, phrase: str) -> bool:
        """Check whether a phrase lists several names.

        It does if, apart from list words, nothing is added to the name, or any of a kind is
        meant.
        """
        listed = JOINED.split(phrase)
        pieces = [terms_of(piece) - OPTIONAL for piece in listed]
        others = [[*pieces[:at], *pieces[at + 1 :]] for at in range(len(pieces))]
        spare = [it <= frozenset().union(*rest) for it, rest in zip(pieces, others, strict=True)]
        named = [self.vocabulary.find(piece.strip()) for piece in listed[1:] and listed]
        every = any(concept.open_to for concept in named if concept is not None)
        return bool(AGAINST.search(f"{phrase} ")) or every or (len(pieces) > 1 and any(spare))

    def is_against(self, start: int) -> bool:
        """Check whether the text here is compared with what precedes it ("than those with …")."""
        ends = [match.end for match in self.matches if match.end <= start]
        return bool(AGAINST.match(self.text, max(ends, default=0), start))

    def words_between(self, first: Match, second: Match) -> set[str]:
        """Return the words between two matches."""
        return set(re.findall(r"\w+", self.text[first.end : second.start]))


def _is_inflected(phrase: str, concept: Concept) -> bool:
    """Check whether a function word only resembles a level ("excluding" resembles "excluded")."""
    word, level = phrase.casefold(), concept.level
    values = {str(it).casefold() for it in level.values} if level else set()
    return bool(level) and word in word_list("function") and word not in values


def _without_nouns(matches: list[Match]) -> list[Match]:
    """Drop matches that only describe an adjacent name ("the gene HPRT1", "women")."""

    def is_noun(match: Match) -> bool:
        concept, beside = match.concept, [
            it.concept for it in matches if match.start - 1 == it.end or it.start - 1 == match.end
        ]  # fmt: skip
        if not concept.open_to:
            before = any(it.concept.condition and it.end + 1 == match.start for it in matches)
            person = not concept.condition and PEOPLE.fullmatch(match.phrase.casefold())
            return before and bool(person)
        singular = not match.phrase.endswith("s") and any(it.variables for it in beside)
        measured = any(it.concept.variables and not it.concept.outcome for it in matches)
        return singular or (concept.open_to == "any" and measured)

    return [match for match in matches if not is_noun(match)]


def match_within(name: str, vocabulary: Vocabulary) -> Concept | None:
    """Return the only concept within a longer name, if the remaining words are recognized."""
    matcher = Matcher(name, vocabulary)
    stop = word_list("function")
    concepts = [it.concept for it in matcher.matches if it.phrase.casefold() not in stop]
    return concepts[0] if len(concepts) == 1 and not (matcher.unmatched or matcher.notes) else None


def read_by_rules(prompt: str, vocabulary: Vocabulary) -> Reading:
    """Read a question's intent and parts; refuse unreadable questions, with a remedy."""
    if not re.search(r"[^\W\d_]{2,}", prompt):
        return Reading(intent=Intent.DISCOVER, refusals=(EMPTY,))
    if not is_english(prompt):
        return Reading(language="unknown", intent=Intent.RELATE, refusals=(NOT_ENGLISH,))
    matcher = Matcher(prompt, vocabulary)
    text, matches = matcher.text, matcher.matches
    parts = _assign_roles(matcher)
    if not matches and not parts:
        return Reading(intent=Intent.DISCOVER, notes=tuple(matcher.notes), refusals=(OFF_TOPIC,))
    parts += _place_unread(matcher, parts)
    notes = list(matcher.notes)
    if CUE["no relation"].search(text):
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
    outcomes = [match.concept.name for match in matches if match.concept.outcome]
    if len(outcomes) > len(set(outcomes)) and len(outcomes) == len(matches):
        refusals.append(
            "The question contradicts itself: it relates an outcome to itself. Name a marker."
        )
    direction = _direction(text, parts, vocabulary)
    if direction is None and bool(WORSE.search(text)) != bool(BETTER.search(text)):
        notes.append("Whether this outcome is good for patients is not known to SAGE, so that both"
                     " directions are tested.")  # fmt: skip
    return Reading(
        intent=_intent(text, parts, matches),
        direction=direction,
        parts=tuple(parts[:16]),
        notes=tuple(dict.fromkeys(notes)),
        refusals=tuple(refusals),
    )


def _direction(text: str, parts: Collection[Asked], vocabulary: Vocabulary) -> Side | None:
    """Return the direction of the outcome's event, given what is worse or better for patients."""
    worse, better = bool(WORSE.search(text)), bool(BETTER.search(text))
    named = [part.name for part in parts if part.role is PartRole.ENDPOINT] or ["survival"]
    good = {vocabulary.is_good(name) for name in named}
    if worse == better or good not in ({True}, {False}):
        return None
    return Direction.HIGHER_RISK if worse != (good == {True}) else Direction.LOWER_RISK


def _assign_roles(matcher: Matcher) -> list[Asked]:
    parts: list[Asked] = []
    matches = matcher.matches
    related = _find_related(matcher)
    related = _find_compared(matcher, related) | related
    names = [match for match in matches if not match.concept.condition]
    markers = any(
        not match.concept.outcome and match.concept.kind not in (*DRUGS, EntityType.DISEASE)
        for match in matches
    )
    named = any(
        match not in related and _role_of_name(matcher, match, markers) is PartRole.EXPOSURE
        for match in names
    )
    excluded: Match | None = None
    for match in matches:
        before = matcher.text[: match.start]
        listed = excluded is not None and matcher.words_between(excluded, match) <= LISTED
        introduced = CUE["people with"].sub("", before)  # "excluding patients with"
        contrasted = related.get(match) is PartRole.MODIFIER  # "in women but not in men"
        negated = listed or CUE["negation"].search(introduced) is not None
        negated = negated and not contrasted
        excluded = match if negated else None
        if match in related:
            role = related[match]
        elif match.concept.condition:
            first, _, _ = match.phrase.lower().partition(" ")
            people = match.concept.name in ("age", "sex") or CUE["without"].match(f"{first} ")
            among = (
                CUE["among"].search(before) or CUE["people with"].search(before) or named or people
            )
            role = PartRole.POPULATION if among else PartRole.EXPOSURE
        else:
            role = _role_of_name(matcher, match, markers)
        sided = role in (PartRole.EXPOSURE, PartRole.MODIFIER) and not match.concept.condition
        parts.append(
            Asked(
                words=match.corrected_from or match.phrase,
                role=role,
                name=match.phrase,
                negated=negated,
                level=_level(matcher, match) if sided else None,
                corrected_from=match.corrected_from,
            )
        )
    if not any(match.concept.outcome for match in matches):
        for pattern, name in PLAIN_OUTCOMES:
            if found := pattern.search(matcher.text):
                words = matcher.prompt[found.start() : found.end()]
                parts.append(Asked(words=words, role=PartRole.ENDPOINT, name=name))
                break
    if not any(part.role is PartRole.EXPOSURE and not part.negated for part in parts):
        parts = [  # what explains an outcome, and nothing else, is what is asked about
            part.model_copy(update={"role": PartRole.EXPOSURE})
            if part.role is PartRole.MEDIATOR
            else part
            for part in parts
        ]
    return parts


def _role_of_name(matcher: Matcher, match: Match, markers: bool) -> PartRole:
    before, concept = matcher.text[: match.start], match.concept
    if concept.outcome:
        return PartRole.ENDPOINT
    person = PEOPLE.fullmatch(match.phrase.casefold())
    people = person or CUE["people with"].search(before) or matcher.is_group(match.start, match.end)
    if match.concept.disease or (concept.kind is EntityType.DISEASE and people):
        return PartRole.POPULATION
    drug = concept.kind in DRUGS
    if markers and (
        (drug and not concept.variables)
        or (CUE["benefit"].search(matcher.text) and (drug or _is_drug_record(matcher, match)))
    ):
        return PartRole.TREATMENT
    return PartRole.POPULATION if people else PartRole.EXPOSURE


def _is_drug_record(matcher: Matcher, match: Match) -> bool:
    """Check whether a match names a treatment ("benefit from hormonal therapy")."""
    entry = matcher.vocabulary.ontology.find(match.phrase)
    named = entry is not None and entry.type in DRUGS
    return named or bool(re.search(r"therap|treatment|tamoxifen|platin", match.phrase.casefold()))


def _level(matcher: Matcher, match: Match) -> Level | None:
    """Return the level at which a name is queried ("high CD8", "larger nuclei")."""
    first, _, rest = match.phrase.casefold().partition(" ")
    after = re.match(IS_SIDE, matcher.text[match.end :])
    texts = (
        f"{first} " if rest else "",
        matcher.text[: match.start],
        f"{after[1]} " if after else "",
    )
    for text in texts:
        if CUE["high"].search(text) or CUE["low"].search(text):
            return "high" if CUE["high"].search(text) else "low"
    return None


def _find_compared(matcher: Matcher, related: Collection[Match]) -> dict[Match, PartRole]:
    """Find compared patient groups ("luminal A … than luminal B"), or a group versus all others.

    If something other than `related` comes first, its effect is compared between the groups.
    """
    out: dict[Match, PartRole] = {}
    for first, second in pairwise([match for match in matcher.matches if match.concept.condition]):
        same = first.concept.about == second.concept.about
        listed = matcher.words_between(first, second) <= LISTED
        if same and listed and out.get(first) is PartRole.COMPARATOR:
            out[second] = PartRole.COMPARATOR
        against = AGAINST.fullmatch(matcher.text, first.end, second.start)
        unlike = CUE["negation"].search(matcher.text[first.end : second.start])
        if same and (against or unlike):
            roles = PartRole.EXPOSURE, PartRole.COMPARATOR
            subjects = [
                it
                for it in matcher.matches
                if (it.start < first.start or unlike)
                and not (it in related or it.concept.condition or it.concept.outcome)
            ]
            if unlike and not subjects:
                continue
            if subjects:
                roles = PartRole.MODIFIER, PartRole.MODIFIER
            out |= dict(zip((first, second), roles, strict=True))
    matches = matcher.matches
    for match in matches:
        excluded = CUE["negation"].search(matcher.text[: match.start])
        if matcher.is_against(match.start) and not (match.concept.outcome or excluded):
            out.setdefault(match, PartRole.COMPARATOR)
    leads = matches[:1] if VERB.match(matcher.text) else []
    others = {it for it in matches[1:] if not (it.concept.outcome or it in out or it in related)}
    if leads and leads[0].concept.condition and not any(it.concept.measured for it in others):
        out.setdefault(leads[0], PartRole.EXPOSURE)  # "Do patients with perforation die sooner?"
    return out


def _find_related(matcher: Matcher) -> dict[Match, PartRole]:
    """Find the mediators, modifiers or covariates marked by a cue, including listed names."""
    plain = [
        it
        for it in matcher.matches
        if not (it.concept.outcome or it.concept.open_to or it.concept.disease)
    ]
    out: dict[Match, PartRole] = {}
    text = matcher.text
    for role, after, cue in RELATIONS:
        for found in cue.finditer(text):
            side = [match for match in plain if match.start >= found.end()]
            if not after:
                side = [match for match in plain if match.end <= found.start()][::-1]
            chosen: list[Match] = []
            for match in side:
                pair = (match, chosen[-1]) if chosen and not after else (*chosen[-1:], match)
                if chosen and not matcher.words_between(*pair) <= LISTED | {"than"}:
                    break
                chosen.append(match)
            if len(chosen) < len(plain) or role is PartRole.COVARIATE:
                out |= {match: role for match in chosen if match not in out}
            text = text[: found.start()] + " " * len(found[0]) + text[found.end() :]
    if CUE["together"].search(text) and PartRole.MODIFIER not in out.values():
        named = [match for match in plain if not match.concept.condition]
        out |= dict.fromkeys(named[1:2], PartRole.MODIFIER)
    arms = [match.start for match in plain if match.concept.condition]
    benefit = CUE["benefiting"].search(text)
    if benefit and max(arms, default=0) > benefit.end():
        out |= {match: PartRole.MODIFIER for match in plain if match.end <= benefit.start()}
    return out


def _place_unread(matcher: Matcher, parts: list[Asked]) -> list[Asked]:
    """Assign roles to unexplained words from the surrounding words.

    A single word between the exposure and its outcome is the verb of the question.
    """
    unknown: list[Asked] = []
    exposed = any(part.role is PartRole.EXPOSURE and not part.negated for part in parts)
    roles = {part.words: part.role for part in parts}
    for start, end in matcher.unmatched:
        words, before = matcher.prompt[start:end], matcher.text[:start]
        symbol = any(
            is_code(word) and word[0].isalpha() and len(word) > 2 for word in words.split()
        )
        beside = next((it for it in matcher.matches if it.start == end + 1), None)
        role = roles.get(beside.phrase) if beside is not None else None
        related = [
            own
            for own, follows, cue in RELATIONS
            if follows and re.search(rf"(?:{cue.pattern})\s+(?:the |an? )?$", before)
        ]
        if related:
            role = related[0]
        elif matcher.is_against(start):
            role = PartRole.COMPARATOR
        elif CUE["without"].search(before):
            role = PartRole.QUALIFIER
        elif CUE["people with"].search(before) or matcher.is_group(start, end):
            role = PartRole.POPULATION
        elif _is_verb(matcher, start, end):
            matcher.notes.append(f'"{words}" is read as the relation that is asked about.')
            continue
        elif role in (None, PartRole.ENDPOINT):
            role = PartRole.EXPOSURE if symbol or not exposed else PartRole.QUALIFIER
        unknown.append(Asked(words=words, role=role or PartRole.QUALIFIER, name=words))
    return unknown


def _is_verb(matcher: Matcher, start: int, end: int) -> bool:
    """Check whether an unread word takes the place of the verb, and there is no known verb."""
    before = [it for it in matcher.matches if it.end <= start and not it.concept.outcome]
    after = [it for it in matcher.matches if it.start >= end and it.concept.outcome]
    word = matcher.text[start:end]
    if not (before and after and word.isalpha() and matcher.prompt[start:end].islower()):
        return False
    between = matcher.text[before[-1].end : start] + matcher.text[end : after[0].start]
    asked = VERB.search(matcher.text[: before[0].start])
    return bool(asked) and set(re.findall(r"\w+", between)) <= {"the", "a", "an", "to", "with"}


def _intent(text: str, parts: Collection[Asked], matches: list[Match]) -> Intent:
    roles = {part.role for part in parts}
    drug = PartRole.TREATMENT in roles
    response = any(
        match.concept.outcome and match.phrase.casefold().startswith("respon") for match in matches
    )
    if PartRole.MODIFIER in roles:
        return Intent.MODIFY
    if PartRole.MEDIATOR in roles:
        return Intent.EXPLAIN
    if (drug and CUE["benefit"].search(text)) or (
        CUE["predict"].search(text) and (drug or response)
    ):
        return Intent.PREDICT_RESPONSE
    classes = any(match.concept.open_to or match.concept.every for match in matches)
    if classes or not any(part.role is PartRole.EXPOSURE and not part.negated for part in parts):
        return Intent.DISCOVER
    if CUE["explain"].search(text) and not re.search(r"\bhow do(?:es)?\b.*\brelate", text):
        return Intent.EXPLAIN
    return Intent.RELATE
