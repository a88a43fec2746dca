"""The scientist without a model, which derives refutable claims from relationships.

Each chain is read from its first entity to its last. Entities measured in the cohort
become exposures, the endpoint is the end of the chain (or the endpoint with the most
events), and the sign of the claim is the product of the polarities along the chain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.core.base import Resources
from agents.core.types import DictionaryView, Relationship
from agents.question.carried import excluded_keys
from agents.question.types import Level
from agents.scientist.drafts import draft, endpoint_of, names_of, plain
from agents.scientist.views import Proposal, ScientistInput, StepRef
from kg.lexicon.ontology import Ontology
from kg.types import EntityType, Polarity
from sage.core.printable import within_sentence
from validation.core.dictionary import Endpoint
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Hypothesis,
)

SIGN = {Polarity.POSITIVE: 1, Polarity.NEGATIVE: -1, Polarity.NEUTRAL: 0}
BAD_OUTCOME = ("mortality", "death", "recurrence", "progression", "metasta", "risk", "relapse")


@dataclass(frozen=True)
class Measured:
    """A chain entity that the cohort measures; `risk` is +1 if high means higher risk."""

    name: str
    exposure: Exposure
    modality: str
    risk: int


Ranked = tuple[bool, int, int, int, list[Relationship], list[Measured]]
"""Sort key for a chain: no support, modalities and signs (negated), number, steps, entities."""


def proposals(
    given: ScientistInput, resources: Resources, known: Mapping[str, Level] | None = None
) -> Iterator[Proposal]:
    """Yield claims from the chains that were not proposed before, starting with the best chain.

    `known` is the level of each variable with higher risk, from literature outside the
    chains.

    Chains are ranked by whether they are stronger than in rewired graphs, then by the number
    of entities that the cohort measures (two with different modalities first), then by
    whether the literature gives a sign, then by their order in the brief.
    """
    chains = sorted({edge.chain for edge in given.brief.relationships})
    excluded = excluded_keys(given.question)
    ranked: list[Ranked] = []
    for chain in chains:
        steps = [edge for edge in given.brief.relationships if edge.chain == chain]
        measured = [
            entity
            for entity in _find_measured(steps, given.dictionary, resources.ontology)
            if entity.exposure.variable not in excluded
        ]
        if not measured:
            continue
        modalities = {item.modality for item in measured}
        signed = sum(item.risk != 0 for item in measured)
        missing = not steps[0].supported
        ranked.append((missing, -min(len(modalities), 2), -min(signed, 2), chain, steps, measured))
    ranked = [(*row[:5], _signed_by_others(row[5], ranked, known or {})) for row in ranked]
    for *_, chain, steps, measured in sorted(ranked, key=lambda row: row[:4]):
        outcomes = [name for name, kind in _entities(steps) if kind is EntityType.CLINICAL_ENDPOINT]
        endpoint = endpoint_of(given, outcomes)
        for chosen in _choices(measured):
            hypothesis = _claim(given, chosen, steps, endpoint)
            if hypothesis.statement not in given.already:
                rest = tuple(
                    measured.exposure
                    for group in ranked
                    for measured in group[5]
                    if measured.risk
                    and measured.exposure.variable not in {c.exposure.variable for c in chosen}
                )
                unique = tuple({exposure.variable: exposure for exposure in rest}.values())[:4]
                yield Proposal(
                    hypothesis=hypothesis,
                    support=tuple(StepRef(chain=chain, step=step.step) for step in steps)[:12],
                    conjecture=any(entity.risk == 0 for entity in chosen),
                    refinements=unique,
                    concepts=_concepts(chosen, endpoint, given.brief.relationships),
                )


def list_support(
    given: ScientistInput, resources: Resources, hypothesis: Hypothesis
) -> tuple[StepRef, ...]:
    """List the chain steps between a claim's exposures, or to its endpoint, at most 12.

    Empty unless the chains name every exposure: a mechanism of one marker explains no pair.
    """
    variables = {exposure.variable for exposure in hypothesis.exposures}
    outcome = {
        plain(name)
        for endpoint in given.dictionary.endpoints
        if endpoint.key == hypothesis.endpoint
        for name in (endpoint.key, endpoint.label)
    }
    found: list[StepRef] = []
    named = set[str]()
    for chain in sorted({edge.chain for edge in given.brief.relationships}):
        steps = [edge for edge in given.brief.relationships if edge.chain == chain]
        names = [name for name, _ in _entities(steps)]
        claimed = {
            entity.name: entity.exposure.variable
            for entity in _find_measured(steps, given.dictionary, resources.ontology)
            if entity.exposure.variable in variables
        }
        ends = {names[0], names[-1]}
        if ends & claimed.keys() and all(e in claimed or plain(e) in outcome for e in ends):
            found += [StepRef(chain=chain, step=step.step) for step in steps]
            named |= set(claimed.values())
    return tuple(found[:12]) if named == variables else ()


def _signed_by_others(
    measured: list[Measured], ranked: Sequence[Ranked], known: Mapping[str, Level]
) -> list[Measured]:
    """Fill in missing signs of chain entities with the signs implied by other chains.

    If the chains imply none, the sign in `known` is used.
    """
    totals = Counter({key: 1 if level == "high" else -1 for key, level in known.items()})
    for row in ranked:
        for entity in row[5]:
            # Chains outvote `known`.
            totals[entity.exposure.variable] += 2 * entity.risk
    found = []
    for entity in measured:
        total = totals[entity.exposure.variable]
        if entity.risk == 0 and total:
            exposure = entity.exposure.model_copy(update={"level": "low" if total < 0 else "high"})
            entity = replace(entity, exposure=exposure, risk=1 if total > 0 else -1)
        found.append(entity)
    return found


def _concepts(
    chosen: tuple[Measured, ...], endpoint: Endpoint, edges: tuple[Relationship, ...]
) -> tuple[str, ...]:
    """Return the graph's names for exposures and endpoint, and the paths' most frequent disease."""
    diseases = [
        name
        for edge in edges
        for name, kind in ((edge.head, edge.head_type), (edge.tail, edge.tail_type))
        if kind is EntityType.DISEASE
    ]
    most = max(sorted(set(diseases)), key=diseases.count) if diseases else ""
    names = [*(measured.name for measured in chosen), endpoint.label.lower(), most]
    return tuple(dict.fromkeys(name for name in names if name))


def _choices(measured: list[Measured]) -> list[tuple[Measured, ...]]:
    """List pairs with different modalities first, then other pairs, then single exposures."""
    pairs = [
        (first, second)
        for index, first in enumerate(measured)
        for second in measured[index + 1 :]
        if first.exposure.variable != second.exposure.variable
    ]
    mixed = [pair for pair in pairs if pair[0].modality != pair[1].modality]
    same = [pair for pair in pairs if pair[0].modality == pair[1].modality]
    return [*mixed, *same, *((item,) for item in measured)]


def _find_measured(
    steps: list[Relationship], dictionary: DictionaryView, ontology: Ontology
) -> list[Measured]:
    found: dict[str, Measured] = {}
    for name, kind in _entities(steps):
        if kind is EntityType.CLINICAL_ENDPOINT:
            continue
        match = _variable(name, dictionary, ontology)
        if match is None or match[0] in found:
            continue
        key, label, modality = match
        label = within_sentence(label)
        risk = _risk(name, steps)
        found[key] = Measured(
            name=name,
            exposure=Exposure(
                variable=key,
                label=label,
                level="low" if risk < 0 else "high",
                cut=CutRule.MEDIAN,
            ),
            modality=modality,
            risk=risk,
        )
    return list(found.values())


def _entities(steps: list[Relationship]) -> list[tuple[str, EntityType]]:
    """Return the chain's entities in traversal order."""
    names: dict[str, EntityType] = {}
    for step in steps:
        pair = [(step.head, step.head_type), (step.tail, step.tail_type)]
        for name, kind in pair if step.forward else reversed(pair):
            names.setdefault(name, kind)
    return list(names.items())


