"""Drafting of candidate hypotheses when the scientist is called.

Candidates are drafted and ranked before anything is tested, and the best are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from agents.core.statement import settle_fields
from agents.core.types import DictionaryView, Draft, History, OntologyBrief, dictionary_view
from agents.question.carried import filters_of
from agents.question.types import Question
from agents.scientist.agent import at_the_bench, compose_draft
from agents.scientist.rank import (
    RankedCandidate,
    Ranking,
    RankParts,
    SetAside,
    by_expected_information,
    names_of,
    parts_of,
    without_rewordings,
)
from agents.scientist.reported import list_reported
from agents.scientist.tools import Workbench
from agents.scientist.tournament import TOURNAMENT, Contender, Pairing, play
from agents.scientist.views import Candidates, Proposal, ScientistInput
from kg.literature.expansion import list_synonyms
from sage.core.errors import InputError
from sage.core.files import write_json
from sage.core.progress import report_progress
from sage.run.questions import Redesign, question_of, redesign_of
from sage.run.services import Services
from sage.run.state import RunState
from validation.contracts.contract import Rules
from validation.core.hypothesis import Hypothesis
from validation.drafting.draft import find_relevant


def draft_hypotheses(
    services: Services,
    state: RunState,
    drafts: Sequence[Draft],
    wanted: int,
    kept: int,
    wish: str = "",
) -> list[Draft]:
    """Draft `wanted` candidates and return the best `kept` of them.

    If the question's subgroup has too few patients, the claim is redesigned for all patients,
    and a note is added.

    Raises
    ------
    InputError
        If the scientist finds no claim that can be tested on the cohort.
    """
    first = f"h{len(drafts) + 1}"
    try:
        return _draft_once(services, state, drafts, wanted, kept, wish)
    except InputError as error:
        question = question_of(services.folder, first)
        if redesign_of(services.folder, first) is not None or not filters_of(question):
            raise
        redesign = Redesign(of="the claim as asked", reason=str(error))
        write_json(services.folder.output(f"redesign-{first}"), redesign)
        services.folder.event("note", node="scientist", message=redesign.reason)
        return _draft_once(services, state, drafts, wanted, kept, wish)


def _draft_once(
    services: Services,
    state: RunState,
    drafts: Sequence[Draft],
    wanted: int,
    kept: int,
    wish: str,
) -> list[Draft]:
    brief, question = state["brief"], state.get("question") or Question(prompt="")
    first = f"h{len(drafts) + 1}"
    if redesign_of(services.folder, first) is not None:
        question = question_of(services.folder, first)
    view = _dictionary(services, brief, question)
    bench = services.workbench
    given = ScientistInput(
        question=question,
        brief=brief,
        dictionary=view,
        wanted=wanted,
        already=tuple(draft.hypothesis.statement for draft in drafts),
        wishes=(wish,) if wish else (),
        history=services.spec.history or History(),
    )
    try:
        answer = services.ask(at_the_bench(bench), given, f"scientist-{first}").output
    except InputError:
        raise
    except ValueError as error:
        raise _without_hypothesis(view.cohort, str(error)) from None
    able, parts, aside = _testable(bench, answer, question, brief)
    if not able:
        reasons = "; ".join(dict.fromkeys(item.reason for item in aside))
        raise _without_hypothesis(view.cohort, reasons)
    order = by_expected_information(parts)
    ratings: list[float] = []
    if services.settings.tournament and len(able) > 1:
        ratings = _rate(services, question, able, parts, order, first)
        order = by_expected_information(parts, ratings)
    chosen = best_different([able[at].hypothesis for at in order], kept)
    names = {order[place]: f"h{len(drafts) + at + 1}" for at, place in enumerate(chosen)}
    ranking = Ranking(
        wanted=wanted,
        drafted=len(answer.candidates),
        order="a tournament (Elo)" if ratings else "expected information",
        ranked=tuple(
            RankedCandidate(
                place=place,
                statement=able[at].hypothesis.statement,
                parts=parts[at],
                rating=ratings[at] if ratings else None,
                hypothesis_id=names.get(at, ""),
            )
            for place, at in enumerate(order, 1)
        ),
        set_aside=tuple(aside),
    )
    write_json(services.folder.output(f"candidates-{first}"), ranking)
    if len(names) < kept:
        message = f"{len(names)} different hypotheses of {kept}: the cohort cannot test more"
        services.folder.event("note", node="scientist", message=message)
    made = []
    for at, name in names.items():
        draft = compose_draft(brief, able[at], name, bench.cohort.dictionary, bench.found)
        draft = _with_reported(bench, draft)
        write_json(services.folder.output(f"draft-{name}"), draft)
        made.append(draft)
    return made


def _with_reported(bench: Workbench, draft: Draft) -> Draft:
    """Add published findings on the claim's variables; contrary findings count against it."""
    reported = list_reported(bench, draft.hypothesis, draft.concepts)
    contrary = {
        (item.citation.key, item.citation.quote): item.citation
        for item in reported
        if item.supports(draft.hypothesis) is False
    }
    return draft.model_copy(
        update={
            "reported": reported,
            "citations": tuple(
                item for item in draft.citations if (item.key, item.quote) not in contrary
            ),
            "contradicting": (*draft.contradicting, *contrary.values()),
        }
    )


