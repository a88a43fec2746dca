"""Reading a question by rules: words to parts, each with what it is to the claim."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agents.prose.check import plain_words
from agents.question.subgroups import Condition, conditions
from agents.question.types import Asked, Intent, Level, PartRole, Reading
from agents.question.vocabulary import Concept, Vocabulary, organ_of
from agents.question.words import (
    NAMES,
    READ,
    Token,
    bare,
    fold,
    language_of,
    tokenize,
    translate,
    word_list,
)
from kg.types import EntityType
from validation.hypothesis import Direction

LONGEST = 7
STOP, MEASURING, ENGLISH = (word_list(name) for name in ("stop", "measuring", "english"))
DRUGS = (EntityType.TREATMENT, EntityType.CHEMICAL)
BENEFIT = re.compile(r"\b(?:respon\w+|benefit\w*|sensitiv\w+|resist\w+)\b")
PREDICT = re.compile(
    r"\b(?:predict\w*|benefit\w*|sensitiv\w+|resist\w+|(?:bio)?markers? of response|who responds)\b"
)
CHANGES = re.compile(
    r"\b(?:modif\w+|chang\w+ the (?:effect|association|role)|alter\w* the (?:effect|association)|"
    r"influenc\w+ the (?:effect|association)|strengthen\w* the|weaken\w* the)\b"
)
DEPENDS = re.compile(
    r"\b(?:depends? (?:up)?on|differs? (?:by|with|between|across)|var(?:y|ies) (?:by|with|across)|"
    r"different (?:by|between|in|across)|conditional on|modified by|"
    r"(?:more|less|stronger|weaker|longer|shorter) in(?= .*\bthan in\b))\b"
)
TOGETHER = re.compile(r"\b(?:interact\w*|interactions?)\b")
EXPLAIN = re.compile(
    r"\b(?:mediat\w+|mechanisms?|why|through (?:what|which)|explain\w*|how does|underl\w+)\b"
)
DISCOVER = re.compile(r"\b(?:which|what|find|identify|discover|novel|propose|search for)\b")
NEGATION = re.compile(
    r"\b(?:other than|except(?: for)?|apart from|besides|excluding|(?:but|and) not|not counting|"
    r"instead of|rather than|without considering|(?:but|and) (?:not|never) in)\s+"
    r"(?:the |high |low )?$"
)
COMPARED = re.compile(r"\b(?:compared (?:with|to)|versus|vs|than)\s+(?:the )?(?:high |low )?$")
HIGH = re.compile(
    r"\b(?:high|higher|elevated|increased|abundant|strong|more|rich in|many|numerous|"
    r"(?:lots|plenty|a lot) of)\s+$"
)
LOW = re.compile(
    r"\b(?:low|lower|reduced|decreased|scarce|sparse|weak|less|poor in|few|fewer|little)\s+$"
)
WORSE = re.compile(
    r"\b(?:shorten\w*|shorter|worse|worsen\w*|poor(?:er)?|reduced?s? (?:the )?\w*\s*survival|"
    r"harm\w*|unfavorable|adverse|"
    r"(?:die\w*|dying|relapse\w*|recur\w*) (?:earlier|sooner|more often)|"
    r"(?:rais|increas)\w* (?:the )?(?:risk|recurrences?|relapses?|mortality|deaths?))\b"
)
BETTER = re.compile(
    r"\b(?:prolong\w*|longer|improv\w+|better|extend\w*|lengthen\w*|favorable|protect\w*|"
    r"(?:reduc|lower|decreas|prevent)\w* (?:the )?(?:risk|recurrences?|relapses?|mortality|deaths?|"
    r"progression))\b"
)
MORE_BENEFIT = re.compile(r"\bbenefit\w* (?:more|most|better)\b|\bmore benefit\b")
BOTH_WAYS = re.compile(
    rf"(?:{WORSE.pattern})\s+(?:and|but also)\s+(?:{BETTER.pattern})|"
    rf"(?:{BETTER.pattern})\s+(?:and|but also)\s+(?:{WORSE.pattern})"
)
CONTROL = re.compile(
    r"\b(?:negative control|unrelated|should not (?:relate|matter)|no relation|"
    r"not (?:associated|related|linked|relate|predict))\b"
)
ADJUSTED = re.compile(
    r"\b(?:adjust(?:ed|ing|ment)? (?:for|by)|controll(?:ed|ing) for|control for|"
    r"account(?:ed|ing)? for|correct(?:ed|ing) for|independent(?:ly)? (?:of|from)|"
    r"given|on top of|over and above)\s+(?:the |an? )?$"
)
LISTED = frozenset(
    {"and", "or", "as", "well", "the", "both", "patient", "patients", "tumor", "tumors", "und",
     "sowie", "et", "ou", "y", "e", "le", "la", "les", "der", "die", "das", "el", "los", "las"}
)  # fmt: skip
"""Words between the members of a list."""
WITH_PEOPLE = re.compile(
    r"\b(?:patients?|tumors?|women|men|people|cases?|individuals)\s+(?:with|who have|having)\s+"
    r"(?:an? |the )?$"
)
TOPIC = re.compile(
    r"\b(?:surviv\w+|prognos\w+|biomarkers?|tumou?rs?|cancers?|carcinomas?|genes?|histolog\w*|"
    r"patholog\w*|patients|cohort|immune|stroma\w*|expression|metasta\w+|respons\w+)\b"
)


VERBS = ("cause", "causes")
"""Words of questions that a cohort may have as the key of an endpoint."""
PROGNOSIS = re.compile(r"\b(?:prognos\w+|outcomes?)\b")
LIVING = re.compile(r"\b(?:liv(?:e|es|ed|ing)|surviv(?:e|es|ed|ing)|outliv\w+|die[sd]?|dying)\b")
"""Verbs that ask about survival without its name."""
RECURRING = re.compile(r"\brecur(?:s|red)?\b")
COUNTED = frozenset(
    ("lots", "plenty", "many", "few", "fewer", "numerous", "versus", "protective", "harmful",
     "live", "lives", "lived", "living", "survive", "survives", "survived", "surviving", "outlive",
     "excluding", "die", "dies", "died", "dying", "earlier", "sooner", "recur", "recurs",
     "recurred")
)  # fmt: skip
"""Words that are read by patterns, not by names."""
POSSESSIVE = re.compile(r"['’]s$")
QUALIFIERS = re.compile(
    r"\b(?:ratio of|changes? in|protein|signature|\d+[- ]years?|"
    r"(?:spatial |mean |median )*distances? (?:between|to|from)|near|close to|proximity|next to|"
    r"(?:above|below|over|under|within|at least|at most) \d[\d.]*(?: \w+)?)\b",
    re.IGNORECASE,
)
"""What makes another quantity of a measured one, or another outcome, which no claim carries."""


@dataclass(frozen=True)
class Hit:
    """A concept in the text: from token `first` up to `last`, excluded."""

    first: int
    last: int
    phrase: str
    concept: Concept | None
    condition: Condition | None = None


class Reader:
    """One prompt under reading."""

    def __init__(self, prompt: str, vocabulary: Vocabulary) -> None:
        self.prompt = prompt
        self.vocabulary = vocabulary
        self.notes: list[str] = []
        self.language = language_of(prompt)
        self.tokens = tokenize(prompt)
        if self.language not in ("en", "") and self.language in READ:
            self.tokens, terms = translate(self.tokens, self.language)
            if terms:
                self.notes.append(
                    f"Read in {NAMES[self.language]}: {', '.join(dict.fromkeys(terms))}."
                )
        self.free = plain_words() | word_list("en") | word_list("asking") | COUNTED
        self._correct()
        self._split()
        self._index()

    def _index(self) -> None:
        starts = []
        at = 0
        for token in self.tokens:
            starts.append(at)
            at += len(token.text) + 1
        self.starts = starts
        self.text = " ".join(token.text for token in self.tokens).casefold()

    def words_of(self, first: int, last: int) -> str:
        """The asker's own words of a run of tokens."""
        run = self.tokens[first:last]
        return self.prompt[min(token.start for token in run) : max(token.end for token in run)]

    def words_at(self, start: int, end: int) -> str:
        """The asker's own words of a stretch of the text as it is read."""
        run = [index for index, at in enumerate(self.starts) if start <= at < end]
        return self.words_of(run[0], run[-1] + 1)

    def before(self, first: int) -> str:
        """The text before a token."""
        return self.text[: self.starts[first]]

    # -- spelling -----------------------------------------------------------------------------

    def _correct(self) -> None:
        from rapidfuzz import fuzz, process

        if self.language not in ("en", *READ):
            return
        words = self.vocabulary.words
        tokens = list(self.tokens)
        for index, token in enumerate(tokens):
            pieces = token.text.split("-")
            mended = []
            for piece in pieces:
                plain = piece.casefold()
                odd = (
                    self.language == "en"
                    and piece.isalpha()
                    and piece.isascii()
                    and not (piece.isupper() and len(piece) > 1)
                    and not self._known_word(plain)
                )
                better = ""
                if odd and len(plain) >= 5:
                    found = process.extractOne(plain, words, scorer=fuzz.ratio, score_cutoff=82)
                    if found is not None and found[0][0] == plain[0]:
                        better = found[0]
                elif len(plain) in (3, 4) and plain not in STOP:
                    better = self._short(tokens, index, plain)
                mended.append(better or piece)
            text = "-".join(mended)
            if text != token.text:
                tokens[index] = Token(text, token.start, token.end, token.breaks, token.text)
                self.notes.append(f'"{token.text}" is read as "{text}".')
        self.tokens = tokens

    def _split(self) -> None:
        """Two genes written as one word ("FABP5/CXCL13")."""
        tokens = []
        for token in self.tokens:
            pieces = token.text.split("/")
            find = self.vocabulary.find
            if len(pieces) == 1 or find(token.text) or not all(find(piece) for piece in pieces):
                tokens.append(token)
                continue
            at = token.start
            for piece in pieces:
                tokens.append(Token(piece, at, at + len(piece), token.breaks and at == token.start))
                at += len(piece) + 1
        self.tokens = tokens

    def _known_word(self, plain: str) -> bool:
        bare = [plain.removesuffix(ending) for ending in ("", "s", "es", "d", "ed", "ing")]
        forms = {*bare, plain.removesuffix("ies") + "y"}
        return bool(forms & (self.vocabulary.words | self.free | ENGLISH))

    def _short(self, tokens: list[Token], index: int, plain: str) -> str:
        """A short word's correction, where the word beside it makes it part of a name."""
        before = tokens[index - 1].text.casefold() if index else ""
        after = tokens[index + 1].text.casefold() if index + 1 < len(tokens) else ""
        if (before, plain) in self.vocabulary.pairs or (plain, after) in self.vocabulary.pairs:
            return ""
        near = [
            word
            for pair in self.vocabulary.pairs
            for word, other, neighbor in ((pair[1], pair[0], before), (pair[0], pair[1], after))
            if other == neighbor and word[:2] == plain[:2] and 0 < len(word) - len(plain) <= 1
        ]
        return sorted(near)[0] if near else ""

    # -- matching -----------------------------------------------------------------------------

    def hits(self) -> list[Hit]:
        """Subgroups first, then the longest names from the left."""
        taken: dict[int, Hit] = {}
        for condition in conditions(self.text, self.vocabulary.cohort.variables):
            inside = [
                index
                for index, start in enumerate(self.starts)
                if condition.start <= start < condition.end
            ]
            if inside:
                hit = Hit(inside[0], inside[-1] + 1, condition.words, None, condition)
                taken[inside[0]] = hit
        blocked = {index for hit in taken.values() for index in range(hit.first, hit.last)}
        out: list[Hit] = list(taken.values())
        at = 0
        while at < len(self.tokens):
            size = 0
            for size in range(min(LONGEST, len(self.tokens) - at), 0, -1):
                run = range(at, at + size)
                if blocked & set(run) or any(self.tokens[index].breaks for index in run[1:]):
                    continue
                if self._stop(at) or self._stop(at + size - 1):
                    continue
                phrase = " ".join(token.text for token in self.tokens[at : at + size])
                if phrase.casefold() in VERBS:
                    continue
                concept = self.vocabulary.find(phrase)
                if concept is None and POSSESSIVE.search(phrase):
                    phrase = POSSESSIVE.sub("", phrase)
                    concept = self.vocabulary.find(phrase)
                if concept is None and size == 1:
                    concept = self._symbol(at)
                if concept is not None:
                    out.append(Hit(at, at + size, phrase, concept))
                    break
            else:
                size = 1
            at += max(1, size)
        return _named(sorted(out, key=lambda hit: hit.first))

    def _stop(self, index: int) -> bool:
        token = self.tokens[index].text
        return token.casefold() in STOP and not (token.isupper() and len(token) > 2)

    def _symbol(self, index: int) -> Concept | None:
        """A gene by a symbol in small letters ("fabp5"), which only a digit tells from a word."""
        token = self.tokens[index].text
        if not re.search(r"\d", token) or not re.search(r"[a-z]", token, re.IGNORECASE):
            return None
        return self.vocabulary.find_gene(token)

    def leftover(self, hits: list[Hit]) -> list[tuple[int, int]]:
        """Runs of content words that nothing matched."""
        used = {index for hit in hits for index in range(hit.first, hit.last)}
        runs: list[list[int]] = []
        for index, token in enumerate(self.tokens):
            if index in used or not self._content(token):
                continue
            if runs and runs[-1][-1] == index - 1 and not token.breaks:
                runs[-1].append(index)
            else:
                runs.append([index])
        return [(run[0], run[-1] + 1) for run in runs]

    def qualifiers(self, hits: list[Hit]) -> list[str]:
        """The asker's words for a quantity that the matched names alone do not say."""
        if self.language != "en":
            return []
        used = [(self.tokens[hit.first].start, self.tokens[hit.last - 1].end) for hit in hits]
        return [
            found[0]
            for found in QUALIFIERS.finditer(self.prompt)
            if not any(start < found.end() and found.start() < end for start, end in used)
        ]

    def _content(self, token: Token) -> bool:
        text = token.text
        if text.casefold() == self.vocabulary.cohort.cohort.casefold():
            return False
        if code(text) and text.casefold() not in STOP:
            return True
        if not text[0].isalpha() or len(text) < (3 if self.language == "en" else 4):
            return False
        if self.language != "en" and fold(bare(text)) in word_list(self.language):
            return False
        plain = text.casefold()
        return plain not in STOP and plain not in self.free and plain not in MEASURING


