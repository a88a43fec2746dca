"""The review inbox: waiting hypotheses, live previews of edits, and recorded decisions.

Interrupts and responses have the fields of LangGraph's `HumanInterrupt` and
`HumanResponse`, so that inboxes built for LangGraph can show and answer them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from pydantic import Field

from agents.core.statement import describe_design, describe_direction
from agents.core.types import Draft, OntologyBrief
from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.files import read_json, write_json
from sage.core.hooks import DECIDED
from sage.core.models import Strict
from sage.run.drive import find_pause
from sage.run.folder import RunFolder, find_holder
from sage.run.questions import describe_carried
from sage.run.review import ACTIONS, HumanResponse, drafts_of, edited_hypothesis, interrupt_of
from sage.run.services import Services
from sage.web.people import person
from sage.web.processes import Commands
from validation.contracts.timing import known_text

if TYPE_CHECKING:
    from agents.scientist.blind import BlindCohort
    from sage.web.reviews import Reviews
    from sage.web.site import Site

router = APIRouter()

SHOWN = 40


class Comment(Strict):
    """A reviewer's comment on a hypothesis."""

    reviewer: str = Field(default="", max_length=80)
    hypothesis: str = Field(max_length=40)
    text: str = Field(min_length=1, max_length=4000)


class Vote(Strict):
    """A reviewer's decisions on the waiting hypotheses, by ID."""

    reviewer: str = Field(default="", max_length=80)
    responses: dict[str, HumanResponse] = Field(min_length=1)


class Change(Strict):
    """An edit in progress."""

    hypothesis: str = Field(max_length=40)
    changes: dict[str, Any] = Field(default_factory=dict)


@router.get("/inbox")
def inbox(request: Request) -> list[dict[str, Any]]:
    """List every run that is waiting for a review, with its interrupts."""
    site: Site = request.app.state.site
    commands: Commands = request.app.state.commands
    found = []
    for name, run in site.runs():
        manifest = run.manifest()
        if manifest.status != "waiting for review" or commands.alive(name):
            continue
        drafts = _waiting(site, run)
        found.append(
            {
                "name": name,
                "prompt": manifest.spec.prompt,
                "cohort": manifest.cohort_title,
                "created": manifest.created,
                "interrupts": [interrupt_of(draft).model_dump(mode="json") for draft in drafts],
            }
        )
    return found


@router.get("/runs/{name}/review")
def review(name: str, request: Request) -> dict[str, Any]:
    """Return a run's waiting hypotheses as text, with the known facts about them."""
    site: Site = request.app.state.site
    run = site.run(name).verify_resting()
    blind = site.cohort_of(run)
    brief_path = run.output("brief")
    brief = OntologyBrief.model_validate(read_json(brief_path)) if brief_path.exists() else None
    return {
        "name": name,
        "prompt": run.manifest().spec.prompt,
        "reviewers": site.reviewers,
        "endpoints": [
            {"key": endpoint.key, "label": endpoint.label, "kind": endpoint.kind,
             "n": endpoint.n, "events": endpoint.events}
            for endpoint in blind.dictionary.endpoints
        ],
        "cards": [_card(run, draft, brief, blind) for draft in _waiting(site, run)],
        "notes": request.app.state.reviews.entries(run),
    }  # fmt: skip


def _card(
    run: RunFolder, draft: Draft, brief: OntologyBrief | None, blind: BlindCohort
) -> dict[str, Any]:
    hypothesis = draft.hypothesis
    steps = {
        row.process: {
            "process": row.process,
            "belief": row.belief,
            "evidence": [source.model_dump(mode="json") for source in row.evidence],
            "contradicting": [source.model_dump(mode="json") for source in row.contradicting],
        }
        for row in (brief.relationships if brief else ())
        if row.process in draft.mechanism
    }
    return {
        "id": hypothesis.id,
        "interrupt": interrupt_of(draft).model_dump(mode="json"),
        "remark": draft.remark.model_dump() if draft.remark else None,
        "carries": describe_carried(run, hypothesis),
        "steps": list(steps.values()),
        "citations": [source.model_dump(mode="json") for source in draft.citations],
        "contradicting": [source.model_dump(mode="json") for source in draft.contradicting],
        "support_absent": draft.support_absent,
        **_view(blind, hypothesis),
    }


def _view(blind: BlindCohort, hypothesis: Any) -> dict[str, Any]:
    """Return a claim's design, group sizes, detectable effect and variables, without outcomes."""
    endpoint = blind.dictionary.endpoint(hypothesis.endpoint)
    keys = tuple(exposure.variable for exposure in hypothesis.exposures)
    described = blind.describe(keys)
    return {
        "hypothesis": hypothesis.model_dump(mode="json"),
        "design": describe_design(hypothesis, blind.dictionary),
        "direction": describe_direction(hypothesis, endpoint.kind if endpoint else "survival"),
        "power": blind.power(hypothesis).model_dump(mode="json"),
        "variables": [item.model_dump(mode="json") for item in described.variables],
    }


@router.post("/runs/{name}/preview")
def preview(name: str, change: Change, request: Request) -> dict[str, Any]:
    """Preview an edit: the statement, the differences, the groups and the detectable effect."""
    site: Site = request.app.state.site
    run = site.run(name)
    services = _services(site, run)
    draft = _draft(run, change.hypothesis)
    edit = edited_hypothesis(services, draft, change.changes)
    blind = site.cohort_of(run)
    return {
        "statement": edit.hypothesis.statement,
        "differences": [list(item) for item in edit.differences],
        **_view(blind, edit.hypothesis),
    }


