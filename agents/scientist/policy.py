"""The scientist without a model but with tools: a fixed plan of calls that a model could make.

It drafts the claim posed by the question, claims from the brief's chains, and claims
about measured neighbors of the question's concepts in the graph. It then examines them:
it drops claims that earlier rounds answered and variables that most patients lack or do
not express, keeps the first of two redundant exposures, and puts claims with more power
first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice, product
from typing import Any

from agents.core.base import Resources
from agents.core.statement import label_of, settle_fields
from agents.question.carried import excluded_keys, unanswered
from agents.question.correct import BY_HAND
from agents.question.names import key_of
from agents.question.types import Level, Part, PartRole, Question
from agents.scientist.chains import BETTER, WORSE, list_support, proposals
from agents.scientist.drafts import draft, endpoint_of
from agents.scientist.looks import (
    CohortDescribe,
    DesignClaims,
    GraphNeighbors,
    GraphSearch,
    HistoryAsked,
    LiteratureSearch,
)
from agents.scientist.tools import MOSTLY_UNDETECTED
from agents.scientist.views import Candidates, Proposal, ScientistInput
from kg.types import EntityType
from sage.core.llm.turns import Moves, Use
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Filter,
    Hypothesis,
)

MOST_MISSING = 0.4
REDUNDANT = 0.9
ENOUGH_POWER = 0.6
NEW_CONCEPTS = 4
"""Number of measured neighbors outside the paths that are looked up in the literature."""
MEMBERS = 4
"""Maximum number of drafted claims on members of a class in the question ("stromal genes")."""
MEASURABLE = (
    EntityType.GENE,
    EntityType.PROTEIN,
    EntityType.SIGNATURE,
    EntityType.CELL_TYPE,
    EntityType.IMAGING_FEATURE,
    EntityType.TISSUE_REGION,
)

Looks = Generator[Use, Any, Any]


@dataclass
class Concept:
    """A concept that the cohort measures, and whether the question names it."""

    name: str
    variable: str
    asked: bool = False


@dataclass
class Known:
    """Findings on each variable: the level with higher risk, and the sources."""

    risk: dict[str, Level] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)


def investigate(given: ScientistInput, resources: Resources) -> Moves[Candidates]:
    """Draft up to `given.wanted` candidates with the tools.

    Raises
    ------
    ValueError
        If no claim on a measured variable is left.
    """
    if given.history.next:
        following = yield from _next_claims(given, resources)
        return Candidates(candidates=tuple(following))
    tried = yield from _list_tried(given)
    chained = list(islice(proposals(given, resources), 3 * given.wanted))
    known = Known()
    for proposal in chained:
        if not proposal.conjecture:
            for exposure in proposal.hypothesis.exposures:
                known.risk.setdefault(exposure.variable, exposure.level)
    asked = _asked_concepts(given.question)
    near = yield from _neighbors(given, asked, chained)
    for concept in (*asked, *near):
        yield from _look_up(concept, given, known, resources)
    chained = list(islice(proposals(given, resources, known.risk), 3 * given.wanted))
    first = 2 * given.wanted // 3
    pool = [
        *_direct(given, asked, known),
        *chained[:first],
        *_beyond(given, asked, near, known),
        *chained[first:],
    ]
    pool = [_with_chains(proposal, given, resources) for proposal in pool]
    excluded = excluded_keys(given.question)
    wanted = {concept.variable for concept in asked}
    pool = [
        proposal
        for proposal in pool
        if _key(proposal.hypothesis) not in tried
        and not _contradicts(proposal.hypothesis, given.question, wanted)
        and proposal.hypothesis.statement not in given.already
        and not excluded & {exposure.variable for exposure in proposal.hypothesis.exposures}
    ]
    pool = yield from _fit(pool, given, wanted)
    pool = [proposal for proposal in pool if _key(proposal.hypothesis) not in tried]
    chosen = yield from _strongest(pool, given)
    if not chosen:
        raise ValueError(
            "no further hypothesis: none of the remaining path entities are measured in the"
            " cohort, or too few patients have values for them"
        )
    return Candidates(candidates=tuple(chosen))


def _key(hypothesis: Hypothesis) -> tuple[frozenset[str], str]:
    return frozenset(exposure.variable for exposure in hypothesis.exposures), hypothesis.endpoint


def _next_claims(given: ScientistInput, resources: Resources) -> Looks:
    """Draft the claims that the campaign wants to test next, with sources on their exposures."""
    found = []
    for hypothesis in given.history.next[: given.wanted]:
        known = Known()
        for exposure in hypothesis.exposures:
            name = exposure.variable.split(":")[-1].replace("_", " ")
            yield from _look_up(Concept(name, exposure.variable), given, known, resources)
        sources = tuple(dict.fromkeys(key for keys in known.sources.values() for key in keys))[:12]
        found.append(
            Proposal(
                hypothesis=settle_fields(hypothesis, given.dictionary),
                sources=sources,
                support_absent=not sources,
                conjecture=not known.risk,
            )
        )
    return found


def _list_tried(given: ScientistInput) -> Looks:
    if not given.history.claims:
        return set()
    found = yield Use("history", HistoryAsked())
    return {(frozenset(claim["exposures"]), claim["endpoint"]) for claim in found["claims"]}


def _asked_concepts(question: Question) -> list[Concept]:
    """List measured concepts in the question: one variable each, or the members of a class."""
    roles = (PartRole.EXPOSURE, PartRole.MODIFIER, PartRole.TREATMENT)
    found: dict[str, Concept] = {}
    for role in roles:
        for part in question.testable(role):
            # Papers use the user's words rather than the variable's label.
            plain = question.language == "en" and not part.corrected_from
            name = part.words if plain or not part.name else part.name
            if part.stands_in == BY_HAND:
                name = part.variables[0].split(":")[-1].replace("_", " ")
            for variable in part.variables[: MEMBERS if part.every else 1]:
                member = variable.removeprefix("expression:") if part.every else ""
                concept = Concept(member or name, variable, asked=True)
                found.setdefault(variable, concept)
    return list(found.values())


def _neighbors(
    given: ScientistInput, asked: Sequence[Concept], chained: Sequence[Proposal]
) -> Looks:
    """Find measured concepts adjacent to those in the question, beyond those on the paths."""
    held = {exposure.variable for proposal in chained for exposure in proposal.hypothesis.exposures}
    held |= {concept.variable for concept in asked} | excluded_keys(given.question)
    parts = [part for part in given.question.parts if part.graph_node and not part.negated]
    named = [part.graph_node for part in parts if not part.setting][:2]
    measured = [item.term for item in given.brief.definitions if item.type in MEASURABLE][:1]
    setting = [part.graph_node for part in parts if part.setting]
    disease = given.question.setting.cohort or given.question.setting.graph
    if disease:  # the graph may be about another disease
        same = yield Use("graph_search", GraphSearch(text=disease, limit=3))
        names = {node["name"].casefold() for node in same["entities"]}
        disease = disease if disease.casefold() in names else ""
    found: dict[str, Concept] = {}
    for nodes in (named, measured, setting, [disease] if disease else []):
        if found or (nodes is not named and chained and named):
            break
        for node in nodes:
            look = GraphNeighbors(name=node, types=MEASURABLE, measured_only=True, limit=20)
            around = yield Use("graph_neighbors", look)
            for neighbor in around["neighbors"]:
                for variable in neighbor["measured"][:1]:
                    if variable not in held:
                        found.setdefault(variable, Concept(neighbor["name"], variable))
    return list(found.values())[:NEW_CONCEPTS]


def _look_up(concept: Concept, given: ScientistInput, known: Known, resources: Resources) -> Looks:
    """Look up a concept in the literature, and infer which level is reported as higher risk."""
    endpoint = endpoint_of(given)
    disease = given.question.setting.asked or given.question.setting.cohort
    query = " ".join(part for part in (concept.name, endpoint.label, disease) if part)
    found = yield Use(
        "literature_search", LiteratureSearch(query=query[:300], phrases=(concept.name,), limit=6)
    )
    kept = [source for source in found["sources"] if not source["retracted"]]
    known.sources[concept.variable] = tuple(item["key"] for item in kept)[:3]
    entry = resources.ontology.find(concept.name)
    names = {concept.name, *((entry.name, *entry.synonyms) if entry is not None else ())}
    wanted = [f" {key_of(name)} " for name in names]
    sentences = [
        text
        for item in kept
        for text in item["quotations"]
        if any(name in f" {key_of(text)} " for name in wanted)
    ]
    worse = sum(bool(WORSE.search(text.lower())) for text in sentences)
    better = sum(bool(BETTER.search(text.lower())) for text in sentences)
    if worse != better:
        known.risk.setdefault(concept.variable, "high" if worse > better else "low")


def _direct(given: ScientistInput, asked: Sequence[Concept], known: Known) -> list[Proposal]:
    """Draft the claims that the question poses, in its own terms."""
    question = given.question
    named = {concept.variable: concept for concept in asked}
    groups = [
        [named[variable] for variable in part.variables if variable in named]
        for part in question.testable(PartRole.EXPOSURE)
        if part.variables
    ]
    exposed = {concept.variable for group in groups for concept in group}
    modifiers = [
        named[part.variables[0]]
        for role in (PartRole.MODIFIER, PartRole.TREATMENT)
        for part in question.testable(role)
        if part.variables and part.variables[0] not in exposed
    ]
    if not groups:
        groups, modifiers = [modifiers[:1]], modifiers[1:]
    choices = (
        tuple({concept.variable: concept for concept in chosen}.values())
        for chosen in product(*groups)
    )
    return [
        proposal
        for exposures in islice(choices, MEMBERS)
        if exposures
        for proposal in _designs(given, exposures, modifiers, known)
    ]


def _designs(
    given: ScientistInput,
    exposures: Sequence[Concept],
    modifiers: Sequence[Concept],
    known: Known,
) -> list[Proposal]:
    """Return the ways to compare the requested exposures."""
    question = given.question
    designs: list[tuple[Sequence[Concept], Comparison, CutRule]] = []
    mediators = question.testable(PartRole.MEDIATOR)
    if mediators and (found := _mediation(given, exposures[0], mediators[0], known)):
        return found
    if modifiers:
        predictive = bool(question.testable(PartRole.TREATMENT))
        how = Comparison.PREDICTIVE if predictive else Comparison.MODIFICATION
        pair = (exposures[0], modifiers[0])
        designs.append((pair, how, CutRule.MEDIAN))
        if not _is_binary(given, modifiers[0]):  # for two levels, the product is the same test
            designs.append((pair, Comparison.INTERACTION, CutRule.MEDIAN))
    elif len(exposures) > 1:
        if not {concept.variable for concept in exposures} <= set(_levels_said(question)):
            # Without sides to compare, the question is what the second adds to the first.
            designs.append((exposures[:2], Comparison.ADDED, CutRule.CONTINUOUS))
        designs.append((exposures[:3], Comparison.EXTREMES, CutRule.MEDIAN))
        designs.append((exposures[:3], Comparison.EXPOSED_VS_REST, CutRule.MEDIAN))
        designs += [
            (pair, Comparison.EXTREMES, CutRule.MEDIAN) for pair in combinations(exposures[:4], 2)
        ]
    else:
        designs.append((exposures, Comparison.EXPOSED_VS_REST, CutRule.MEDIAN))
        designs.append((exposures, Comparison.EXPOSED_VS_REST, CutRule.TERTILE))
    levels = _levels(given, modifiers[0]) if modifiers else ()
    if levels:
        # Several levels have no product term, so they are examined one by one.
        single = _proposal(given, exposures[:1], known, Comparison.EXPOSED_VS_REST, CutRule.MEDIAN)
        hypothesis = single.hypothesis.model_copy(update={"subgroups": levels})
        return [single.model_copy(update={"hypothesis": hypothesis})]
    return [_proposal(given, concepts, known, how, cut) for concepts, how, cut in designs]


def _mediation(
    given: ScientistInput, exposure: Concept, part: Part, known: Known
) -> list[Proposal]:
    """Draft the effect through a mediator, if it can be estimated.

    If the mediator has two or more named levels, or the question has no direction, the
    exposure is adjusted for the mediator instead (see `agents.scientist.drafts`).
    """
    mediator = Concept(part.words, part.variables[0], asked=True)
    kind = next((v.kind for v in given.dictionary.variables if v.key == mediator.variable),
                "continuous")  # fmt: skip
    if kind not in ("continuous", "ordinal") or given.question.direction is None:
        return []
    found = _proposal(given, (exposure, mediator), known, Comparison.MEDIATION, CutRule.MEDIAN)
    return [found]


def _is_binary(given: ScientistInput, concept: Concept) -> bool:
    return "=" in concept.variable or any(
        variable.key == concept.variable and variable.kind == "binary"
        for variable in given.dictionary.variables
    )


def _levels(given: ScientistInput, modifier: Concept) -> tuple[Filter, ...]:
    """Build a filter for each of a categorical modifier's largest levels, at most four."""
    found = next(
        (variable for variable in given.dictionary.variables if variable.key == modifier.variable),
        None,
    )
    if found is None or found.kind != "categorical":
        return ()
    levels = [level for level in found.levels if not level.replace(".", "").isdigit()]
    return tuple(
        Filter(variable=found.key, op="eq", value=level)
        for level in sorted(levels, key=lambda level: -found.levels[level])[:4]
    )


