"""Rule-based reading of an English question: match names, then infer roles from nearby words.

Names are matched against the cohort's own labels first, then against the ontology. Unmatched words
are reported; they become an unknown part if the question may be about them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from agents.question.labels import LevelMatch
from agents.question.names import is_english, word_list
from agents.question.subgroups import AGAINST, Condition, find_numbers
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
EFFECT = r"the (?:effect|association|role|impact|influence|benefit|prognostic value|link)"
RELATIONS: tuple[tuple[PartRole, bool, re.Pattern[str]], ...] = tuple(
    (role, after, re.compile(rf"\b(?:{cue})\b"))
    for role, after, cue in (
        (PartRole.MEDIATOR, True, r"(?:mediated|explained|accounted for|carried|driven) (?:by|"
         r"through)|due to|because of|by way of|through|via"),
        (PartRole.COVARIATE, False, r"(?:is|are|was|were) (?:taken into account|accounted for|"
         r"adjusted for|controlled for|held constant|known|considered)"),
        (PartRole.COVARIATE, True, r"adjust(?:ed|ing|ment)? (?:for|by)|controll?(?:ed|ing)? for|"
         r"account(?:ing)? for|correct(?:ed|ing) for|independent(?:ly)? (?:of|from)|"
         r"regardless of|irrespective of|beyond|on top of|over and above|given"),
        (PartRole.MODIFIER, True, r"modified by|depend(?:s|ent|ing)? (?:up)?on|"
         r"(?:differs?|differently|different|vary|varies) (?:by|with|between|across|in)|"
         r"(?:limited|restricted|confined) to|"
         r"(?:more|less|stronger|weaker|longer|shorter)(?: \w+){0,3}? in(?= .*\bthan in\b)"),
        (PartRole.MODIFIER, False, rf"modif\w+|(?:chang|alter|influenc)\w+ {EFFECT}"),
        (PartRole.MEDIATOR, False, r"mediat\w+|explains?|account for"),
    )
)  # fmt: skip
"""Relations besides that of exposure and outcome: the role of the names after or before a cue."""
BENEFITING = re.compile(r"\bbenefit (?:more|less|most|least)\b")
TOGETHER = re.compile(r"\binteract\w*\b")
EXPLAIN = re.compile(
    r"\b(?:mediat\w+|mechanisms?|why|through (?:what|which)|explain\w*|how does|underl\w+)\b"
)
NEGATION = re.compile(
    r"\b(?:other than|except(?: for)?|apart from|besides|excluding|(?:but|and) not(?: in)?|"
    r"instead of|rather than)\s+(?:the |high |low )?$"
)
COMPARED = re.compile(r"\b(?:compared (?:with|to)|versus|vs|than)\s+(?:the )?(?:high |low )?$")
PERSON = r"(?:patients?|tumors?|women|men|people|cases?|those|ones|individuals|subjects)"
PEOPLE_WITH = re.compile(
    rf"\b{PERSON}\s+(?:with|who (?:have|had|received|were given)|having|receiving|treated with|on|"
    r"under)\s+(?:an? |the )?$"
)
WITHOUT = re.compile(
    r"\b(?:without|with no|lacking|who (?:did not receive|have no|had no))\s+(?:an? |the )?$"
)
AMONG = re.compile(
    rf"\b(?:in|among|amongst|within|for|after)\s+(?:(?:the|those|all|only|{PERSON}|subgroup|of|with|who|"
    r"have|had|are|were|an?)\s+)*$"
)
"""Words before the patients that a question is about."""
GROUP = re.compile(
    r"[\s-]*(?:patients?|tumors?|tumours?|cases?|diseases?|cancers?|carcinomas?|subtypes?|people|"
    r"individuals|ones|phenotypes?|subgroups?)\b"
)
HIGH = re.compile(
    r"\b(?:high|higher|elevated|increased|abundant|strong|more|many|(?:lots|plenty) of|larger?|"
    r"bigger|greater|older)\s+$"
)
LOW = re.compile(
    r"\b(?:low|lower|reduced|decreased|scarce|sparse|weak|less|few|fewer|little|small(?:er)?|younger)\s+$"
)
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
LISTED = frozenset(
    {"and", "or", "as", "well", "the", "both", "patient", "patients", "tumors", "in"}
)
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


PEOPLE = re.compile(r"(?:wo)?m[ae]n|(?:fe)?males?|(?:\w+[- ])?smokers")


def _of_level(level: LevelMatch, start: int, end: int) -> Condition:
    return Condition(start, end, level.variable.label, level.filters)


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
        self.matches = [match for match in self.matches if not self._is_noun(match)]
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
        """Match numbered subgroups, then the longest names and levels from the left."""
        found: list[Match] = []
        taken: set[int] = set()
        for condition in find_numbers(self.text, self.vocabulary.labels):
            taken |= {
                at
                for at, word in enumerate(self.words)
                if condition.start <= word.start < condition.end
            }
            words = self.prompt[condition.start : condition.end]
            found.append(Match(condition.start, condition.end, words, condition=condition))
        at = 0
        while at < len(self.words):
            size, match = 0, None
            for size, phrase in phrases_at(self.prompt, self.words, at, EDGES):
                if taken & set(range(at, at + size)):
                    continue
                match = self._level(phrase, at, size) or self._name(phrase, at, size)
                if match is not None:
                    found.append(match)
                    taken |= set(range(at, at + size))
                    break
            at += size if match is not None else 1
        return found, taken

    def _is_noun(self, match: Match) -> bool:
        """Check whether a word for people only names those of the level before it."""
        person = match.condition is None and PEOPLE.fullmatch(match.phrase.casefold())
        return bool(person) and any(
            other.condition is not None and other.end + 1 == match.start for other in self.matches
        )

    def _level(self, phrase: str, at: int, size: int) -> Match | None:
        """Match a level of a variable, if the words around it say that it is one."""
        labels = self.vocabulary.labels
        start, end = self.words[at].start, self.words[at + size - 1].end
        known = labels.find(phrase, part=False)
        before, after = self.text[:start], self.text[end:]
        without = WITHOUT.search(before)
        present = False if without else True if PEOPLE_WITH.search(before) else None
        level = labels.level(phrase, present=present) if present is not None else None
        if level is not None:
            start = without.start() if without else start
            words = self.prompt[start:end]
            return Match(start, end, words, None, _of_level(level, start, end))
        if known is not None or self.vocabulary.is_outcome(phrase):
            return None
        level = labels.level(phrase)
        if level is None or (
            level.bare
            and not (
                GROUP.match(after)
                or AMONG.search(before)
                or COMPARED.search(before)
                or is_code(phrase)
                or PEOPLE.fullmatch(phrase.casefold())
                or self._name(phrase, at, size) is None
            )
        ):
            return None
        return Match(start, end, phrase, None, _of_level(level, start, end))

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
        cues = [found.span() for _, _, cue in RELATIONS for found in cue.finditer(self.text)]
        taken |= {
            at
            for at, word in enumerate(self.words)
            if any(start <= word.start < end for start, end in cues)
        }
        unmatched: list[Match] = []
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
                    if unmatched and re.fullmatch(
                        r" of (?:the )?", self.text[unmatched[-1].end : start]
                    ):
                        start = unmatched.pop().start
                    unmatched.append(Match(start, end, self.prompt[start:end]))
        return unmatched

    def text_before(self, match: Match) -> str:
        """Return the lower-case text before a match."""
        return self.text[: match.start]

    def is_group(self, match: Match) -> bool:
        """Check whether a name says which patients are meant ("in HER2-positive breast cancer")."""
        rest = self.text[match.end :]
        beside = next((it for it in self.matches if it.start == match.end + 1), None)
        disease = beside is not None and beside.concept is not None and organ_of(beside.phrase)
        grouped = GROUP.match(rest) or GROUP.search(f" {match.phrase.casefold()}")
        return bool((grouped or disease) and AMONG.search(self.text_before(match)))

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

    measured = any(it.concept and it.concept.variables and not it.outcome for it in matches)

    def is_spare(match: Match) -> bool:
        open_to = match.concept.open_to if match.concept is not None else ""
        return bool(open_to) and (is_beside(match) or (open_to == "any" and measured))

    return [match for match in matches if not is_spare(match)]


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
    related = _find_related(matcher)
    versus = _find_compared(matcher)
    markers = any(
        match.concept is not None
        and not match.outcome
        and match.concept.kind not in (*DRUGS, EntityType.DISEASE)
        for match in matches
    )
    named = any(
        match.concept is not None
        and match not in related
        and _role_of_name(matcher, match, markers, negated=False) is PartRole.EXPOSURE
        for match in matches
    )
    excluded: Match | None = None
    for match in matches:
        listed = excluded is not None and matcher.words_between(excluded, match) <= LISTED
        negated = listed or NEGATION.search(matcher.text_before(match)) is not None
        excluded = match if negated else None
        if match in related:
            role = related[match]
        elif match in versus:
            role = versus[match]
        elif match.condition is not None:
            cue = AMONG.search(matcher.text_before(match)) or PEOPLE_WITH.search(
                matcher.text_before(match)
            )
            people = match.condition.variable in ("age", "sex") or WITHOUT.match(match.phrase)
            role = PartRole.POPULATION if cue or named or people else PartRole.EXPOSURE
        else:
            role = _role_of_name(matcher, match, markers, negated)
        parts.append(
            Asked(
                words=match.corrected_from or match.phrase,
                role=role,
                name=match.phrase,
                negated=negated,
                level=_level(matcher, match)
                if role in (PartRole.EXPOSURE, PartRole.MODIFIER)
                else None,
                corrected_from=match.corrected_from,
            )
        )
    if not any(match.outcome and match.concept and match.concept.name for match in matches):
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


def _role_of_name(matcher: Matcher, match: Match, markers: bool, negated: bool) -> PartRole:
    before, concept = matcher.text_before(match), match.concept
    assert concept is not None
    if concept.outcome:
        return PartRole.ENDPOINT
    person = PEOPLE.fullmatch(match.phrase.casefold())
    people = bool(person or PEOPLE_WITH.search(before) or matcher.is_group(match))
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
    """Return the side that a name is asked about ("high CD8", "larger nuclei")."""
    if match.concept is None:
        return None
    first, _, rest = match.phrase.casefold().partition(" ")
    before = f"{first} " if rest else matcher.text_before(match)
    for text in (before, matcher.text_before(match)):
        if HIGH.search(text) or LOW.search(text):
            return "high" if HIGH.search(text) else "low"
    return None


def _find_compared(matcher: Matcher) -> dict[Match, PartRole]:
    """Find two levels of a variable that are compared ("luminal A … than luminal B")."""
    out: dict[Match, PartRole] = {}
    levels = [match for match in matcher.matches if match.condition is not None]
    for first, second in pairwise(levels):
        assert first.condition is not None and second.condition is not None
        same = first.condition.variable == second.condition.variable
        if same and AGAINST.fullmatch(matcher.text, first.end, second.start):
            out |= {first: PartRole.EXPOSURE, second: PartRole.COMPARATOR}
            others = [it for it in matcher.matches if it.concept is not None and not it.outcome]
            if others and re.search(r"\b(?:in|between|among)\s+(?:the )?$",
                                    matcher.text_before(first)):  # fmt: skip
                out |= {first: PartRole.MODIFIER, second: PartRole.MODIFIER}
    return out


def _find_related(matcher: Matcher) -> dict[Match, PartRole]:
    """Find the matches that a cue makes mediators, modifiers or covariates, with listed ones."""
    plain = [
        match
        for match in matcher.matches
        if match.concept is None
        or not (
            match.outcome
            or match.concept.open_to
            or (match.concept.kind is EntityType.DISEASE and organ_of(match.concept.name))
        )
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
            text = (
                f"{text[: found.start()]}{' ' * (found.end() - found.start())}{text[found.end() :]}"
            )
    if TOGETHER.search(text) and PartRole.MODIFIER not in out.values():
        named = [match for match in plain if match.concept is not None]
        out |= dict.fromkeys(named[1:2], PartRole.MODIFIER)
    arms = [match.start for match in plain if match.condition is not None]
    benefit = BENEFITING.search(text)
    if benefit and max(arms, default=0) > benefit.end():
        out |= {match: PartRole.MODIFIER for match in plain if match.end <= benefit.start()}
    return out


def _place_unmatched(matcher: Matcher, parts: list[Asked]) -> tuple[list[Asked], list[str]]:
    """Make unmatched words unknown parts if the question may be about them, else notes."""
    unknown: list[Asked] = []
    notes = []
    exposed = any(part.role is PartRole.EXPOSURE and not part.negated for part in parts)
    roles = {part.words: part.role for part in parts}
    for match in matcher.unmatched:
        words, before = match.phrase, matcher.text_before(match)
        symbol = any(
            is_code(word) and word[0].isalpha() and len(word) > 2 for word in words.split()
        )
        beside = next((it for it in matcher.matches if it.start == match.end + 1), None)
        role = roles.get(beside.phrase) if beside is not None else None
        sided = f"{words.casefold()} "
        if any(
            side.fullmatch(sided) or side.fullmatch(words) for side in (HIGH, LOW, WORSE, BETTER)
        ):
            continue
        related = [
            own
            for own, follows, cue in RELATIONS
            if follows and re.search(rf"(?:{cue.pattern})\s+(?:the |an? )?$", before)
        ]
        if related:
            unknown.append(Asked(words=words, role=related[0], name=words))
        elif PEOPLE_WITH.search(before) or matcher.is_group(match):
            unknown.append(Asked(words=words, role=PartRole.POPULATION, name=words))
        elif role is not None and role is not PartRole.ENDPOINT:
            unknown.append(Asked(words=words, role=role, name=words))
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
    if PartRole.MEDIATOR in roles:
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