@router.get("/runs/{name}/variables")
def variables(name: str, request: Request, q: str = "") -> list[dict[str, Any]]:
    """Find dictionary variables whose key, label or synonym contains the search text."""
    site: Site = request.app.state.site
    blind = site.cohort_of(site.run(name))
    dictionary, words = blind.dictionary, q.strip().lower()
    found = [
        {"key": item.key, "label": item.label, "kind": item.kind, "unit": item.unit or "",
         "n": item.n, "missing": item.missing, "known_at": known_text(item.known_at)}
        for item in dictionary.variables
        if words in " ".join((item.key, item.label, *item.synonyms)).lower()
    ]  # fmt: skip
    genes = [gene for gene in dictionary.expression if words in gene.lower()]
    genes.sort(key=lambda gene: (not gene.lower().startswith(words), len(gene), gene))
    found += [
        {"key": f"expression:{gene}", "label": f"{gene} expression", "kind": "continuous",
         "unit": dictionary.expression_unit or "", "n": dictionary.expression_n, "missing": None,
         "known_at": known_text(dictionary.expression_known_at)}
        for gene in genes[:SHOWN]
    ]  # fmt: skip
    shown = found[:SHOWN]
    for item in shown:
        item["withheld"] = blind.withheld(str(item["key"]))
    return shown


@router.post("/runs/{name}/comments")
def comment(name: str, said: Comment, request: Request) -> list[dict[str, Any]]:
    """Store a reviewer's comment with the run."""
    run = request.app.state.site.run(name)
    _draft(run, said.hypothesis)
    reviews: Reviews = request.app.state.reviews
    who = person(request, said.reviewer)
    reviews.add(run, who, hypothesis=said.hypothesis, text=said.text)
    return reviews.entries(run)


@router.post("/runs/{name}/review")
def decide(name: str, vote: Vote, request: Request) -> dict[str, Any]:
    """Store a reviewer's decision; once enough people agree, the run continues with it.

    Every decision is checked here, so that an unacceptable edit is rejected immediately.
    """
    require_extra("literature", "going on with a run")
    with request.app.state.deciding:  # simultaneous votes start one command
        return _list_decisions(name, vote, request)


def _list_decisions(name: str, vote: Vote, request: Request) -> dict[str, Any]:
    site: Site = request.app.state.site
    commands: Commands = request.app.state.commands
    run = site.run(name)
    if find_holder(run) or commands.alive(name):
        raise InputError(f"run {run.id} is already in progress")
    services, who = _services(site, run), person(request, vote.reviewer)
    drafts = {draft.hypothesis.id: draft for draft in _waiting(site, run)}
    for hypothesis, response in vote.responses.items():
        if hypothesis not in drafts:
            raise InputError(f"hypothesis {hypothesis[:40]} is not waiting for review")
        response.decision(services, drafts[hypothesis])
    reviews = request.app.state.reviews
    for hypothesis, response in vote.responses.items():
        site.people.log(who, DECIDED[ACTIONS[response.type]], name, hypothesis=hypothesis)
        reviews.add(run, who, hypothesis=hypothesis, response=response.model_dump(mode="json"))
    notes, agreed = reviews.entries(run), {}
    for hypothesis in drafts:
        people, response = _find_agreement(notes, hypothesis, site.reviewers)
        if response is None:
            waits = [
                item for item in drafts if _find_agreement(notes, item, site.reviewers)[1] is None
            ]
            return {"applied": False, "waits": waits, "notes": notes}
        agreed[hypothesis] = response | {"reviewers": people}
    path = commands.home / f"{name}.decisions.json"
    write_json(path, agreed)
    queue = ["--queue"] if site.settings.checkpoint_url is not None else []
    commands.start(name, "review", f"--decisions={path}", *queue, "--", str(run.root), owner=who)
    return {"applied": True, "waits": [], "notes": notes}


def _find_agreement(
    notes: list[dict[str, Any]], hypothesis: str, needed: int
) -> tuple[list[str], Any]:
    """Find a decision supported by enough different people.

    Names that differ only in case count as the same person. Comments, and the reasons for a
    rejection, may differ: all of them are kept.
    """
    last = {}
    for note in notes:
        if note["hypothesis"] == hypothesis and "response" in note:
            last[note["reviewer"].casefold()] = (note["reviewer"], note["response"])
    for _, response in last.values():
        same = [item for item in last.values() if _meaning(item[1]) == _meaning(response)]
        if len(same) >= needed:
            said = {"comment": _comparable_part(other["comment"] for _, other in same)}
            if response["type"] == "ignore":
                said["args"] = _comparable_part(other["args"] for _, other in same)
            return [who for who, _ in same], response | said
    return [], None


def _meaning(response: dict[str, Any]) -> tuple[Any, ...]:
    """Return the part of a decision that must match for two people to agree."""
    kind = response["type"]
    return (kind, None if kind in ("accept", "ignore") else response["args"])


def _comparable_part(texts: Iterable[str]) -> str:
    """Join the distinct texts, omitting duplicates."""
    return "; ".join(dict.fromkeys(text for text in texts if text))


def _services(site: Site, run: RunFolder) -> Services:
    """Return read-only services for a run, without locking or executing it."""
    services = Services(run, run.manifest(), site.settings)
    services.__dict__["dictionary"] = site.cohort_of(run).dictionary
    return services


def _waiting(site: Site, run: RunFolder) -> list[Draft]:
    services = _services(site, run) if run.manifest().status == "waiting for review" else None
    pause = find_pause(services) if services else None
    if services is None or pause is None or pause.kind != "review":
        return []
    return drafts_of(services, pause.waiting)


def _draft(run: RunFolder, hypothesis: str) -> Draft:
    run.hypothesis(hypothesis)  # refuses an invalid id
    path = run.output(f"draft-{hypothesis}")
    if not path.is_file():
        raise InputError(f"the run has no hypothesis {hypothesis}")
    return Draft.model_validate(read_json(path))
