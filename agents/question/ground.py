"""Grounding of a parsed question in the cohort, ontology and graph, to form its contract."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from agents.core.words import quote_remark
from agents.question.labels import Labels, LevelMatch
from agents.question.names import OPTIONAL, key_of, read_table, terms_of
from agents.question.read import CUE, OFF_TOPIC, find_unread, lower, match_within
from agents.question.subgroups import find_contradictions, find_numbers, invert_filters
from agents.question.types import (
    Asked,
    GraphName,
    Intent,
    Part,
    PartRole,
    Question,
    QuestionInput,
    Reading,
    Setting,
    find_lost_sides,
    lacks_outcome,
)
from agents.question.vocabulary import Concept, Vocabulary, organ_of, without_organ
from kg.lexicon.ontology import Ontology
from kg.types import EntityType
from sage.core.printable import quote_text
from validation.core.dictionary import POOLED, level_key
from validation.inputs.population import two_levels

ADJUSTED = (PartRole.COVARIATE, PartRole.MEDIATOR)
"""Roles that accept a variable of any kind with all of its levels."""
ALONE = 'is not compared with another level of its variable ("grade 3 versus grade 1")'
NO_OUTCOME = (
    "The question lacks an outcome: it relates its parts to each other, and SAGE tests relations to"
    " an outcome of patients. Name the outcome, or declare one of the parts as an endpoint in"
    " cohort.toml."
)
Fields = dict[str, Any]
"""Fields of a part that are set by grounding."""


def ground(
    given: QuestionInput,
    reading: Reading,
    vocabulary: Vocabulary,
    original: Reading | None = None,
) -> Question:
    """Look up each part of the question in the cohort, ontology and graph.

    Names come from the reader (rules or a model); keys, proxies, supplies and refusals are
    determined here. If the user corrected the `original` reading, words in the prompt that
    are in none of its parts or notes become qualifiers.
    """
    setting = _setting(given, reading)
    notes = [quote_remark(note) for note in reading.notes]
    refusals = [quote_remark(reason) for reason in reading.refusals]
    parts: list[Part] = []
    read = original or reading
    unread = [] if read.refusals or read.language != "en" else _unread(given, read, vocabulary)
    for asked in (*_with_exposure(reading), *unread):
        part, note = _part(asked, given, vocabulary, setting)
        if any(_same(part, earlier) for earlier in parts):
            continue  # "tertiary lymphoid structures (TLS)"
        parts.append(part)
        if note:
            notes.append(f"{note}.")
        if part.stands_in and part.testable:
            notes.append(
                f"{part.quoted} is not measured itself; measured instead: {part.stands_in}."
            )
    parts = _pair_levels(parts, vocabulary.labels)
    return Question(
        prompt=given.prompt,
        language=reading.language,
        intent=reading.intent,
        direction=reading.direction,
        parts=tuple(parts),
        setting=setting,
        notes=tuple(dict.fromkeys(notes)),
        refusals=tuple(dict.fromkeys(refusals or _refusals(reading, parts, given))),
    )


def _unread(given: QuestionInput, reading: Reading, vocabulary: Vocabulary) -> list[Asked]:
    """List the words in the prompt that no part or note contains."""
    spoken = [it for part in reading.parts for it in (part.words, part.corrected_from) if it]
    spoken += [it for note in reading.notes for it in re.findall(r'"([^"]+)"', str(note))]
    prompt, text = given.prompt, lower(given.prompt)
    patterns = [rf"(?<!\w){re.escape(lower(it))}(?:{_in_short(it)})?(?!\w)" for it in spoken]
    spans = [found.span() for pattern in patterns for found in re.finditer(pattern, text)]
    outcomes = [part.name for part in reading.parts if part.role is PartRole.ENDPOINT]
    found = [prompt[slice(*it)] for it in find_unread(prompt, spans, vocabulary, outcomes)]
    return [Asked(words=words, role=PartRole.QUALIFIER, name=words) for words in found]


def _in_short(words: str) -> str:
    """Return a pattern for a name's initials, as given in parentheses after it."""
    return r" \(" + "".join(re.escape(it[0]) for it in re.findall(r"\w+", lower(words))) + r"s?\)"


