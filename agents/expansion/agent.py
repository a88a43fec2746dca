"""Hypothesis expansion: background, mechanism and clinical meaning; revision after criticism.

The agent sees only the reviewed hypothesis (SAGE, Table 9) and, in a revision, the critics'
reasons.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from agents.core.base import Agent, Resources, Role, View, prompt_file
from agents.core.types import Citation, ExpandedHypothesis, ReviewedHypothesis
from agents.core.words import PlainHypothesis, Words
from agents.novelty.evidence import denies
from kg.lexicon.ontology import Ontology
from kg.literature.cancers import list_other_cancers
from kg.types import EntityType
from sage.core.printable import quote_text
from validation.core.hypothesis import Comparison, Hypothesis


class ExpansionInput(View):
    """Input to the expansion: the reviewed hypothesis and, in a revision, the critics' reasons."""

    reviewed: ReviewedHypothesis
    reasons: tuple[str, ...] = ()
    round: int = 0


class Expansion(View):
    """Rationale and clinical meaning; in a revision, also the sharpened hypothesis."""

    hypothesis: PlainHypothesis | None = Field(
        default=None, description="the sharpened hypothesis in a revision, else null"
    )
    background: Words
    mechanism: Words
    clinical_interpretation: Words
    improvements: tuple[Words, ...] = ()
    parts: tuple[str, ...] = Field(min_length=2, max_length=8)


def expand(given: ExpansionInput, resources: Resources) -> Expansion:
    """Assemble the expansion from the mechanism and sources of the reviewed hypothesis.

    In a revision, the hypothesis is sharpened by the next refinement that the scientist
    offered; if none is left, it stays unchanged, and the improvements say so.
    """
    reviewed = given.reviewed
    hypothesis, changed, improvements = reviewed.hypothesis, None, []
    if given.reasons:
        sharpened = _sharpen(given)
        if sharpened is None:
            improvements.append("No refinement was left; the hypothesis is unchanged.")
        else:
            hypothesis = changed = sharpened
            added = hypothesis.exposures[-1]
            improvements.append(f"Sharpened by {added.level} {added.label}.")
    added_names = [
        _concept(resources, exposure.label)
        for exposure in hypothesis.exposures
        if exposure not in reviewed.hypothesis.exposures
    ]
    names = reviewed.concepts or tuple(
        _concept(resources, exposure.label) for exposure in reviewed.hypothesis.exposures
    )
    parts = tuple(dict.fromkeys([*names, *added_names, hypothesis.endpoint]))[:8]
    if reviewed.concepts:
        parts = tuple(part for part in parts if part != hypothesis.endpoint)
    return Expansion(
        hypothesis=changed,
        background=_background(reviewed, resources.ontology),
        mechanism=_mechanism(reviewed),
        clinical_interpretation=_clinical(hypothesis),
        improvements=tuple(improvements),
        parts=parts if len(parts) > 1 else (*parts, hypothesis.population.description),
    )


def _background(reviewed: ReviewedHypothesis, ontology: Ontology | None = None) -> str:
    """Quote sentences from the sources, including those against the claim."""
    found = [ontology.find(concept) for concept in reviewed.concepts] if ontology else []
    diseases = [entry.name for entry in found if entry and entry.type is EntityType.DISEASE]
    disease = diseases[0] if diseases else ""
    quoted = [cited for cited in reviewed.citations if not cited.retracted][:4]
    against = [cited for cited in quoted if denies(cited.quote)]
    against += reviewed.contradicting[:1]
    supporting = [cited for cited in quoted if cited not in against]
    text = _quotations(supporting, disease, ontology)
    if against:
        text += f" Against it, or finding nothing: {_quotations(against, disease, ontology)}"
    text = text.strip()
    return text or "The search of the graph found no passage for it."


def _quotations(cited: Sequence[Citation], disease: str, ontology: Ontology | None) -> str:
    """Quote each sentence once, with its paper's cancer type if it differs from the claim's.

    The cancer of a paper is determined from its title.
    """
    said = []
    for source in cited:
        if not source.quote.strip():
            continue
        others: tuple[str, ...] = ()
        if ontology is not None and not list_other_cancers(source.quote, disease, ontology):
            others = list_other_cancers(f"{source.quote}. {source.title}", disease, ontology)
        said.append(quote_text(source.quote) + (f" (in {', '.join(others)})" if others else ""))
    return " ".join(dict.fromkeys(said))