def _beyond(
    given: ScientistInput, asked: Sequence[Concept], near: Sequence[Concept], known: Known
) -> list[Proposal]:
    """Draft claims about measured neighbors, by themselves and with the requested exposures."""
    found = []
    for concept in near:
        for other in asked[:1]:
            pair = (other, concept)
            found.append(_proposal(given, pair, known, Comparison.EXTREMES, CutRule.MEDIAN))
        found.append(
            _proposal(given, (concept,), known, Comparison.EXPOSED_VS_REST, CutRule.MEDIAN)
        )
    return found


def _levels_said(question: Question) -> dict[str, Level]:
    """Return the levels about which the question makes a claim; the comparator is the other."""
    return {
        part.variables[0]: part.level
        for part in question.parts
        if part.variables and part.level and part.role is not PartRole.COMPARATOR
    }


def _contradicts(hypothesis: Hypothesis, question: Question, asked: set[str]) -> bool:
    """Check whether a claim's direction contradicts the direction stated in the question."""
    if question.direction is None:
        return False
    said = _levels_said(question)
    along = hypothesis.direction is question.direction
    return any(
        (exposure.level == said.get(exposure.variable, "high")) != along
        for exposure in hypothesis.exposures
        if exposure.variable in asked
    )


def _proposal(
    given: ScientistInput,
    concepts: Sequence[Concept],
    known: Known,
    comparison: Comparison,
    cut: CutRule,
) -> Proposal:
    question, dictionary = given.question, given.dictionary
    endpoint = endpoint_of(given)
    levels = _levels_said(question)
    variables = [concept.variable for concept in concepts]
    conjectured = question.direction is None

    def level_of(concept: Concept) -> Level:
        """Return the level named in the question, or else the level that fits the direction."""
        if concept.variable in levels:
            return levels[concept.variable]
        if concept.asked and not conjectured:
            return "high"  # "shortens" refers to more of it
        harmful = known.risk.get(concept.variable, "high")
        protective = question.direction is Direction.LOWER_RISK
        return "low" if (harmful == "low") != protective else "high"

    exposures = tuple(
        Exposure(
            variable=concept.variable,
            label=label_of(concept.variable, dictionary),
            level=level_of(concept),
            cut=CutRule.MEDIAN if _is_binary(given, concept) else cut,
        )
        for concept in concepts
    )
    if comparison is Comparison.MEDIATION:
        mediator = exposures[1].model_copy(update={"cut": CutRule.CONTINUOUS, "level": "high"})
        exposures = (exposures[0], mediator)
    first = exposures[0]
    against = levels.get(first.variable) and known.risk.get(first.variable, first.level)
    lower = bool(against) and against != first.level
    direction = question.direction or (Direction.LOWER_RISK if lower else Direction.HIGHER_RISK)
    unsigned = [exposure.label for exposure in exposures if exposure.variable not in known.risk]
    sources = tuple(dict.fromkeys(key for v in variables for key in known.sources.get(v, ())))[:12]
    rationale = (
        "The question asks for it."
        if all(concept.asked for concept in concepts)
        else "The graph relates these concepts, and the cohort measures them."
    )
    rationale += (
        " The sources on it are listed."
        if sources
        else " The search found no passage in support of it."
    )
    hypothesis = draft(
        given,
        exposures,
        endpoint,
        comparison=comparison,
        direction=direction,
        rationale=rationale,
        unsigned=unsigned if conjectured else (),
    )
    disease = question.setting.asked or question.setting.cohort
    names = [*(concept.name for concept in concepts), endpoint.label.lower(), disease]
    return Proposal(
        hypothesis=hypothesis,
        sources=sources,
        support_absent=not sources,
        conjecture=bool(unsigned),
        concepts=tuple(dict.fromkeys(name for name in names if name))[:8],
    )