def _variable(
    name: str, dictionary: DictionaryView, ontology: Ontology
) -> tuple[str, str, str] | None:
    """Find the dictionary's variable for an entity by gene symbol, key, label or synonym."""
    entry = ontology.find(name)
    names = [name, *([entry.name, *entry.synonyms] if entry else [])]
    upper = {gene.upper(): gene for gene in dictionary.genes}
    for text in names:
        gene = upper.get(text.upper())
        if gene:
            return f"expression:{gene}", f"{gene} expression", "expression"
    wanted = {plain(name) for name in names}
    for variable in dictionary.variables:
        if variable.kind == "continuous" and not variable.late and wanted & names_of(variable):
            return variable.key, variable.label, variable.modality
    return None


def _risk(name: str, steps: list[Relationship]) -> int:
    """Return +1 if the chain implies that more of `name` worsens the outcome, -1 if better, else 0.

    The sign is the product of the polarities between the entity and the nearest outcome on
    the chain, in either direction. A neutral edge in between leaves the sign undetermined.
    """
    entities = _entities(steps)
    kinds = dict(entities)
    place = [entity for entity, _ in entities].index(name)
    outcomes = [
        index
        for index, (_, kind) in enumerate(entities)
        if kind in (EntityType.CLINICAL_ENDPOINT, EntityType.DISEASE) and index != place
    ]
    for target in sorted(outcomes, key=lambda index: (abs(index - place), index)):
        low, high = min(place, target), max(place, target)
        sign = 1
        for step in steps[low:high]:
            sign *= SIGN[step.polarity]
        outcome = entities[target][0]
        if sign:
            return sign * harm(outcome, kinds[outcome])
    return _read_in_quotes(name, steps)


