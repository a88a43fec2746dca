"""Reading a question by rules: names to parts, each with what it is to the claim."""

from __future__ import annotations

import re

from agents.question.reader import Hit, Reader, code
from agents.question.subgroups import Condition
from agents.question.types import Asked, Intent, Level, PartRole, Reading
from agents.question.vocabulary import Concept, Vocabulary, organ_of
from agents.question.words import NAMES, READ
from kg.types import EntityType
from validation.core.hypothesis import Direction

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
PROGNOSIS = re.compile(r"\b(?:prognos\w+|outcomes?)\b")
LIVING = re.compile(r"\b(?:liv(?:e|es|ed|ing)|surviv(?:e|es|ed|ing)|outliv\w+|die[sd]?|dying)\b")
"""Verbs that ask about survival without its name."""
RECURRING = re.compile(r"\brecur(?:s|red)?\b")


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
    parts: list[Asked] = []
    roles = _Roles(reader, hits)
    out_of: Hit | None = None
    """The last of those that are ruled out: what is listed with it is ruled out as well."""
    for hit in hits:
        between = reader.tokens[out_of.last : hit.first] if out_of is not None else []
        negated = bool(NEGATION.search(reader.before(hit.first))) or (
            out_of is not None and all(token.text.casefold() in LISTED for token in between)
        )
        out_of = hit if negated else None
        words = reader.words_of(hit.first, hit.last)
        if hit.condition is not None:
            if hit.condition.aside:
                continue
            role = roles.of_condition(hit, hit.condition)
            contrast = hit.condition.contrast
            if role is PartRole.POPULATION and contrast is not None:
                side = hit.condition.level
                parts.append(
                    Asked(words=words, role=PartRole.EXPOSURE, name=contrast.label, level=side)
                )
                if not hit.condition.filters:
                    continue
        else:
            role = roles.of_name(hit, negated)
        run = reader.tokens[hit.first : hit.last]
        respelled = any(token.corrected_from for token in run)
        parts.append(
            Asked(
                words=words,
                role=role,
                name=hit.phrase,
                negated=negated,
                level=_level(reader, hit, role),
                corrected_from=" ".join(token.corrected_from or token.text for token in run)
                if respelled
                else "",
            )
        )
    return _merged(parts + _plain_outcome(reader, hits))


class _Roles:
    """The part that each name plays, by the words about it and by what else is named."""

    def __init__(self, reader: Reader, hits: list[Hit]) -> None:
        self.reader = reader
        self.modifiers = _modifiers(reader, hits)
        self.adjusted = _adjusted(reader, hits)
        self.about_drugs = bool(BENEFIT.search(reader.text))
        self.markers = any(
            hit.concept is not None
            and not hit.concept.outcome
            and hit.concept.kind not in DRUGS
            and hit.concept.kind is not EntityType.DISEASE
            for hit in hits
        )
        """Something besides drugs, diseases and outcomes is named."""

    def of_condition(self, hit: Hit, condition: Condition) -> PartRole:
        before = self.reader.before(hit.first)
        within = self.markers and re.search(r"\b(?:in|between|among)\s+(?:the )?$", before)
        if hit in self.modifiers or (condition.contrast is not None and within):
            return PartRole.MODIFIER
        return PartRole.POPULATION

    def of_name(self, hit: Hit, negated: bool) -> PartRole:
        before = self.reader.before(hit.first)
        concept = hit.concept
        if concept is None:
            return PartRole.EXPOSURE
        if hit in self.adjusted:
            return PartRole.COVARIATE
        if concept.outcome:
            return PartRole.ENDPOINT
        people = WITH_PEOPLE.search(before)
        if concept.kind is EntityType.DISEASE and (organ_of(concept.name) or people):
            return PartRole.POPULATION
        if hit in self.modifiers:
            return PartRole.MODIFIER
        if self.markers and self._is_treatment(hit, concept):
            return PartRole.TREATMENT
        if people:
            return PartRole.POPULATION
        return PartRole.COMPARATOR if COMPARED.search(before) and not negated else PartRole.EXPOSURE

    def _is_treatment(self, hit: Hit, concept: Concept) -> bool:
        if concept.kind in DRUGS and not concept.variables:
            return True
        return self.about_drugs and (concept.kind in DRUGS or _is_drug_record(self.reader, hit))


def _level(reader: Reader, hit: Hit, role: PartRole) -> Level | None:
    """The side that a name is asked about ("high CD8")."""
    if hit.concept is None or role not in (PartRole.EXPOSURE, PartRole.MODIFIER):
        return None
    before = reader.before(hit.first)
    return "high" if HIGH.search(before) else "low" if LOW.search(before) else None


def _plain_outcome(reader: Reader, hits: list[Hit]) -> list[Asked]:
    """The outcome in everyday words ("live longer"), where none is named."""
    if any(hit.concept is not None and hit.concept.outcome and hit.concept.name for hit in hits):
        return []
    for pattern, name in ((PROGNOSIS, "survival"), (LIVING, "survival"), (RECURRING, "recurrence")):
        if match := pattern.search(reader.text):
            words = reader.words_at(match.start(), match.end())
            return [Asked(words=words, role=PartRole.ENDPOINT, name=name)]
    return []


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
