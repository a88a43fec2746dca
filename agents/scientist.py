"""The scientist: one testable, dataset-aware hypothesis from the brief (SAGE, 3.2.3)."""

from __future__ import annotations

from agents.base import Agent, Role, Wording, prompt_file
from agents.prose.check import Judge, early_judge
from agents.scientist_rule import propose
from agents.statement import label_of, settled, state
from agents.types import Citation, DictionaryView, Draft, OntologyBrief
from agents.views import Proposal, ScientistInput
from agents.wording import hypothesis_texts, reworded, unsupported_numbers
from validation.hypothesis import Hypothesis
from validation.signature import read_signature

__all__ = ["SCIENTIST", "Proposal", "ScientistInput", "check_proposal", "compose_draft"]


def variable_problems(hypothesis: Hypothesis, dictionary: DictionaryView) -> list[str]:
    """What `hypothesis` names that the cohort does not have."""
    keys = dictionary.keys()
    named = [
        *(exposure.variable for exposure in hypothesis.exposures),
        *(condition.variable for condition in hypothesis.population.filters),
        *hypothesis.covariates,
        *hypothesis.strata,
    ]
    problems = [
        f'variable "{key}" is not in the data dictionary; use one of its keys'
        for key in named
        if key not in keys and not _measured(key, dictionary)
    ]
    endpoints = {endpoint.key for endpoint in dictionary.endpoints}
    for key in (hypothesis.endpoint, *hypothesis.secondary_endpoints):
        if key not in endpoints:
            problems.append(f'endpoint "{key}" is not one of {sorted(endpoints)}')
    exposed = {exposure.variable for exposure in hypothesis.exposures}
    twice = sorted(exposed & set(hypothesis.covariates))
    if twice:
        problems.append(f'"{twice[0]}" is both an exposure and a covariate; keep it as an exposure')
    return problems


def _measured(key: str, dictionary: DictionaryView) -> bool:
    """True for the score of genes that the view offers."""
    signature = read_signature(key)
    return signature is not None and not signature.measured(set(dictionary.genes))[1]


def check_proposal(given: ScientistInput, proposal: Proposal) -> list[str]:
    """Only variables of the dictionary, only chains of the brief, no unsupported number."""
    problems = variable_problems(proposal.hypothesis, given.dictionary)
    keys = given.dictionary.keys()
    problems += [
        f'refinement "{refinement.variable}" is not in the data dictionary'
        for refinement in proposal.refinements
        if refinement.variable not in keys
    ]
    known = {(relationship.chain, relationship.step) for relationship in given.brief.relationships}
    for step in proposal.support:
        if (step.chain, step.step) not in known:
            problems.append(f"there is no chain {step.chain} step {step.step} in the brief")
    names = given.dictionary.names()
    problems += unsupported_numbers("rationale", proposal.hypothesis.rationale, *names)
    if state(proposal.hypothesis, given.dictionary) in given.already:
        problems.append("this hypothesis was already proposed; propose a different one")
    return problems


def compose_draft(
    brief: OntologyBrief, proposal: Proposal, hypothesis_id: str, dictionary: DictionaryView
) -> Draft:
    """Attach the evidence of the relationships used, on both sides, to the proposal.

    The statement is written from the proposal's fields; what the model wrote there is dropped.
    """
    support = {(step.chain, step.step) for step in proposal.support}
    used = [
        relationship
        for relationship in brief.relationships
        if (relationship.chain, relationship.step) in support
    ]
    mechanism = tuple(dict.fromkeys(item.process for item in used))
    return Draft(
        hypothesis=settled(proposal.hypothesis, dictionary).model_copy(
            update={"id": hypothesis_id}
        ),
        mechanism=mechanism,
        citations=_unique([c for item in used for c in item.evidence]),
        contradicting=_unique([c for item in used for c in item.contradicting]),
        refinements=tuple(
            refinement.model_copy(update={"label": label_of(refinement.variable, dictionary)})
            for refinement in proposal.refinements
        ),
        concepts=proposal.concepts,
    )


def _unique(citations: list[Citation]) -> tuple[Citation, ...]:
    return tuple({(citation.key, citation.quote): citation for citation in citations}.values())


def _judge(given: ScientistInput) -> Judge:
    relationships = given.brief.relationships
    sources = [
        c
        for relationship in relationships
        for c in (*relationship.evidence, *relationship.contradicting)
    ]
    return early_judge(
        given=[f"{source.key} {source.title} {source.quote}" for source in sources],
        quotes=[relationship.process for relationship in relationships]
        + [source.quote for source in sources],
    )


def unborne(given: ScientistInput, proposal: Proposal) -> list[str]:
    """Sentences that claim a result before anything was measured, or cite what was not given."""
    judge = _judge(given)
    texts = (*hypothesis_texts(proposal.hypothesis), *proposal.concepts)
    return [str(problem) for text in texts for problem in judge(text)]


def in_own_words(given: ScientistInput, proposal: Proposal) -> Proposal:
    """The proposal with SAGE's own sentences in the place of refused ones."""
    judge = _judge(given)
    return proposal.model_copy(
        update={
            "hypothesis": reworded(settled(proposal.hypothesis, given.dictionary), judge),
            "concepts": tuple(concept for concept in proposal.concepts if not judge(concept)),
        }
    )


SCIENTIST = Agent(
    name="scientist",
    role=Role.HIGH,
    reads=ScientistInput,
    returns=Proposal,
    prompt=prompt_file(__file__, "scientist.md"),
    rule=propose,
    check=check_proposal,
    wording=Wording(problems=unborne, replace=in_own_words),
)