def _with_exposure(reading: Reading) -> list[Asked]:
    """Return the parts, making a treatment the exposure if the question has no other exposure."""
    roles = {part.role for part in reading.parts if not part.negated}
    alone = PartRole.EXPOSURE not in roles and reading.intent is Intent.RELATE
    return [
        part.model_copy(update={"role": PartRole.EXPOSURE})
        if alone and part.role is PartRole.TREATMENT
        else part
        for part in reading.parts
    ]


def _same(part: Part, earlier: Part) -> bool:
    """Check whether a word is another name, at the same level, for an earlier part."""
    if part.role is PartRole.MODIFIER and part.filters == () and part.variables:
        bases = [[key.partition("=")[0] for key in item.variables] for item in (part, earlier)]
        return earlier.role is part.role and bases[0] == bases[1]
    alike = ("role", "negated", "level", "name", "variables", "endpoint", "filters", "supply")
    return bool(part.name) and all(getattr(part, it) == getattr(earlier, it) for it in alike)


def resolve(asked: Asked, vocabulary: Vocabulary) -> Concept | None:
    """Find the entity that a part names; for a population, patient groups are tried first."""
    name = asked.name
    if numbers := find_numbers(lower(name), vocabulary.labels):
        return Concept(numbers[0].name, condition=True, filters=numbers[0].filters)
    if asked.role is PartRole.POPULATION:
        without = CUE["without"].match(lower(name) + " ") or re.match(
            r"(?:without|no|not) ", lower(name)
        )
        level = None if without else vocabulary.find_level(name)
        bare = name[without.end() :] if without else name
        if found := level or vocabulary.find_level(bare, present=not without):
            return found
    found = vocabulary.find(
        name, patients=asked.role not in (PartRole.ENDPOINT, PartRole.TREATMENT)
    )
    return found or vocabulary.find_gene(name) or match_within(name, vocabulary)


def _part(
    asked: Asked, given: QuestionInput, vocabulary: Vocabulary, setting: Setting
) -> tuple[Part, str]:
    shared = ("words", "role", "negated", "level", "corrected_from")
    base = Part.model_validate({name: getattr(asked, name) for name in shared})
    if asked.role is PartRole.QUALIFIER:
        near = tuple(vocabulary.labels.similar(asked.name)[:3])
        return base.model_copy(update={"supply": _unknown(asked, given), "nearest": near}), ""
    concept, note = resolve(asked, vocabulary), ""
    update: Fields | None = None
    if asked.role is PartRole.POPULATION:
        if concept is not None and concept.condition:
            return _subgroup(base, concept, given), ""
        update = _cancer(asked, concept, given, setting, vocabulary)
        rows = read_table("organs.tsv")
        sex = next((row[2] for row in rows if setting.cohort.startswith(row[0])), "")
        if sex and terms_of(asked.name) == terms_of(sex):
            return base.model_copy(update={"name": sex, "setting": True}), (
                f"{given.cohort.cohort} does not record sex: {quote_text(asked.words)} are all"
                " of its patients"
            )
    elif asked.role is not PartRole.ENDPOINT:
        update, note = _compare_levels(asked, concept, vocabulary)
    if update is None and concept is None:
        update = {"nearest": vocabulary.similar(asked.name), "supply": _unknown(asked, given)}
    elif update is None and concept is not None:
        update, note = _resolve_measured(asked, concept, given, vocabulary)
    return base.model_copy(update=update), note


