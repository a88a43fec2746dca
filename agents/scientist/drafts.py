"""Rule-based drafting of claims, with endpoint, covariates and wording, for chains and tools."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from agents.core.statement import describe_design, settle_fields
from agents.question.carried import filters_of
from agents.question.types import PartRole, Question
from agents.scientist.views import ScientistInput
from validation.core.dictionary import Endpoint, Variable
from validation.core.hypothesis import Comparison, Direction, Exposure, Hypothesis, Population


def draft(
    given: ScientistInput,
    exposures: Sequence[Exposure],
    endpoint: Endpoint,
    *,
    comparison: Comparison,
    direction: Direction,
    rationale: str,
    unsigned: Sequence[str],
    untested: Sequence[str] = (),
) -> Hypothesis:
    """Draft a claim about these exposures in the question's patients, worded from its fields.

    Parameters
    ----------
    direction : direction given in the question, or else implied by the literature
    unsigned : labels of the exposures for which the literature gives no sign
    """
    dictionary = given.dictionary
    direction = settle_asked(direction, given.question, exposures, unsigned)
    hypothesis = Hypothesis(
        id="draft",
        statement="",
        population=Population(description="", filters=filters_of(given.question)),
        exposures=tuple(exposures),
        comparison=comparison,
        endpoint=endpoint.key,
        secondary_endpoints=tuple(
            item.key
            for item in dictionary.endpoints
            if item.key != endpoint.key and item.kind in ("survival", "binary")
        )[:2],
        direction=direction,
        covariates=_asked_covariates(
            given.question, {exposure.variable for exposure in exposures}, endpoint
        ),
        rationale=rationale + conjecture(unsigned, direction),
        untested=tuple(untested),
    )
    hypothesis = settle_fields(hypothesis, dictionary)
    design = describe_design(hypothesis, dictionary)
    return hypothesis.model_copy(
        update={
            "feasibility": f"{design[:1].upper()}{design[1:]}: every variable is in the data"
            f" dictionary of {dictionary.cohort}."
        }
    )


def _asked_covariates(
    question: Question, exposed: Collection[str], endpoint: Endpoint
) -> tuple[str, ...]:
    """Select the question's covariates; without any, the contract chooses by their relation."""
    asked = [
        key
        for role in (PartRole.COVARIATE, PartRole.MEDIATOR)
        for part in question.testable(role)
        for key in part.variables[:1]
    ]
    fixed = {condition.variable for condition in filters_of(question) if condition.op == "eq"}
    bases = {key.partition("=")[0] for key in exposed}
    unfit = {*exposed, *bases, *fixed, *endpoint.contained_in}
    return tuple(dict.fromkeys(key for key in asked if key not in unfit))


def endpoint_of(given: ScientistInput, named: Collection[str] = ()) -> Endpoint:
    """Return the requested endpoint, or the best substitute.

    The substitute is an endpoint with a matching name, else overall survival, else the
    survival endpoint with the most events.

    Raises
    ------
    ValueError
        If the cohort has no endpoint.
    """
    endpoints = given.dictionary.endpoints
    if not endpoints:
        raise ValueError(
            f"cohort {given.dictionary.cohort} has no endpoint; add one to cohort.toml"
        )
    plain_names = {plain(name) for name in named}
    tests = (
        lambda endpoint: endpoint.key == given.question.endpoint,
        lambda endpoint: bool({plain(endpoint.key), plain(endpoint.label)} & plain_names),
        lambda endpoint: endpoint.key.upper() == "OS",
    )
    for fits in tests:
        for endpoint in endpoints:
            if fits(endpoint):
                return endpoint
    survival = [endpoint for endpoint in endpoints if endpoint.kind == "survival"]
    return max(survival or list(endpoints), key=lambda endpoint: endpoint.events or 0)


def settle_asked(
    direction: Direction,
    question: Question,
    exposures: Sequence[Exposure],
    unsigned: Sequence[str] = (),
) -> Direction:
    """Return `EITHER` for a claim without a direction in the question or the literature.

    A claim about exposures named in the question has the question's direction, regardless of
    the literature: a question without a direction is tested two-sided.
    """
    if question.direction is not None:
        return direction
    named = {key for part in question.parts if not part.negated for key in part.variables}
    asked = all(exposure.variable in named for exposure in exposures)
    return Direction.EITHER if asked or unsigned else direction


def conjecture(unsigned: Sequence[str], direction: Direction) -> str:
    """Return a sentence about exposures for which no source gives a sign, or empty text."""
    if not unsigned:
        return ""
    labels = " and ".join(unsigned)
    tested = "it is tested in both directions"
    if direction is not Direction.EITHER:
        tested = "the direction is a conjecture"
    return f" The literature gives no sign for {labels}; {tested}."


def names_of(variable: Variable) -> set[str]:
    """Return a variable's names in plain words."""
    return {
        plain(name) for name in (variable.label, variable.key.split(":")[-1], *variable.synonyms)
    }


def plain(text: str) -> str:
    """Reduce a text to lower-case words of letters and digits."""
    return " ".join(re.sub(r"[^\w]|_", " ", text.lower()).split())
