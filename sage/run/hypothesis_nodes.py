"""Nodes that lead from the prompt to reviewed hypotheses."""

from __future__ import annotations

import re
from typing import Any

from agents.core.types import Draft, OntologyBrief, ReviewedHypothesis
from agents.ontologist.agent import ONTOLOGIST, OntologistInput, compose_brief
from agents.path_generation.agent import PATH_GENERATION, PathQuery, PathRequest
from agents.question.types import PartRole, Question
from kg.types import PathSearch
from sage.core.errors import InputError
from sage.core.files import write_json
from sage.run.drafting import draft_hypotheses
from sage.run.questions import Redesign
from sage.run.services import Services
from sage.run.state import Decision, ReviewAnswer, RunState
from validation.core.hypothesis import Exposure, Hypothesis

QUERIES = 3


def path_generation(services: Services, state: RunState) -> dict[str, Any]:
    """Turn the prompt into a graph query, search the graph, and keep the best paths.

    A query that finds no path is returned to the agent a limited number of times. If the
    graph has no path, or is about another disease, a question about variables in the cohort
    continues without paths: the claim is tested as asked, and the literature shows what is
    known about it.
    """
    with services.node("path_generation"):
        question = state.get("question") or Question(prompt=state["prompt"])
        if question.setting.mismatches and _direct(question):
            message = f"no path is used: {' '.join(question.setting.mismatches)}"
            services.folder.event("note", node="path_generation", message=message)
            empty = PathSearch(prompt=state["prompt"], concepts=(), unmatched=(), paths=(),
                               candidates=0, notes=(message,))  # fmt: skip
            write_json(services.folder.output("paths"), empty)
            return {"paths": []}
        already: tuple[str, ...] = ()
        for attempt in range(QUERIES):
            request = PathRequest(prompt=state["prompt"], question=question, already=already)
            name = "path_generation" + (f"-r{attempt}" if attempt else "")
            query = services.ask(PATH_GENERATION, request, name).output
            search = _walk(services, state["prompt"], query)
            if search.paths or services.reasoner.name == "rules":
                break
            already += (f"{', '.join(query.sources)} -> {', '.join(query.targets)}",)
        write_json(services.folder.output("paths"), search)
        if not search.paths and not _direct(question):
            hint = " ".join(search.notes) or "Name a gene, cell type, feature or endpoint."
            raise InputError(f"the prompt matches no path in {services.manifest.kg}. {hint}")
        if not search.paths:
            message = "the graph has no path between the question's parts; tested as asked"
            services.folder.event("note", node="path_generation", message=message)
        return {"paths": list(search.paths)}


def _direct(question: Question) -> bool:
    """Check whether the question itself names exposures that the cohort can compare."""
    return any(part.variables for part in question.testable(PartRole.EXPOSURE))


def _walk(services: Services, prompt: str, query: PathQuery) -> PathSearch:
    """Search between the query's concepts or, without any, between those named in the prompt.

    A query may name types ("genes"), which the graph search parses from a sentence.
    """
    from kg.paths.find import find_paths

    asked = prompt
    if query.sources or query.targets:
        sides = [", ".join(item) for item in (query.sources, query.targets) if item]
        asked = f"{' and '.join(sides)} in {query.domain}"
    return find_paths(
        services.graph,
        asked,
        services.settings.path_options(seed=services.spec.seed),
        services.embedder,
        domain=query.domain,
    )


def ontologist(services: Services, state: RunState) -> dict[str, Any]:
    """Ground the paths in the literature, if there are any."""
    with services.node("ontologist"):
        question = state.get("question") or Question(prompt="")
        given = OntologistInput(question=question, paths=tuple(state["paths"]))
        brief = OntologyBrief(definitions=(), relationships=())
        if given.paths:
            brief = compose_brief(given, services.ask(ONTOLOGIST, given, "ontologist").output)
        write_json(services.folder.output("brief"), brief)
        return {"brief": brief}


def scientist(services: Services, state: RunState) -> dict[str, Any]:
    """Draft candidates, rank them before anything is tested, and keep the best.

    The number kept is the number requested for the run, plus one for each reviewer's wish.
    """
    with services.node("scientist"):
        drafts: list[Draft] = list(state.get("drafts", []))
        wishes = list(state.get("wishes", []))
        if not wishes:
            wanted = max(services.settings.drafts, services.spec.hypotheses)
            drafts += draft_hypotheses(services, state, drafts, wanted, services.spec.hypotheses)
        for wish in wishes:
            try:
                drafts += draft_hypotheses(services, state, drafts, 1, 1, wish)
            except InputError as error:
                services.folder.event("note", node="scientist", message=str(error))
        return {"drafts": drafts, "wishes": []}


REDESIGNS = 2
"""Maximum number of infeasible claims in a run that are returned to the scientist."""


