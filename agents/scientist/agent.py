"""The scientist as an agent: its checks, its wording, and its tools once it is at the bench."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from agents.base import Agent, Resources, Role, Wording, prompt_file
from agents.prose.check import Judge, early_judge
from agents.scientist.chains import proposals
from agents.scientist.policy import investigate
from agents.scientist.tools import Workbench
from agents.scientist.views import Candidates, Proposal, ScientistInput
from agents.statement import Known, label_of, settled, state
from agents.types import Citation, Draft, OntologyBrief
from agents.wording import hypothesis_texts, reworded, unsupported_numbers
from sage.core.llm.turns import Bounds
from validation.hypothesis import Hypothesis

BOUNDS = Bounds(turns=24)
Found = Mapping[str, Citation]


def variable_problems(hypothesis: Hypothesis, known: Known) -> list[str]:
    """What `hypothesis` names that the cohort does not have."""
    named = [
        *(one.variable for one in hypothesis.exposures),
        *(one.variable for one in hypothesis.population.filters),
        *hypothesis.covariates,
        *hypothesis.strata,
    ]
    problems = [
        f'variable "{key}" is not in the data dictionary; use one of its keys'
        for key in named
        if not known.has(key)
    ]
    endpoints = {one.key for one in known.endpoints}
    for key in (hypothesis.endpoint, *hypothesis.secondary_endpoints):
        if key not in endpoints:
            problems.append(f'endpoint "{key}" is not one of {sorted(endpoints)}')
    exposed = {one.variable for one in hypothesis.exposures}
    twice = sorted(exposed & set(hypothesis.covariates))
    if twice:
        problems.append(f'"{twice[0]}" is both an exposure and a covariate; keep it as an exposure')
    return problems


def proposal_problems(
    given: ScientistInput, proposal: Proposal, known: Known, found: Found
) -> list[str]:
    """Only variables of the cohort, only chains and sources that were shown, no number of its own.

    Parameters
    ----------
    given, proposal : what the scientist saw, and what it proposes
    known : the cohort's data dictionary, or the part of it that was shown
    found : sources that its searches gave, by key
    """
    problems = variable_problems(proposal.hypothesis, known)
    problems += [
        f'refinement "{one.variable}" is not in the data dictionary'
        for one in proposal.refinements
        if not known.has(one.variable)
    ]
    chains = {(one.chain, one.step) for one in given.brief.relationships}
    for one in proposal.support:
        if (one.chain, one.step) not in chains:
            problems.append(f"there is no chain {one.chain} step {one.step} in the brief")
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
    names = given.dictionary.names()
    problems += unsupported_numbers("rationale", proposal.hypothesis.rationale, *names)
    if state(proposal.hypothesis, known) in given.already:
        problems.append("this hypothesis was already proposed; propose a different one")
    return problems


def check_candidates(
    given: ScientistInput,
    answer: Candidates,
    known: Known | None = None,
    found: Found | None = None,
) -> list[str]:
    """The problems of every candidate, each with its number."""
    return [
        f"candidate {number}: {problem}"
        for number, proposal in enumerate(answer.candidates, 1)
        for problem in proposal_problems(given, proposal, known or given.dictionary, found or {})
    ]


def compose_draft(
    brief: OntologyBrief,
    proposal: Proposal,
    hypothesis_id: str,
    known: Known,
    found: Found | None = None,
) -> Draft:
    """Attach the evidence that the proposal rests on, on both sides.

    The statement is written from the proposal's fields; what the model wrote there is dropped.

    Parameters
    ----------
    brief, found : where its relationships and its sources come from
    proposal : what was proposed
    hypothesis_id : the draft's name
    known : the cohort's data dictionary, or the part of it that was shown
    """
    support = {(one.chain, one.step) for one in proposal.support}
    used = [one for one in brief.relationships if (one.chain, one.step) in support]
    cited = [(found or {})[key] for key in proposal.sources]
    mechanism = tuple(dict.fromkeys(one.process for one in used))
    return Draft(
        hypothesis=settled(proposal.hypothesis, known).model_copy(update={"id": hypothesis_id}),
        mechanism=mechanism,
        citations=_unique([*(c for one in used for c in one.evidence), *cited]),
        contradicting=_unique([c for one in used for c in one.contradicting]),
        refinements=tuple(
            one.model_copy(update={"label": label_of(one.variable, known)})
            for one in proposal.refinements
        ),
        concepts=proposal.concepts,
        support_absent=not (used or cited),
    )


def _unique(citations: list[Citation]) -> tuple[Citation, ...]:
    return tuple({(one.key, one.quote): one for one in citations}.values())


def _judge(given: ScientistInput, found: Found) -> Judge:
    relationships = given.brief.relationships
    sources = [c for one in relationships for c in (*one.evidence, *one.contradicting)]
    sources += found.values()
    return early_judge(
        given=[f"{one.key} {one.title} {one.quote}" for one in sources],
        quotes=[one.process for one in relationships] + [one.quote for one in sources],
    )


def _texts(proposal: Proposal) -> tuple[str, ...]:
    hypothesis = proposal.hypothesis
    scores = [one.label for one in hypothesis.exposures if one.signature is not None]
    return (*hypothesis_texts(hypothesis), *proposal.concepts, *scores)


def _plainly_labeled(hypothesis: Hypothesis, judge: Judge) -> Hypothesis:
    """The hypothesis with what a score computes in the place of a refused label."""
    exposures = tuple(
        one.model_copy(update={"label": one.signature.text})
        if one.signature is not None and judge(one.label)
        else one
        for one in hypothesis.exposures
    )
    return hypothesis.model_copy(update={"exposures": exposures})


def _wording(known: Known | None, found: Found) -> Wording[ScientistInput, Candidates]:
    """Holds the candidates' sentences against what the scientist was shown.

    `replace` also leaves out candidates that are wrong in more than their words, while others stay.
    """

    def problems(given: ScientistInput, answer: Candidates) -> list[str]:
        judge = _judge(given, found)
        return [
            f"candidate {number}: {problem}"
            for number, proposal in enumerate(answer.candidates, 1)
            for text in _texts(proposal)
            for problem in judge(text)
        ]

    def in_own_words(given: ScientistInput, answer: Candidates) -> Candidates:
        judge = _judge(given, found)
        dictionary: Known = known or given.dictionary
        kept = []
        for proposal in answer.candidates:
            hypothesis = proposal.hypothesis
            if not variable_problems(hypothesis, dictionary):
                plain = settled(_plainly_labeled(hypothesis, judge), dictionary)
                hypothesis = reworded(plain, judge)
            mended = proposal.model_copy(
                update={
                    "hypothesis": hypothesis,
                    "concepts": tuple(one for one in proposal.concepts if not judge(one)),
                }
            )
            if not proposal_problems(given, mended, dictionary, found):
                kept.append(mended)
        return Candidates(candidates=tuple(kept)) if kept else answer

    return Wording(problems=problems, replace=in_own_words)


def draft_from_chains(given: ScientistInput, resources: Resources) -> Candidates:
    """The claims of the brief's chains alone, for a scientist without tools.

    Raises
    ------
    ValueError
        If the cohort measures none of the remaining entities.
    """
    found = tuple(islice(proposals(given, resources), given.wanted))
    if not found:
        raise ValueError(
            "no further hypothesis: the cohort measures none of the remaining entities of the paths"
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
    wording=_wording(None, {}),
    bounds=BOUNDS,
    policy=investigate,
)


def at_the_bench(bench: Workbench) -> Agent[ScientistInput, Candidates]:
    """The scientist with its tools, held to what they showed.

    Any variable of the cohort may be used, whether or not the brief names it.
    """
    known = bench.cohort.dictionary
    return replace(
        SCIENTIST,
        tools=bench.tools(),
        check=lambda given, answer: check_candidates(given, answer, known, bench.found),
        wording=_wording(known, bench.found),
    )