def _with_chains(proposal: Proposal, given: ScientistInput, resources: Resources) -> Proposal:
    """Support an unsupported claim with the chains between its exposures, or to its endpoint."""
    if proposal.support:
        return proposal
    support = list_support(given, resources, proposal.hypothesis)
    absent = proposal.support_absent and not support
    return proposal.model_copy(update={"support": support, "support_absent": absent})


def _fit(pool: Sequence[Proposal], given: ScientistInput, asked: set[str]) -> Looks:
    """Drop claims on variables with too few patients, and exposures that repeat another."""
    if not pool:
        return []
    keys = list(
        dict.fromkeys(
            exposure.variable for proposal in pool for exposure in proposal.hypothesis.exposures
        )
    )[:40]
    seen = yield Use("cohort_describe", CohortDescribe(variables=tuple(keys)))
    poor = {
        variable["variable"]
        for variable in seen["variables"]
        if variable["withheld"]
        or (
            variable["variable"] not in asked
            and (
                (variable["missing"] or 0.0) > MOST_MISSING
                or (variable["lowest"] or 0.0) >= MOSTLY_UNDETECTED
            )
        )
    }
    same = {
        frozenset((correlation["first"], correlation["second"]))
        for correlation in seen["correlations"]
        if abs(correlation["rho"]) > REDUNDANT
    }
    found = []
    for proposal in pool:
        exposures = proposal.hypothesis.exposures
        variables = {exposure.variable for exposure in exposures}
        if variables & poor or not variables <= set(keys):
            continue
        found.append(_without_repeats(proposal, same, given))
    return found


