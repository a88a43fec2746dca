"""Grounding of a parsed question in cohort, ontology and graph: the contract of the question."""

from __future__ import annotations

import re
from dataclasses import replace

from agents.core.words import quote_remark
from agents.question.labels import Labels, LevelMatch, conditions_of
from agents.question.names import OPTIONAL, key_of, terms_of
from agents.question.read import OFF_TOPIC, WITHOUT, match_within
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
    Supply,
)
from agents.question.vocabulary import Concept, Vocabulary, organ_of, without_organ
from kg.lexicon.ontology import Ontology
from kg.types import EntityType
from sage.core.printable import quote_text
from validation.core.dictionary import POOLED, level_key
from validation.core.hypothesis import Filter
from validation.inputs.population import two_levels

ADJUSTED = (PartRole.COVARIATE, PartRole.MEDIATOR)
"""Roles in which a variable of any kind serves with all of its levels."""


def ground(given: QuestionInput, reading: Reading, vocabulary: Vocabulary) -> Question:
    """Look up each part of the question in cohort, ontology and graph.

    Names come from the reader (rules or a model); keys, stand-ins, supplies and refusals are
    determined here.
    """
    setting = _setting(given, reading)
    notes = [quote_remark(note) for note in reading.notes]
    parts: list[Part] = []
    for asked in _with_exposure(reading):
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
    refusals = [quote_remark(reason) for reason in reading.refusals]
    if not refusals:
        refusals = _refusals(reading, parts, given)
    return Question(
        prompt=given.prompt,
        language=reading.language,
        intent=reading.intent,
        direction=reading.direction,
        parts=tuple(parts),
        setting=setting,
        notes=tuple(dict.fromkeys(notes)),
        refusals=tuple(dict.fromkeys(refusals)),
    )


def _with_exposure(reading: Reading) -> list[Asked]:
    """Return parts, with a treatment as the exposure if the question asks about nothing else."""
    roles = {part.role for part in reading.parts if not part.negated}
    alone = PartRole.EXPOSURE not in roles and reading.intent is Intent.RELATE
    return [
        part.model_copy(update={"role": PartRole.EXPOSURE})
        if alone and part.role is PartRole.TREATMENT
        else part
        for part in reading.parts
    ]


def _same(part: Part, earlier: Part) -> bool:
    """Check whether a word is another name, on the same side, for something already named."""
    if part.role is PartRole.MODIFIER and part.filters == () and part.variables:
        bases = [[key.partition("=")[0] for key in item.variables] for item in (part, earlier)]
        return earlier.role is part.role and bases[0] == bases[1]
    alike = ("role", "negated", "level", "name", "variables", "endpoint", "filters", "supply")
    return bool(part.name) and all(getattr(part, it) == getattr(earlier, it) for it in alike)


def _part(
    asked: Asked, given: QuestionInput, vocabulary: Vocabulary, setting: Setting
) -> tuple[Part, str]:
    base = Part(
        words=asked.words,
        role=asked.role,
        negated=asked.negated,
        level=asked.level,
        corrected_from=asked.corrected_from,
    )
    if asked.role is PartRole.POPULATION and (found := _conditions(asked, vocabulary)):
        return _subgroup(base, found[0], found[1], given), ""
    concept = (
        vocabulary.find(asked.name)
        or vocabulary.find_gene(asked.name)
        or match_within(asked.name, vocabulary)
    )
    note = ""
    update: dict[str, object] | None = None
    if asked.role is PartRole.POPULATION:
        update = _cancer(asked, concept, given, setting, vocabulary)
    elif asked.role is not PartRole.ENDPOINT:
        update, note = _compared_levels(asked, concept, given, vocabulary)
    if update is None and concept is None:
        nearest = vocabulary.similar(asked.name)
        update = {"nearest": nearest, "supply": (_unknown(asked, given),)}
    elif update is None and concept is not None:
        update, note = _resolve_measured(asked, concept, given, vocabulary)
    return base.model_copy(update=update), note


