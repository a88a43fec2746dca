"""Hypothesis expansion: background, mechanism, clinical meaning; revision on critics' reasons.

Reads the reviewed hypothesis only (SAGE, Table 9). In a revision the critics' reasons come along.
"""

from __future__ import annotations

from agents.base import Agent, Resources, Role, prompt_file
from agents.types import ExpandedHypothesis
from agents.views import Expansion, ExpansionInput
from agents.wording import describe_design, describe_exposure, unsupported_numbers
from validation.hypothesis import Comparison, Hypothesis


def expand(given: ExpansionInput, resources: Resources) -> Expansion:
    """Assemble the expansion from the reviewed hypothesis' own mechanism and sources.

    In a revision the hypothesis is sharpened by the next refinement that the scientist offered;
    when none is left it stays as it is, and the improvements say so.
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
            improvements.append(f"Sharpened by {describe_exposure(added)}.")
    supporting = [one for one in reviewed.citations if not one.retracted]
    background = " ".join(dict.fromkeys(f"“{one.quote.strip()}”" for one in supporting[:4]))
    if reviewed.contradicting:
        against = reviewed.contradicting[0]
        background += f" Against it: “{against.quote.strip()}”"
    added_names = [
        _concept(resources, one.label)
        for one in hypothesis.exposures
        if one not in reviewed.hypothesis.exposures
    ]
    names = reviewed.concepts or tuple(
        _concept(resources, one.label) for one in reviewed.hypothesis.exposures
    )
    parts = tuple(dict.fromkeys([*names, *added_names, hypothesis.endpoint]))[:8]
    if reviewed.concepts:
        parts = tuple(one for one in parts if one != hypothesis.endpoint)
    return Expansion(
        hypothesis=changed,
        background=background or "No supporting passage in the graph.",
        mechanism="; ".join(reviewed.mechanism) + "." if reviewed.mechanism else "Not stated.",
        clinical_interpretation=(
            f"If it holds, {describe_design(hypothesis)} separates patients by"
            f" {hypothesis.endpoint} with markers that a pathologist can check. It is a prognostic"
            " association in one cohort, not evidence of benefit from any treatment."
        ),
        improvements=tuple(improvements),
        parts=parts if len(parts) > 1 else (*parts, hypothesis.population.description),
    )


def _concept(resources: Resources, label: str) -> str:
    """The ontology's name for a variable's label; the label itself where it has none."""
    bare = label.removesuffix(" expression").removesuffix(" density").strip()
    entry = resources.ontology.find(bare) or resources.ontology.find(label)
    return entry.name if entry else bare


def _sharpen(given: ExpansionInput) -> Hypothesis | None:
    hypothesis = given.reviewed.hypothesis
    left = [
        one
        for one in given.reviewed.refinements
        if one.variable not in {exposure.variable for exposure in hypothesis.exposures}
        and one.variable not in hypothesis.covariates
    ]
    index = given.round - 1
    if index >= len(left) or len(hypothesis.exposures) >= 3:
        return None
    added = left[index]
    exposures = (*hypothesis.exposures, added)
    statement = hypothesis.statement.rstrip(".")
    return hypothesis.model_copy(
        update={
            "exposures": exposures,
            "comparison": Comparison.EXTREMES,
            "statement": f"{statement}, and more so together with {describe_exposure(added)}.",
        }
    )


def check_expansion(given: ExpansionInput, answer: Expansion) -> list[str]:
    """No new variable, no moved endpoint, no unsupported number."""
    before = given.reviewed.hypothesis
    after = answer.hypothesis or before
    allowed = {
        *(one.variable for one in before.exposures),
        *(one.variable for one in given.reviewed.refinements),
        *before.covariates,
        *before.strata,
        *(one.variable for one in before.population.filters),
    }
    used = {
        *(one.variable for one in after.exposures),
        *after.covariates,
        *after.strata,
        *(one.variable for one in after.population.filters),
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
    offered = (*before.exposures, *after.exposures, *given.reviewed.refinements)
    names = (before.statement, *(one.label for one in offered), *given.reviewed.mechanism)
    for field in ("background", "mechanism", "clinical_interpretation"):
        problems += unsupported_numbers(field, _without_quotes(getattr(answer, field)), *names)
    problems += unsupported_numbers("statement", after.statement, *names)
    return problems


def _without_quotes(text: str) -> str:
    """Drop verbatim quotations: their numbers belong to the source that is cited."""
    while "“" in text and "”" in text[text.index("“") :]:
        start = text.index("“")
        text = text[:start] + text[text.index("”", start) + 1 :]
    return text


def compose_expanded(given: ExpansionInput, answer: Expansion) -> ExpandedHypothesis:
    """The expanded hypothesis with the reviewed hypothesis' own citations."""
    return ExpandedHypothesis(
        hypothesis=answer.hypothesis or given.reviewed.hypothesis,
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