def _without_repeats(
    proposal: Proposal, same: Iterable[frozenset[str]], given: ScientistInput
) -> Proposal:
    """Return the claim without exposures that repeat an earlier exposure."""
    hypothesis = proposal.hypothesis
    kept: list[Exposure] = []
    for exposure in hypothesis.exposures:
        if not any(frozenset((exposure.variable, item.variable)) in same for item in kept):
            kept.append(exposure)
    if len(kept) == len(hypothesis.exposures):
        return proposal
    left = [exposure.label for exposure in hypothesis.exposures if exposure not in kept]
    single = len(kept) == 1
    changed = hypothesis.model_copy(
        update={
            "exposures": tuple(kept),
            "comparison": Comparison.EXPOSED_VS_REST if single else hypothesis.comparison,
            "rationale": f"{hypothesis.rationale} {' and '.join(left)} is left out: it goes hand in"
            " hand with the other exposure in this cohort.",
        }
    )
    return proposal.model_copy(update={"hypothesis": settle_fields(changed, given.dictionary)})


def _strongest(pool: Sequence[Proposal], given: ScientistInput) -> Looks:
    """Select the wanted number of claims: those that answer the question first, then by power."""
    different: dict[object, Proposal] = {}
    for proposal in pool:
        # The same comparison with the opposite sign is the same test.
        hypothesis = proposal.hypothesis
        different.setdefault((_key(hypothesis), hypothesis.comparison), proposal)
    pool = list(different.values())[:40]
    if not pool:
        return []
    claims = tuple(proposal.hypothesis for proposal in pool)
    found = yield Use("design_power", DesignClaims(claims=claims))
    ordered = []
    refused = []
    for place, (proposal, design) in enumerate(zip(pool, found["designs"], strict=True)):
        if design["refused"]:
            refused.append(f"{proposal.hypothesis.statement} {design['refused']}")
            continue
        lost = len(unanswered(given.question, proposal.hypothesis))
        weak = (design["power"] or 0.0) < ENOUGH_POWER
        ordered.append(((lost, weak, place), proposal))
    if not ordered:
        raise ValueError(f"none of the drafted hypotheses can be tested. {refused[0]}")
    return [proposal for _, proposal in sorted(ordered, key=lambda pair: pair[0])][: given.wanted]