def _compared_levels(
    asked: Asked, concept: Concept | None, given: QuestionInput, vocabulary: Vocabulary
) -> tuple[dict[str, object] | None, str]:
    """Return what compares the levels that a part names, or those of its variable."""
    labels = vocabulary.labels
    numbered = find_numbers(asked.name.casefold(), labels)
    if numbered and numbered[0].filters:
        key = numbered[0].filters[0].variable
        name = next(item.label for item in labels.variables if item.key == key)
        return {"name": name, "variables": (key,), "filters": numbered[0].filters}, ""
    variable = labels.find(asked.name, part=False)
    level = labels.level(asked.name) if variable is None else None
    if level is not None:
        variable = level.variable
        key, side = level.exposure
        update: dict[str, object] = {"name": variable.label, "variables": (key,)}
        if asked.role in (PartRole.EXPOSURE, PartRole.COMPARATOR):
            return update | {"filters": level.filters, "level": side}, ""
        if variable.kind == "categorical" or asked.role in ADJUSTED:
            update["variables"] = (variable.key,)
        return update, ""
    if variable is None and concept is not None and concept.variables and not concept.every:
        keys = {item.key: item for item in labels.variables}
        variable = keys.get(concept.variables[0])
    if variable is None or variable.kind not in ("binary", "categorical"):
        return None, ""
    known: dict[str, object] = {"name": variable.label}
    known["nearest"] = concept.nearest if concept else ()
    if asked.role in ADJUSTED:
        return known | {"variables": (variable.key,)}, ""
    if variable.kind == "binary" and two_levels(variable.levels) is None:
        return known | {"variables": (level_key(variable.key, [labels.upper(variable)]),)}, ""
    if variable.kind == "binary" or asked.role is not PartRole.EXPOSURE:
        return known | {"variables": (variable.key,)}, ""
    if (rest := labels.reference(variable)) is not None:
        key, side = rest.exposure
        compared = " or ".join(str(value) for value in rest.values)
        return known | {"variables": (key,), "level": side}, (
            f"{quote_text(asked.words)} compares {compared} with all other patients"
        )
    listed = ", ".join(level for level in variable.levels if level != POOLED)
    how = f"{variable.label} has several levels ({listed}): name the one to compare, or two"
    return known | {"supply": (Supply(kind="cohort variable", how=how),)}, ""


def _pair_levels(parts: list[Part], labels: Labels) -> list[Part]:
    """Restrict a comparison of two levels to the patients who are at either."""
    out: list[Part] = []
    for part in parts:
        if part.role is PartRole.COMPARATOR and part.filters:
            own = part.filters[0]
            same = [
                other.filters[0]
                for other in parts
                if other.role is PartRole.EXPOSURE
                and other.filters
                and other.filters[0].variable == own.variable
            ]
            variable = next(item for item in labels.variables if item.key == own.variable)
            values = [value for item in (*same, own) for value in _values(item)]
            whole = len(values) == len([it for it in variable.levels if it != POOLED])
            kept = LevelMatch(variable, tuple(dict.fromkeys(values))).filters
            part = part.model_copy(
                update={"filters": () if whole else kept, "variables": (own.variable,)}
            )
        out.append(part)
    return out


def _values(condition: Filter) -> tuple[str | float, ...]:
    value = condition.value
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _cancer(
    asked: Asked,
    concept: Concept | None,
    given: QuestionInput,
    setting: Setting,
    vocabulary: Vocabulary,
) -> dict[str, object] | None:
    """Return the population that a cancer's name implies: this cohort's, a part, or another's.

    It is the whole cohort only if the cohort's title, name or notes have all of its words; the
    others must be a condition.
    """
    organ = organ_of(asked.name) or organ_of(concept.name if concept else "")
    if not organ or (concept is not None and concept.kind not in (EntityType.DISEASE, None)):
        return None
    name = concept.name if concept else asked.name
    known: dict[str, object] = {
        "name": name,
        "kind": EntityType.DISEASE,
        "graph_node": concept.graph_node if concept else "",
    }
    if setting.cohort and organ_of(setting.cohort) != organ:
        return known | {"setting": True, "supply": (_needs_cohort(name, given),)}
    declared = terms_of(
        " ".join((given.cohort.title, given.cohort.cohort, *given.cohort.notes)), label=True
    )
    kind = without_organ(asked.name)
    if terms_of(kind) - OPTIONAL <= declared or (
        concept is not None and terms_of(concept.name) - OPTIONAL <= declared
    ):
        return known | {"setting": True}
    if found := _conditions(asked.model_copy(update={"name": kind}), vocabulary):
        return {"name": found[0], "filters": found[1]}
    how = (
        f"{given.cohort.cohort} neither says that all its patients have {quote_text(kind.strip())} "
        "nor records who has: add a variable to its cohort.toml, or say so in its title"
    )
    return known | {"supply": (Supply(kind="cohort variable", how=how),)}


def _resolve_measured(
    asked: Asked, concept: Concept, given: QuestionInput, vocabulary: Vocabulary
) -> tuple[dict[str, object], str]:
    """Resolve a name in its role to variables or to missing data, with a note."""
    cohort = given.cohort.cohort
    known: dict[str, object] = {"name": concept.name, "kind": concept.kind}
    if asked.role is not PartRole.ENDPOINT and concept.endpoint and not concept.variables:
        how = f"{concept.name} is an outcome of {cohort} and cannot be a marker"
        return {"name": concept.name, "supply": (Supply(kind="cohort variable", how=how),)}, ""
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
        return known | {"supply": concept.supply or (_unknown(asked, given),)}, ""
    supply = concept.supply
    if not (concept.variables or concept.endpoint or concept.open_to or supply):
        supply = (_unknown(asked, given),)
    return known | {
        "variables": concept.variables,
        "every": concept.every,
        "open_to": concept.open_to,
        "stands_in": concept.stands_in,
        "endpoint": concept.endpoint,
        "nearest": concept.nearest,
        "supply": supply,
    }, concept.note