def _without_hypothesis(cohort: str, why: str) -> InputError:
    return InputError(
        f"no hypothesis for this prompt on cohort {cohort}: {why.rstrip('.')}. `sage cohort show`"
        " lists what can be tested: name one of its variables and an endpoint, or give another"
        " --cohort"
    )


def _testable(
    bench: Workbench, answer: Candidates, question: Question, brief: OntologyBrief
) -> tuple[list[Proposal], list[RankParts], list[SetAside]]:
    """Split proposals into those testable on the cohort, with ranking criteria, and the rest."""
    known = bench.cohort.dictionary
    proposals, aside = without_rewordings(answer, lambda item: settle_fields(item, known).statement)
    able, parts = [], []
    for done, proposal in enumerate(proposals):
        report_progress("candidates weighed", done, len(proposals))
        hypothesis = settle_fields(proposal.hypothesis, known)
        if question.relevant is not None:
            hypothesis = hypothesis.model_copy(update={"relevant": question.relevant})
        design = bench.cohort.power(hypothesis)
        if design.refused:
            aside.append(SetAside(statement=hypothesis.statement, reason=design.refused))
            continue
        endpoint = known.endpoint(hypothesis.endpoint)
        assert endpoint is not None  # its power was computed
        relevant = find_relevant(hypothesis, endpoint, Rules())
        hypothesis = hypothesis.model_copy(update={"relevant": relevant})
        proposal = proposal.model_copy(update={"hypothesis": hypothesis})
        able.append(proposal)
        parts.append(
            parts_of(
                proposal,
                design,
                question=question,
                brief=brief,
                found=bench.found,
                studied=_count_studies(bench, proposal),
            )
        )
    return able, parts, aside


def _rate(
    services: Services,
    question: Question,
    proposals: Sequence[Proposal],
    parts: Sequence[RankParts],
    order: Sequence[int],
    first: str,
) -> list[float]:
    """Compute Elo ratings from pairwise comparisons of the candidates by the run's reasoner.

    Parameters
    ----------
    order : order before the tournament, which determines the first round's pairs
    first : prefix of the names under which the comparisons are stored
    """
    contenders = [
        Contender(
            statement=proposals[at].hypothesis.statement,
            rationale=proposals[at].remark or proposals[at].hypothesis.rationale,
            parts=parts[at],
        )
        for at in order
    ]
    count = 0

    def prefer(contender: Contender, other: Contender) -> Literal["first", "second"]:
        nonlocal count
        count += 1
        pairing = Pairing(question=question.prompt, first=contender, second=other)
        return services.ask(TOURNAMENT, pairing, f"tournament-{first}-r{count}").output.better

    rated = dict(zip(order, play(contenders, prefer, services.spec.seed), strict=True))
    return [rated[at] for at in range(len(proposals))]


def _dictionary(services: Services, brief: OntologyBrief, question: Question) -> DictionaryView:
    """Return the data dictionary, limited to the genes that the brief and the question name."""
    terms = [
        name
        for relationship in brief.relationships
        for name in (relationship.head, relationship.tail)
    ]
    terms += [
        synonym
        for name in terms
        if (entry := services.ontology.find(name)) is not None
        for synonym in (entry.name, *entry.synonyms)
    ]
    return dictionary_view(
        services.dictionary, [*terms, *question.genes], services.settings.min_count
    )


def _count_studies(bench: Workbench, proposal: Proposal) -> int | None:
    """Count the records in the local index that mention all exposures of a claim."""
    local = bench.literature.local
    if local is None:
        return None
    groups = [
        [synonym for name in names for synonym in list_synonyms(name, bench.ontology)]
        for names in names_of(proposal.hypothesis, proposal.concepts)
    ]
    return local.count(groups, bench.as_of)


def best_different(hypotheses: Sequence[Hypothesis], kept: int) -> list[int]:
    """Select the first `kept` hypotheses, preferring different variables; return their indices."""
    seen: set[tuple[frozenset[str], str]] = set()
    fresh: list[int] = []
    again: list[int] = []
    for place, hypothesis in enumerate(hypotheses):
        key = frozenset(exposure.variable for exposure in hypothesis.exposures), hypothesis.endpoint
        (again if key in seen else fresh).append(place)
        seen.add(key)
    return sorted([*fresh, *again][:kept])