def _mechanism(reviewed: ReviewedHypothesis) -> str:
    return "; ".join(reviewed.mechanism) + "." if reviewed.mechanism else "None proposed."


def _clinical(hypothesis: Hypothesis) -> str:
    """Describe the clinical meaning of the claim and the sources of its variables."""
    sources = "; ".join(
        f"{exposure.label} from {READ_FROM.get(exposure.variable.partition(':')[0], GIVEN)}"
        for exposure in hypothesis.exposures
    )
    return (
        f"If it holds, {hypothesis.endpoint} differs by exposure. It reads {sources}."
        " It would be an association in one cohort, not evidence of benefit from any treatment."
    )


READ_FROM = {
    "imaging": "a measurement on slides",
    "expression": "a transcript measured in bulk tissue",
    "signature": "transcripts measured in bulk tissue",
    "mutation": "the tumor's DNA",
    "clinical": "the clinical record",
}
"""Source of a variable's values, by the modality prefix of its key."""
GIVEN = "values in the cohort"


def _concept(resources: Resources, label: str) -> str:
    """Return the ontology name for a variable label, or the label itself if there is none."""
    bare = label.removesuffix(" expression").removesuffix(" density").strip()
    entry = resources.ontology.find(bare) or resources.ontology.find(label)
    return entry.name if entry else bare


def _sharpen(given: ExpansionInput) -> Hypothesis | None:
    hypothesis = given.reviewed.hypothesis
    left = [
        refinement
        for refinement in given.reviewed.refinements
        if refinement.variable not in {exposure.variable for exposure in hypothesis.exposures}
        and refinement.variable not in hypothesis.covariates
    ]
    if not left or len(hypothesis.exposures) >= 3:
        return None
    added = left[0]
    exposures = (*hypothesis.exposures, added)
    statement = hypothesis.statement.rstrip(".")
    return hypothesis.model_copy(
        update={
            "exposures": exposures,
            "comparison": Comparison.EXTREMES,
            "statement": f"{statement}, and more so together with {added.level} {added.label}.",
        }
    )


def check_expansion(given: ExpansionInput, answer: Expansion) -> list[str]:
    """Check that no variable was added and the endpoint was not changed."""
    before = given.reviewed.hypothesis
    after = answer.hypothesis or before
    allowed = {
        *(exposure.variable for exposure in before.exposures),
        *(refinement.variable for refinement in given.reviewed.refinements),
        *before.covariates,
        *before.strata,
        *(condition.variable for condition in before.population.filters),
    }
    used = {
        *(exposure.variable for exposure in after.exposures),
        *after.covariates,
        *after.strata,
        *(condition.variable for condition in after.population.filters),
    }
    problems = [
        f'variable "{key}" was not offered; use only {sorted(allowed)}'
        for key in sorted(used - allowed)
    ]
    if after.id != before.id:
        problems.append(f'keep the hypothesis id "{before.id}"')
    endpoints = {before.endpoint, *before.secondary_endpoints}
    if not {after.endpoint, *after.secondary_endpoints} <= endpoints:
        problems.append(f"use only the endpoints {sorted(endpoints)}")
    if not given.reasons and after != before:
        problems.append("the reviewer approved this hypothesis: leave `hypothesis` null")
    return problems


def compose_expanded(given: ExpansionInput, answer: Expansion) -> ExpandedHypothesis:
    """Combine the expansion with the reviewed hypothesis's own texts and citations."""
    before = given.reviewed.hypothesis
    kept = {name: getattr(before, name) for name in ("rationale", "feasibility", "untested")}
    return ExpandedHypothesis(
        hypothesis=answer.hypothesis.model_copy(update=kept) if answer.hypothesis else before,
        background=answer.background,
        mechanism=answer.mechanism,
        clinical_interpretation=answer.clinical_interpretation,
        improvements=answer.improvements,
        parts=answer.parts,
        citations=given.reviewed.citations + given.reviewed.contradicting,
    )


EXPANSION = Agent(
    name="expansion",
    role=Role.MINI,
    reads=ExpansionInput,
    returns=Expansion,
    prompt=prompt_file(__file__, "expansion.md"),
    rule=expand,
    check=check_expansion,
)