def _named(hits: list[Hit]) -> list[Hit]:
    """Without a class word that only says what the name beside it is ("the gene HPRT1")."""
    ends = {hit.last: hit for hit in hits}
    starts = {hit.first: hit for hit in hits}

    def of_name(hit: Hit) -> bool:
        beside = (starts.get(hit.last), ends.get(hit.first))
        return not hit.phrase.endswith("s") and any(
            other is not None and other.concept is not None and other.concept.variables
            for other in beside
        )

    return [hit for hit in hits if not (hit.concept and hit.concept.open_to and of_name(hit))]


def code(text: str) -> bool:
    """True for what looks like a symbol: FGFR33, HIV, CD8."""
    return len(text) >= 3 and (
        sum(char.isupper() for char in text) >= 2
        or (any(char.isdigit() for char in text) and text[0].isalpha())
    )


def read(prompt: str, vocabulary: Vocabulary) -> Reading:
    """The question's intent and parts by rules.

    What cannot be read (no words, a language without a table, nothing of the field) comes back as
    a refusal with what to do.
    """
    if not re.search(r"[^\W\d_]{2,}", prompt):
        return Reading(
            intent=Intent.DISCOVER,
            refusals=(
                "The question is empty. Say what to look for, e.g. sage ask"
                ' "Does FGFR3 expression relate to overall survival?"',
            ),
        )
    reader = Reader(prompt, vocabulary)
    if reader.language not in READ:
        name = NAMES.get(reader.language, "a language that SAGE has no table for")
        return Reading(
            language=reader.language or "unknown",
            intent=Intent.RELATE,
            refusals=(
                f"The question's language could not be read (it seems to be {name}). Ask in"
                " English, German, French or Spanish, or use --reasoner chat.",
            ),
        )
    hits = reader.hits()
    left = reader.leftover(hits)
    parts = _parts(reader, hits)
    parts, aside = _unknown(reader, hits, left, parts)
    aside += [f'Not understood and left aside: "{words}".' for words in reader.qualifiers(hits)]
    notes = [*reader.notes, *aside]
    text = reader.text
    intent = _intent(text, parts, hits)
    if CONTROL.search(text):
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
    outcomes = [hit.concept.name for hit in hits if hit.concept is not None and hit.concept.outcome]
    if len(outcomes) > len(set(outcomes)) and len(outcomes) == len(hits):
        refusals.append(
            "The question contradicts itself: it relates an outcome to itself. Name a marker."
        )
    matched = {hit.phrase for hit in hits if hit.concept is not None or hit.condition is not None}
    if not matched and not TOPIC.search(text):
        parts = []
        refusals.append(
            "The question is off topic: it names no gene, cell, feature, treatment or outcome that"
            " SAGE knows. Ask about a marker and an outcome of patients."
        )
    worse, better = bool(WORSE.search(text)), bool(BETTER.search(text) or MORE_BENEFIT.search(text))
    return Reading(
        language=reader.language,
        intent=intent,
        direction=None
        if worse == better
        else Direction.HIGHER_RISK
        if worse
        else Direction.LOWER_RISK,
        parts=tuple(parts[:16]),
        notes=tuple(dict.fromkeys(notes)),
        refusals=tuple(refusals),
    )