def _compare_levels(
    asked: Asked, concept: Concept | None, vocabulary: Vocabulary
) -> tuple[Fields | None, str]:
    """Return the comparison between the levels that a part names or its variable has."""
    keys = {item.key: item for item in vocabulary.labels.variables}
    if concept is not None and concept.level is not None:
        variable = concept.level.variable
        key, side = concept.level.exposure
        known: Fields = {"name": variable.label, "variables": (key,)}
        if asked.role in (PartRole.EXPOSURE, PartRole.COMPARATOR):
            return known | {"filters": concept.filters, "level": side}, ""
        if variable.kind == "categorical" or asked.role in ADJUSTED:
            known["variables"] = (variable.key,)
        return known, ""
    if concept is not None and concept.condition:
        key = concept.about
        own: Fields = {"variables": (key,), "filters": concept.filters}
        return (own | {"name": keys[key].label} if key else None), ""
    measured = concept is not None and concept.variables and not concept.every
    found = keys.get(concept.variables[0]) if concept is not None and measured else None
    if concept is None or found is None or found.kind not in ("binary", "categorical"):
        return None, ""
    known = {"name": found.label, "variables": (found.key,), "nearest": concept.nearest}
    if asked.role in ADJUSTED:
        return known, ""
    if found.kind == "binary" and two_levels(found.levels) is None:
        upper = level_key(found.key, [vocabulary.labels.upper(found)])
        return known | {"variables": (upper,)}, ""
    if found.kind == "binary" or asked.role is not PartRole.EXPOSURE:
        return known, ""
    if (rest := vocabulary.labels.reference(found)) is not None:
        key, side = rest.exposure
        compared = " or ".join(str(value) for value in rest.values)
        return known | {"variables": (key,), "level": side}, (
            f"{quote_text(asked.words)} compares {compared} with all other patients"
        )
    listed = ", ".join(level for level in found.levels if level != POOLED)
    how = f"{found.label} has several levels ({listed}): name the one to compare, or two"
    return known | {"variables": (), "supply": how}, ""


def _pair_levels(parts: list[Part], labels: Labels) -> list[Part]:
    """Restrict a comparison of two levels to patients with either level.

    The only two levels of a variable are compared with each other ("women outlive men").
    """
    known = {item.key: item for item in labels.variables}
    exposed = [it for it in parts if it.role is PartRole.EXPOSURE and it.variables]
    sides = [it.filters[0] for it in (*exposed, *parts)
             if it.filters and it.role in (PartRole.EXPOSURE, PartRole.COMPARATOR)]  # fmt: skip
    out: list[Part] = []
    for part in parts:
        about = next(iter(part.about), "")
        if part in exposed and part.filters and any(it.about == part.about for it in out):
            only = about in known and len(known[about].levels) == 2
            part = part.model_copy(update={"role": PartRole.COMPARATOR} if only else {})
        if part.role is PartRole.COMPARATOR and part.supply and exposed:
            about = next(iter(exposed[0].about))  # "KRAS-mutant … than wild type"
            level = labels.level(f"{known[about].label} {part.words}") if about in known else None
            if level is not None and level.variable.key == about:
                filters = level.filters if exposed[0].filters else ()
                held: Fields = {"name": known[about].label, "variables": (about,)}
                part = part.model_copy(update=held | {"filters": filters, "supply": ""})
        if part.role is PartRole.COMPARATOR and part.filters:
            variable = known[part.filters[0].variable]
            both = [it.value for it in (*sides, *part.filters) if it.variable == variable.key]
            several = [it if isinstance(it, tuple) else (it,) for it in both if it is not None]
            values = tuple(dict.fromkeys(value for listed in several for value in listed))
            whole = len(values) == len({*variable.levels} - {POOLED})
            kept = () if whole else LevelMatch(variable, values).filters
            part = part.model_copy(update={"filters": kept, "variables": (variable.key,)})
        out.append(part)
    return out