NO_SUPPORT = "No support in the graph: its chain is no stronger than in graphs rewired at random."

BETTER = re.compile(
    r"\b(?:better|longer|favou?rable|improved|good)\b[^.;]{0,40}\b(?:prognosis|survival|outcome)"
)
WORSE = re.compile(
    r"\b(?:poor|poorer|worse|shorter|unfavou?rable|reduced|adverse)\b[^.;]{0,40}"
    r"\b(?:prognosis|survival|outcome)"
)


def _read_in_quotes(name: str, steps: list[Relationship]) -> int:
    """Infer the sign from sentences in the sources if the edges are neutral.

    Counts sentences on the entity's own edges that report a better or worse outcome; with a
    tie, or no such sentence, the sign remains undetermined.
    """
    quotes = {
        citation.quote.lower()
        for step in steps
        if name in (step.head, step.tail)
        for citation in (*step.evidence, *step.contradicting)
        if not citation.retracted
    }
    worse = sum(bool(WORSE.search(quote)) for quote in quotes)
    better = sum(bool(BETTER.search(quote)) for quote in quotes)
    return (worse > better) - (better > worse)


def harm(outcome: str, kind: EntityType) -> int:
    """Return +1 if more of the outcome is worse for the patient (recurrence), -1 if better."""
    if kind is EntityType.DISEASE:
        return 1
    lowered = outcome.lower()
    timed = "free" in lowered or lowered.startswith("time to ")
    return 1 if any(word in lowered for word in BAD_OUTCOME) and not timed else -1


def _claim(
    given: ScientistInput,
    chosen: tuple[Measured, ...],
    steps: list[Relationship],
    endpoint: Endpoint,
) -> Hypothesis:
    unmeasured = [
        name
        for name, kind in _entities(steps)
        if kind not in (EntityType.CLINICAL_ENDPOINT, EntityType.DISEASE)
        and name not in {measured.name for measured in chosen}
    ]
    unsigned = [measured.exposure.label for measured in chosen if measured.risk == 0]
    return draft(
        given,
        [measured.exposure for measured in chosen],
        endpoint,
        comparison=Comparison.EXTREMES if len(chosen) > 1 else Comparison.EXPOSED_VS_REST,
        direction=Direction.HIGHER_RISK,
        rationale="; ".join(dict.fromkeys(step.process for step in steps)) + "."
        if steps[0].supported
        else NO_SUPPORT,
        unsigned=unsigned,
        untested=[f"the role of {name} in the mechanism" for name in unmeasured],
    )