def _parts(reader: Reader, hits: list[Hit]) -> list[Asked]:
    specific = any(
        hit.concept is not None and hit.concept.outcome and hit.concept.name for hit in hits
    )
    modifiers = _modifiers(reader, hits)
    adjusted = _adjusted(reader, hits)
    about_drugs = bool(BENEFIT.search(reader.text))
    others = any(
        hit.concept is not None
        and not hit.concept.outcome
        and hit.concept.kind not in DRUGS
        and hit.concept.kind is not EntityType.DISEASE
        for hit in hits
    )
    parts: list[Asked] = []
    out_of: Hit | None = None
    """The last of those that are ruled out: what is listed with it is ruled out as well."""
    for hit in hits:
        words = reader.words_of(hit.first, hit.last)
        before = reader.before(hit.first)
        between = reader.tokens[out_of.last : hit.first] if out_of is not None else []
        negated = bool(NEGATION.search(before)) or (
            out_of is not None and all(token.text.casefold() in LISTED for token in between)
        )
        out_of = hit if negated else None
        run = reader.tokens[hit.first : hit.last]
        corrected = (
            " ".join(token.corrected_from or token.text for token in run)
            if any(token.corrected_from for token in run)
            else ""
        )
        role = PartRole.EXPOSURE
        level: Level | None = None
        if hit.condition is not None:
            if hit.condition.aside:
                continue
            role = PartRole.POPULATION
            contrast = hit.condition.contrast
            within = others and re.search(r"\b(?:in|between|among)\s+(?:the )?$", before)
            if hit in modifiers or (contrast is not None and within):
                role = PartRole.MODIFIER
            elif contrast is not None:
                side = hit.condition.level
                name = contrast.label
                parts.append(Asked(words=words, role=PartRole.EXPOSURE, name=name, level=side))
                if not hit.condition.filters:
                    continue
        elif hit.concept is not None:
            concept = hit.concept
            disease = concept.kind is EntityType.DISEASE
            if hit in adjusted:
                role = PartRole.COVARIATE
            elif concept.outcome:
                role = PartRole.ENDPOINT
            elif disease and (organ_of(concept.name) or WITH_PEOPLE.search(before)):
                role = PartRole.POPULATION
            elif hit in modifiers:
                role = PartRole.MODIFIER
            elif others and (
                (concept.kind in DRUGS and (about_drugs or not concept.variables))
                or (about_drugs and _is_drug_record(reader, hit))
            ):
                role = PartRole.TREATMENT
            elif WITH_PEOPLE.search(before):
                role = PartRole.POPULATION
            elif COMPARED.search(before) and not negated:
                role = PartRole.COMPARATOR
            if role in (PartRole.EXPOSURE, PartRole.MODIFIER):
                level = "high" if HIGH.search(before) else "low" if LOW.search(before) else None
        parts.append(
            Asked(
                words=words,
                role=role,
                name=hit.phrase,
                negated=negated,
                level=level,
                corrected_from=corrected,
            )
        )
    for pattern, name in ((PROGNOSIS, "survival"), (LIVING, "survival"), (RECURRING, "recurrence")):
        if not specific and (match := pattern.search(reader.text)):
            words = reader.words_at(match.start(), match.end())
            parts.append(Asked(words=words, role=PartRole.ENDPOINT, name=name))
            break
    return _merged(parts)


