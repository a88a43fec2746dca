"""The scientist: one testable, dataset-aware hypothesis from the brief (SAGE, 3.2.3)."""

from __future__ import annotations

from agents.base import Agent, Role, prompt_file
from agents.scientist_rule import propose
from agents.types import Citation, DictionaryView, Draft, OntologyBrief
from agents.views import Proposal, ScientistInput
from agents.wording import unsupported_numbers
from validation.hypothesis import Hypothesis

__all__ = ["SCIENTIST", "Proposal", "ScientistInput", "check_proposal", "compose_draft"]


def variable_problems(hypothesis: Hypothesis, dictionary: DictionaryView) -> list[str]:
    """What `hypothesis` names that the cohort does not have."""
    keys = dictionary.keys()
    named = [
        *(one.variable for one in hypothesis.exposures),
        *(one.variable for one in hypothesis.population.filters),
        *hypothesis.covariates,
        *hypothesis.strata,
    ]
    problems = [
        f'variable "{key}" is not in the data dictionary; use one of its keys'
        for key in named
        if key not in keys
    ]
    endpoints = {one.key for one in dictionary.endpoints}
    for key in (hypothesis.endpoint, *hypothesis.secondary_endpoints):
        if key not in endpoints:
            problems.append(f'endpoint "{key}" is not one of {sorted(endpoints)}')
    exposed = {one.variable for one in hypothesis.exposures}
    twice = sorted(exposed & set(hypothesis.covariates))
    if twice:
        problems.append(f'"{twice[0]}" is both an exposure and a covariate; keep it as an exposure')
    return problems


def check_proposal(given: ScientistInput, proposal: Proposal) -> list[str]:
    """Only variables of the dictionary, only chains of the brief, no unsupported number."""
    problems = variable_problems(proposal.hypothesis, given.dictionary)
    keys = given.dictionary.keys()
    problems += [
        f'refinement "{one.variable}" is not in the data dictionary'
        for one in proposal.refinements
        if one.variable not in keys
    ]
    known = {(one.chain, one.step) for one in given.brief.relationships}
    for one in proposal.support:
        if (one.chain, one.step) not in known:
            problems.append(f"there is no chain {one.chain} step {one.step} in the brief")
    names = given.dictionary.names()
    problems += unsupported_numbers("statement", proposal.hypothesis.statement, *names)
    problems += unsupported_numbers("rationale", proposal.hypothesis.rationale, *names)
    if proposal.hypothesis.statement in given.already:
        problems.append("this hypothesis was already proposed; propose a different one")
    return problems


def compose_draft(brief: OntologyBrief, proposal: Proposal, hypothesis_id: str) -> Draft:
    """Attach the evidence of the relationships used, on both sides, to the proposal."""
    support = {(one.chain, one.step) for one in proposal.support}
    used = [one for one in brief.relationships if (one.chain, one.step) in support]
    mechanism = tuple(dict.fromkeys(one.process for one in used))
    return Draft(
        hypothesis=proposal.hypothesis.model_copy(update={"id": hypothesis_id}),
        mechanism=mechanism,
        citations=_unique([c for one in used for c in one.evidence]),
        contradicting=_unique([c for one in used for c in one.contradicting]),
        refinements=proposal.refinements,
        concepts=proposal.concepts,
    )


def _unique(citations: list[Citation]) -> tuple[Citation, ...]:
    return tuple({(one.key, one.quote): one for one in citations}.values())


SCIENTIST = Agent(
    name="scientist",
    role=Role.HIGH,
    reads=ScientistInput,
    returns=Proposal,
    prompt=prompt_file(__file__, "scientist.md"),
    rule=propose,
    check=check_proposal,
)