def _cancer(
    asked: Asked,
    concept: Concept | None,
    given: QuestionInput,
    setting: Setting,
    vocabulary: Vocabulary,
) -> Fields | None:
    """Return the population implied by a cancer name: this cohort, part of it, or another.

    It is the whole cohort only if the cohort's title, name or notes contain all words of the
    cancer name; any remaining words must form a condition.
    """
    organ = organ_of(asked.name) or organ_of(concept.name if concept else "")
    if not organ or (concept is not None and concept.kind not in (EntityType.DISEASE, None)):
        return None
    name, cohort = concept.name if concept else asked.name, given.cohort
    node = concept.graph_node if concept else ""
    known: Fields = {"name": name, "kind": EntityType.DISEASE, "graph_node": node}
    if setting.cohort and organ_of(setting.cohort) != organ:
        how = f"{cohort.cohort} is not a cohort of {name}; give one with --cohort"
        return known | {"setting": True, "supply": how}
    declared = terms_of(" ".join((cohort.title, cohort.cohort, *cohort.notes)), label=True)
    kind = without_organ(asked.name)
    if terms_of(kind) - OPTIONAL <= declared or (
        concept is not None and terms_of(concept.name) - OPTIONAL <= declared
    ):
        return known | {"setting": True}
    found = vocabulary.find(kind, patients=True)
    if found is not None and found.filters:
        return {"name": found.name, "filters": found.filters}
    how = (
        f"{cohort.cohort} neither says that all its patients have {quote_text(kind.strip())} "
        "nor records who has: add a variable to its cohort.toml, or say so in its title"
    )
    return known | {"supply": how}


def _resolve_measured(
    asked: Asked, concept: Concept, given: QuestionInput, vocabulary: Vocabulary
) -> tuple[Fields, str]:
    """Resolve a name in its role to variables or to missing data, with a note."""
    cohort = given.cohort.cohort
    known: Fields = {"name": concept.name, "kind": concept.kind}
    if asked.role is not PartRole.ENDPOINT and concept.endpoint and not concept.variables:
        how = f"{concept.name} is an outcome of {cohort} and cannot be a marker"
        return {"name": concept.name, "supply": how}, ""
    if asked.role is PartRole.ENDPOINT and not concept.outcome:
        concept = replace(concept, variables=())
    if asked.role is PartRole.TREATMENT and not concept.variables:
        received = _everybody(concept, given, vocabulary.ontology)
        if received:
            return known | {"setting": True}, (
                f"Every patient of {cohort} received {received}: who benefits from it"
                " cannot be distinguished from who does well anyway"
            )
    known |= {"graph_node": concept.graph_node, "ontology_id": concept.ontology_id}
    if asked.role is PartRole.POPULATION:
        bound = f'{concept.name} has no such level: give a bound, as in "over 65"'
        measured = bound if concept.variables else _unknown(asked, given)
        return known | {"supply": concept.supply or measured}, ""
    represented = concept.variables or concept.endpoint or concept.open_to
    copied = ("variables", "every", "open_to", "stands_in", "endpoint", "nearest")
    known |= {name: getattr(concept, name) for name in copied}
    supply = concept.supply or ("" if represented else _unknown(asked, given))
    return known | {"supply": supply}, concept.note


def _subgroup(base: Part, concept: Concept, given: QuestionInput) -> Part:
    name, filters = concept.name, concept.filters
    if not filters:
        how = f"{given.cohort.cohort} has no {name} with such a value; add one to its cohort.toml"
        return base.model_copy(update={"name": name, "supply": how})
    update: Fields = {"name": name, "filters": filters}
    if base.negated:
        update = {"name": f"not {name}", "filters": invert_filters(filters), "negated": False}
    return base.model_copy(update=update)


def _everybody(concept: Concept, given: QuestionInput, ontology: Ontology) -> str:
    """Return the treatment of this name or class given to the whole cohort, by its title."""
    title = f" {key_of(given.cohort.title)} "
    if f" {key_of(concept.name)} " in title:
        return concept.name
    entry = ontology.find(concept.name)
    members, seen = [entry.id] if entry else [], set[str]()
    while members:
        member = members.pop()
        seen.add(member)
        for link, other in ontology.list_related(member):
            if link != "narrower" or other.id in seen:
                continue
            if f" {key_of(other.name)} " in title:
                return f"{other.name} ({concept.name})"
            members.append(other.id)
    return ""


def _unknown(asked: Asked, given: QuestionInput) -> str:
    how = f"neither graph nor ontology nor {given.cohort.cohort} has a name for "
    how += quote_text(asked.words)
    if asked.role is PartRole.QUALIFIER:
        return f"{how}, and the other parts do not say it"
    return (
        f"{how}; a graph built from literature on it would (`sage kg build`), and a cohort that"
        " measures it"
    )