def _is_drug_record(reader: Reader, hit: Hit) -> bool:
    """True where a measured variable is a treatment: "benefit from hormonal therapy"."""
    entry = reader.vocabulary.ontology.find(hit.phrase)
    named = entry is not None and entry.type in DRUGS
    return named or bool(re.search(r"therap|treatment|tamoxifen|platin", hit.phrase.casefold()))


def _merged(parts: list[Asked]) -> list[Asked]:
    """A part named twice in one role is one part."""
    out: dict[tuple[PartRole, str, bool], Asked] = {}
    for part in parts:
        out.setdefault((part.role, part.name.casefold(), part.negated), part)
    return list(out.values())


def _modifiers(reader: Reader, hits: list[Hit]) -> list[Hit]:
    """What the effect is asked to depend on."""
    text = reader.text
    plain = [
        hit
        for hit in hits
        if hit.condition is not None
        or (
            hit.concept is not None
            and not hit.concept.outcome
            and not (hit.concept.kind is EntityType.DISEASE and organ_of(hit.concept.name))
        )
    ]
    if match := CHANGES.search(text):
        return [hit for hit in plain if reader.starts[hit.first] < match.start()][-1:]
    if match := DEPENDS.search(text):
        return [hit for hit in plain if reader.starts[hit.first] >= match.end()]
    if TOGETHER.search(text):
        concepts = [hit for hit in plain if hit.concept is not None]
        return concepts[1:2]
    return []