def _conditions(asked: Asked, vocabulary: Vocabulary) -> tuple[str, tuple[Filter, ...]] | None:
    """Return the subgroup that a name describes, and its conditions (none if it has no value)."""
    name, labels = asked.name.casefold(), vocabulary.labels
    if numbered := find_numbers(name, labels):
        return numbered[0].variable, numbered[0].filters
    filters: list[Filter] = []
    for text in conditions_of(name):
        level = labels.level(text)
        if level is None:
            return name, ()
        filters += level.filters
    if filters:
        return name, tuple(filters)
    without = WITHOUT.match(name + " ") or re.match(r"(?:without|no|not) ", name)
    level = labels.level(name) or labels.level(
        name[without.end() :] if without else name, present=not without
    )
    return (level.variable.label, level.filters) if level is not None else None


def _subgroup(base: Part, what: str, filters: tuple[Filter, ...], given: QuestionInput) -> Part:
    if filters and base.negated:
        update = {"name": f"not {what}", "filters": invert_filters(filters), "negated": False}
        return base.model_copy(update=update)
    if filters:
        return base.model_copy(update={"name": what, "filters": filters})
    how = f"{given.cohort.cohort} has no {what} with such a value; add one to its cohort.toml"
    return base.model_copy(
        update={"name": what, "supply": (Supply(kind="cohort variable", how=how),)}
    )


def _everybody(concept: Concept, given: QuestionInput, ontology: Ontology) -> str:
    """Return the treatment of this name or class that the cohort's title says all received."""
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


def _needs_cohort(name: str, given: QuestionInput) -> Supply:
    return Supply(
        kind="cohort variable",
        how=f"{given.cohort.cohort} is not a cohort of {name}; give one with --cohort",
    )


def _unknown(asked: Asked, given: QuestionInput) -> Supply:
    return Supply(
        kind="literature build",
        how=f"neither graph nor ontology nor {given.cohort.cohort} has a name for "
        f"{quote_text(asked.words)}; a graph built from literature on it would (`sage kg build`), "
        "and a cohort that measures it",
    )


def _setting(given: QuestionInput, reading: Reading) -> Setting:
    asked = next(
        (
            part.name
            for part in reading.parts
            if part.role is PartRole.POPULATION and organ_of(part.name)
        ),
        "",
    )
    cohort = disease_of_cohort(given)
    graph = disease_of_graph(given.graph)
    mismatches = []
    for first, second, text in (
        (asked, cohort, "The question is about {0}, and the cohort {2} about {1}."),
        (asked, graph, "The question is about {0}, and the knowledge graph about {1}."),
        (cohort, graph, "The cohort {2} is about {0}, and the knowledge graph about {1}."),
    ):
        if first and second and organ_of(first) != organ_of(second):
            mismatches.append(text.format(first, second, given.cohort.cohort))
    return Setting(asked=asked, graph=graph, cohort=cohort, mismatches=tuple(mismatches))


def disease_of_cohort(given: QuestionInput) -> str:
    """Return the cancer named in the cohort's title, name or notes."""
    for text in (given.cohort.title, given.cohort.cohort, *given.cohort.notes):
        organ = organ_of(text)
        if organ:
            return f"{organ} cancer"
    return ""


def disease_of_graph(names: tuple[GraphName, ...]) -> str:
    """Return the cancer that most of the graph's links to cancers concern."""
    weights: dict[str, int] = {}
    for node in names:
        organ = organ_of(node.name) if node.kind is EntityType.DISEASE else ""
        if organ:
            weights[organ] = weights.get(organ, 0) + node.degree
    total = sum(weights.values())
    if not total:
        return ""
    organ = max(sorted(weights), key=lambda name: weights[name])
    return f"{organ} cancer" if weights[organ] > total / 2 else ""


def _refusals(reading: Reading, parts: list[Part], given: QuestionInput) -> list[str]:
    exposures = [part for part in parts if part.role is PartRole.EXPOSURE and not part.negated]
    endpoints = [part for part in parts if part.role is PartRole.ENDPOINT]
    out = _contradicted(parts, exposures)
    if not parts:
        out.append(OFF_TOPIC)
    if reading.intent is Intent.PREDICT_RESPONSE:
        out += [
            f"Who benefits from {part.quoted} cannot be tested: {part.supply[0].how}. A claim on"
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
    return out


def _contradicted(parts: list[Part], exposures: list[Part]) -> list[str]:
    filters = [item for part in parts if part.role is PartRole.POPULATION for item in part.filters]
    excluded = {part.name for part in parts if part.role is PartRole.EXPOSURE and part.negated}
    texts = [
        *find_contradictions(filters),
        *(f"{part.name} is asked for and excluded" for part in exposures if part.name in excluded),
    ]
    return [f"The question contradicts itself: {text}." for text in dict.fromkeys(texts)]


def _untestable(part: Part, role: str, option: str, given: QuestionInput) -> str:
    how = part.supply[0].how if part.supply else f"{given.cohort.cohort} does not measure it"
    near = f" Nearest: {', '.join(part.nearest)}." if part.nearest else ""
    return (
        f"The {role} {part.quoted} cannot be tested: {how}.{near} Choose another with `sage ask"
        f" {option}`, and give its --json to `sage run --spec`."
    )