def _setting(given: QuestionInput, reading: Reading) -> Setting:
    populations = [part.name for part in reading.parts if part.role is PartRole.POPULATION]
    asked = next(filter(organ_of, populations), "")
    texts = (given.cohort.title, given.cohort.cohort, *given.cohort.notes)
    organ = next(filter(None, map(organ_of, texts)), "")
    cohort, graph = f"{organ} cancer" if organ else "", disease_of_graph(given.graph)
    mismatches = [
        text.format(first, second, given.cohort.cohort)
        for first, second, text in (
            (asked, cohort, "The question is about {0}, and the cohort {2} about {1}."),
            (asked, graph, "The question is about {0}, and the knowledge graph about {1}."),
            (cohort, graph, "The cohort {2} is about {0}, and the knowledge graph about {1}."),
        )
        if first and second and organ_of(first) != organ_of(second)
    ]
    return Setting(asked=asked, graph=graph, cohort=cohort, mismatches=tuple(mismatches))


def disease_of_graph(names: tuple[GraphName, ...]) -> str:
    """Return the cancer involved in most of the graph's links to cancers."""
    weights = Counter[str]()
    for node in names:
        if node.kind is EntityType.DISEASE and (organ := organ_of(node.name)):
            weights[organ] += node.degree
    organ = max(sorted(weights), key=lambda name: weights[name], default="")
    return f"{organ} cancer" if organ and weights[organ] > sum(weights.values()) / 2 else ""


def _refusals(reading: Reading, parts: list[Part], given: QuestionInput) -> list[str]:
    exposures = [part for part in parts if part.role is PartRole.EXPOSURE and not part.negated]
    endpoints = [part for part in parts if part.role is PartRole.ENDPOINT]
    out = _contradicted(parts, exposures)
    if not parts:
        out.append(OFF_TOPIC)
    if reading.intent is Intent.PREDICT_RESPONSE:
        out += [
            f"Who benefits from {part.quoted} cannot be tested: {part.supply}. A claim on"
            " survival without it would be prognostic, not predictive; to ask that instead, leave"
            f" it out: --drop {part.quoted}."
            for part in parts
            if part.role is PartRole.TREATMENT and part.supply
        ]
    for listed, role, option in (
        (endpoints, "outcome", "--endpoint"),
        (exposures, "exposure", "--exposure"),
    ):
        if listed and not out and not any(part.testable for part in listed):
            out += [_untestable(part, role, option, given) for part in listed]
    if not out:
        out += [
            f"The comparison lacks a side: {part.quoted}"
            f" {f'cannot be tested: {part.supply}' if part.supply else ALONE}."
            f" Put it in other words, or leave it out with --drop {part.quoted}."
            for part in find_lost_sides(parts)
        ]
    if not out and lacks_outcome(reading.intent, parts):
        out.append(NO_OUTCOME)
    return out


def _contradicted(parts: list[Part], exposures: list[Part]) -> list[str]:
    filters = [item for part in parts if part.role is PartRole.POPULATION for item in part.filters]
    excluded = {part.name for part in parts if part.role is PartRole.EXPOSURE and part.negated}
    texts = [
        text
        for own in [(), *(part.filters for part in exposures)]
        for text in find_contradictions((*filters, *own))
    ]
    texts += [
        f"{part.name} is asked for and excluded" for part in exposures if part.name in excluded
    ]
    return [f"The question contradicts itself: {text}." for text in dict.fromkeys(texts)]


def _untestable(part: Part, role: str, option: str, given: QuestionInput) -> str:
    how = part.supply or f"{given.cohort.cohort} does not measure it"
    near = f" Nearest: {', '.join(part.nearest)}." if part.nearest else ""
    return (
        f"The {role} {part.quoted} cannot be tested: {how}.{near} Choose another with `sage ask"
        f" {option}`, and give its --json to `sage run --spec`."
    )
