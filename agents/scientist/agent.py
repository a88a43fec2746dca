"""The scientist agent: its checks, and its tools when working "at the bench"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from agents.core.base import Agent, Resources, Role, prompt_file
from agents.core.statement import Known, describe_design, label_of, settle_fields, write_statement
from agents.core.types import Citation, Draft, OntologyBrief
from agents.core.words import ModelText
from agents.scientist.chains import proposals
from agents.scientist.drafts import settle_asked
from agents.scientist.policy import investigate
from agents.scientist.tools import Workbench
from agents.scientist.views import Candidates, Proposal, ScientistInput
from sage.core.llm.turns import Bounds
from validation.core.hypothesis import Hypothesis

BOUNDS = Bounds(turns=24)
Found = Mapping[str, Citation]
RATIONALE = {
    True: "It rests on the relationships that are listed with their sources.",
    False: "No source that was found supports it.",
}
"""Sentence on the basis for a claim, by whether the claim cites any evidence."""


def variable_problems(hypothesis: Hypothesis, known: Known) -> list[str]:
    """List problems with the variables and endpoints that `hypothesis` names."""
    named = [
        *(exposure.variable for exposure in hypothesis.exposures),
        *(condition.variable for condition in hypothesis.population.filters),
        *hypothesis.covariates,
        *hypothesis.strata,
    ]
    problems = [
        f'variable "{key}" is not in the data dictionary; use one of its keys'
        for key in named
        if not known.has_variable(key)
    ]
    endpoints = {endpoint.key for endpoint in known.endpoints}
    for key in (hypothesis.endpoint, *hypothesis.secondary_endpoints):
        if key not in endpoints:
            problems.append(f'endpoint "{key}" is not one of {sorted(endpoints)}')
    exposed = {exposure.variable for exposure in hypothesis.exposures}
    twice = sorted(exposed & set(hypothesis.covariates))
    if twice:
        problems.append(f'"{twice[0]}" is both an exposure and a covariate; keep it as an exposure')
    return problems


def proposal_problems(
    given: ScientistInput, proposal: Proposal, known: Known, found: Found
) -> list[str]:
    """Check the variables, chains and sources in a proposal."""
    problems = variable_problems(proposal.hypothesis, known)
    problems += [
        f'refinement "{refinement.variable}" is not in the data dictionary'
        for refinement in proposal.refinements
        if not known.has_variable(refinement.variable)
    ]
    chains = {(relationship.chain, relationship.step) for relationship in given.brief.relationships}
    for step in proposal.support:
        if (step.chain, step.step) not in chains:
            problems.append(f"there is no chain {step.chain} step {step.step} in the brief")
    problems += [
        f'"{key}" is no key that literature_search or graph_paths gave'
        for key in proposal.sources
        if key not in found
    ]
    if not (proposal.support or proposal.sources or proposal.support_absent):
        problems.append(
            "it rests on nothing: name its relationships in `support`, its sources in `sources`,"
            " or set `support_absent`"
        )
    hypothesis = proposal.hypothesis
    direction = settle_asked(hypothesis.direction, given.question, hypothesis.exposures)
    if direction is not hypothesis.direction:
        problems.append(
            'the question names the exposures and no direction; set `direction` to "either"'
        )
    if write_statement(hypothesis, known) in given.already:
        problems.append("this hypothesis was already proposed; propose a different hypothesis")
    return problems


def check_candidates(
    given: ScientistInput,
    answer: Candidates,
    known: Known | None = None,
    found: Found | None = None,
) -> list[str]:
    """Return the problems with every candidate, labeled with the candidate's number.

    Parameters
    ----------
    known : the cohort's data dictionary; None for the part of it that was shown
    found : sources that the scientist's searches returned, by key; None if it did not search

    Returns
    -------
    One sentence per problem, with the candidates numbered from 1; empty if all are
    acceptable.
    """
    return [
        f"candidate {number}: {problem}"
        for number, proposal in enumerate(answer.candidates, 1)
        for problem in proposal_problems(given, proposal, known or given.dictionary, found or {})
    ]


def keep_sound(
    given: ScientistInput,
    answer: Candidates,
    known: Known | None = None,
    found: Found | None = None,
) -> Candidates:
    """Return the candidates without problems, or all of them if every candidate has one."""
    known = known or given.dictionary
    kept = tuple(
        proposal
        for proposal in answer.candidates
        if not proposal_problems(given, proposal, known, found or {})
    )
    return Candidates(candidates=kept) if kept else answer


def compose_draft(
    brief: OntologyBrief,
    proposal: Proposal,
    hypothesis_id: str,
    known: Known,
    found: Found | None = None,
) -> Draft:
    """Attach the evidence for and against the claim on which the proposal is based.

    The text is written from the proposal's fields; a model's own text is kept as a separate
    remark.
    """
    hypothesis = settle_fields(proposal.hypothesis, known)
    plain = {
        "rationale": hypothesis.rationale or RATIONALE[bool(proposal.support or proposal.sources)],
        "feasibility": hypothesis.feasibility
        or f"The comparison is of {describe_design(hypothesis, known)}.",
    }
    used = proposal.supported_by(brief)
    cited = [(found or {})[key] for key in proposal.sources]
    mechanism = tuple(dict.fromkeys(item.process for item in used))
    return Draft(
        hypothesis=hypothesis.model_copy(update={"id": hypothesis_id} | plain),
        remark=proposal.remark if isinstance(proposal.remark, ModelText) else None,
        mechanism=mechanism,
        citations=_unique([*(c for item in used for c in item.evidence), *cited]),
        contradicting=_unique([c for item in used for c in item.contradicting]),
        refinements=tuple(
            refinement.model_copy(update={"label": label_of(refinement.variable, known)})
            for refinement in proposal.refinements
        ),
        concepts=proposal.concepts,
        support_absent=not (used or cited),
    )


def _unique(citations: list[Citation]) -> tuple[Citation, ...]:
    return tuple({(citation.key, citation.quote): citation for citation in citations}.values())


def draft_from_chains(given: ScientistInput, resources: Resources) -> Candidates:
    """Draft claims using only the brief's chains, for a scientist without tools.

    Raises
    ------
    ValueError
        If the cohort measures none of the remaining entities.
    """
    found = tuple(islice(proposals(given, resources), given.wanted))
    if not found:
        raise ValueError(
            "no further hypothesis: none of the remaining path entities are measured in the cohort"
        )
    return Candidates(candidates=found)


SCIENTIST = Agent(
    name="scientist",
    role=Role.HIGH,
    reads=ScientistInput,
    returns=Candidates,
    prompt=prompt_file(__file__, "scientist.md"),
    rule=draft_from_chains,
    check=check_candidates,
    mend=keep_sound,
    bounds=BOUNDS,
    policy=investigate,
    spare=(
        "history.claims",
        "dictionary.notes",
        "dictionary.genes",
        "dictionary.variables",
        "brief.definitions",
        "brief.relationships",
    ),
)


def at_the_bench(bench: Workbench) -> Agent[ScientistInput, Candidates]:
    """Return the scientist with its tools, limited to the evidence that the tools returned.

    Any cohort variable may be used, whether or not it is named in the brief.
    """
    return replace(
        SCIENTIST,
        tools=bench.tools(),
        # the dictionary at the time of the answer, since a measurement may have been added
        check=lambda given, answer: check_candidates(
            given, answer, bench.cohort.dictionary, bench.found
        ),
        mend=lambda given, answer: keep_sound(given, answer, bench.cohort.dictionary, bench.found),
    )