def _adjusted(reader: Reader, hits: list[Hit]) -> list[Hit]:
    """What the question adjusts for: the name after such words, and those listed with it."""
    found: list[Hit] = []
    for hit in hits:
        if hit.concept is None or hit.concept.kind in DRUGS:
            continue
        listed = bool(found) and all(
            token.text.casefold() in LISTED for token in reader.tokens[found[-1].last : hit.first]
        )
        measured = any(not key.startswith("expression:") for key in hit.concept.variables)
        if ADJUSTED.search(reader.before(hit.first)) or (listed and measured):
            found.append(hit)
    return found


def _intent(text: str, parts: list[Asked], hits: list[Hit]) -> Intent:
    roles = {part.role for part in parts}
    drug = PartRole.TREATMENT in roles
    response = any(
        hit.concept is not None
        and hit.concept.outcome
        and hit.phrase.casefold().startswith("respon")
        for hit in hits
    )
    if PartRole.MODIFIER in roles:
        return Intent.MODIFY
    if re.search(r"\bmediat\w+", text):
        return Intent.EXPLAIN
    if (drug and BENEFIT.search(text)) or (PREDICT.search(text) and (drug or response)):
        return Intent.PREDICT_RESPONSE
    classes = any(
        hit.concept is not None and (hit.concept.open_to or hit.concept.every) for hit in hits
    )
    named = any(part.role is PartRole.EXPOSURE and not part.negated for part in parts)
    if classes or (not named and DISCOVER.search(text)) or not named:
        return Intent.DISCOVER
    if EXPLAIN.search(text) and not re.search(r"\bhow do(?:es)?\b.*\brelate", text):
        return Intent.EXPLAIN
    return Intent.RELATE


def _unknown(
    reader: Reader, hits: list[Hit], left: list[tuple[int, int]], parts: list[Asked]
) -> tuple[list[Asked], list[str]]:
    """Content words that nothing matched: a part that is unknown, or a note that says so."""
    notes = []
    has_exposure = any(part.role is PartRole.EXPOSURE and not part.negated for part in parts)
    for first, last in left:
        words = reader.words_of(first, last)
        before = reader.before(first)
        coded = any(code(token.text) for token in reader.tokens[first:last])
        if WITH_PEOPLE.search(before):
            parts.append(Asked(words=words, role=PartRole.POPULATION, name=words))
        elif coded or (not has_exposure and hits and reader.language == "en"):
            parts.append(Asked(words=words, role=PartRole.EXPOSURE, name=words))
        else:
            notes.append(f'Not understood and left aside: "{words}".')
    return parts, notes