def redesign(services: Services, state: RunState) -> dict[str, Any]:
    """Return infeasible claims to the scientist with the reason, before the run ends."""
    redesigned = list(state.get("redesigned", []))
    infeasible = [
        evaluation.hypothesis_id
        for evaluation in state.get("evaluations", [])
        if evaluation.ended == "infeasible" and evaluation.hypothesis_id not in redesigned
    ][: REDESIGNS - len(redesigned)]
    if not infeasible:
        return {"wishes": []}
    with services.node("redesign"):
        wishes = []
        for name in infeasible:
            reason = _why_infeasible(services, name)
            wishes.append(
                f"{name} was judged infeasible: {reason} Redesign it: keep the question's parts,"
                " and change what made it infeasible (groups, population, number of exposures)."
            )
            place = f"h{len(state['drafts']) + len(wishes)}"
            write_json(
                services.folder.output(f"redesign-{place}"), Redesign(of=name, reason=reason)
            )
            services.folder.event("note", node="redesign", message=wishes[-1])
        return {"wishes": wishes, "redesigned": [*redesigned, *infeasible]}


def _why_infeasible(services: Services, name: str) -> str:
    """List the facts that made the claim infeasible, blocking ones first, then remedies."""
    from agents.feasibility.agent import read_evidence

    gathered = read_evidence(services.folder.output(f"evidence-{name}"))
    failed = [fact for fact in gathered if fact.found is False]
    reasons = [fact.statement for fact in failed if fact.blocking]
    reasons += [fact.remedy for fact in sorted(failed, key=lambda fact: not fact.blocking)]
    return " ".join(dict.fromkeys(filter(None, reasons))) or "its weighted score is too low."


def review(_: Services, state: RunState) -> dict[str, Any]:
    """Interrupt for the human review, and do nothing else.

    The value returned by `sage review` is a `ReviewAnswer`. Only waiting drafts are looked up
    in it, so an id that is not waiting is ignored.
    """
    from langgraph.types import interrupt

    settled = {item.hypothesis_id for item in state.get("decided", [])}
    waiting = [draft for draft in state["drafts"] if draft.hypothesis.id not in settled]
    answer = ReviewAnswer.model_validate(
        interrupt({"waiting": [item.hypothesis.id for item in waiting]})
    )
    decisions = {decision.hypothesis_id: decision for decision in answer.decisions}
    decided: list[Decision] = list(state.get("decided", []))
    reviewed: list[ReviewedHypothesis] = list(state.get("reviewed", []))
    wishes = []
    for draft in waiting:
        decision = decisions.get(draft.hypothesis.id)
        if decision is None:
            continue
        decided.append(decision)
        if decision.action == "another":
            wishes.append(decision.comment or "a different hypothesis")
        elif decision.action in ("approve", "edit"):
            reviewed.append(accept(draft, decision))
    return {"decided": decided, "reviewed": reviewed, "wishes": wishes}


def accept(draft: Draft, decision: Decision) -> ReviewedHypothesis:
    """Return the hypothesis as approved by the reviewer.

    An edit that changes the claim discards findings for the old claim: its names for the
    literature search, and every process and source that mentions none of the new exposures.
    """
    edited = decision.action == "edit" and decision.edited is not None
    hypothesis = decision.edited if edited and decision.edited else draft.hypothesis
    mechanism, citations, against = draft.mechanism, draft.citations, draft.contradicting
    refinements, concepts = draft.refinements, draft.concepts
    if _claim_of(hypothesis) != _claim_of(draft.hypothesis):
        concepts = ()
    variables = {exposure.variable for exposure in hypothesis.exposures}
    if variables != {exposure.variable for exposure in draft.hypothesis.exposures}:
        names = [_name_of(exposure) for exposure in hypothesis.exposures]
        mechanism = tuple(item for item in mechanism if _mentions(item, names))
        citations = tuple(c for c in citations if _mentions(f"{c.title} {c.quote}", names))
        against = tuple(c for c in against if _mentions(f"{c.title} {c.quote}", names))
        refinements = tuple(
            refinement for refinement in refinements if refinement.variable not in variables
        )
    return ReviewedHypothesis(
        hypothesis=hypothesis,
        remark=draft.remark,
        mechanism=mechanism,
        citations=citations,
        contradicting=against,
        refinements=refinements,
        concepts=concepts,
        review="edited" if edited else "auto-approved" if decision.automatic else "approved",
        comment=decision.comment,
    )


def _claim_of(hypothesis: Hypothesis) -> tuple[object, ...]:
    return (
        tuple((exposure.variable, exposure.level) for exposure in hypothesis.exposures),
        hypothesis.endpoint,
        hypothesis.direction,
        hypothesis.population.filters,
    )


def _name_of(exposure: Exposure) -> str:
    name = exposure.variable.split(":")[-1].replace("_", " ")
    return name.removesuffix(" density").removesuffix(" fraction").lower()


def _mentions(text: str, names: list[str]) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(name)}s?(?!\w)", text.lower()) for name in names)
