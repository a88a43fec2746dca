"""Routes for the home page: a question and its parse, run costs, inputs and past runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from agents.question.types import PartRole
from sage.core.errors import InputError
from sage.core.hooks import BEGAN
from sage.core.models import Strict
from sage.core.versions import own_version
from sage.run.folder import RunFolder, find_holder, new_id
from sage.run.questions import (
    LONGEST,
    describe_lost,
    describe_part,
    describe_question,
    make_contract,
    question_input,
)
from sage.run.spec import Corrections, RunSpec
from sage.run.steps import describe_step
from sage.web.people import Role, check_count, roles
from sage.web.processes import Commands

if TYPE_CHECKING:
    from sage.run.folder import Manifest
    from sage.web.site import Site

router = APIRouter()

WHY = {
    "queued": "Waiting for a worker to start it.",
    "starting": "Starting.",
    "running": "Starting the next step.",
    "pausing": "Finishing the current step before it pauses.",
    "waiting for review": "Waiting for your review: no claim is tested before you approve it.",
    "escalated": "Waiting for you: the program of an analysis has to be corrected.",
    "paused": "Paused; finished steps are kept.",
    "stopped": "Stopped by a person; finished steps are kept.",
    "interrupted": "The process ended before the run did; finished steps are kept.",
    "failed": "The run failed.",
}
"""Sentences for runs without an answer, by status; a recorded problem comes first."""


class Ask(Strict):
    """A question as typed so far, with the user's corrections."""

    prompt: str = Field(max_length=LONGEST)
    cohort: str = Field(default="demo", max_length=200)
    replaced: dict[PartRole, tuple[str, ...]] = Field(default_factory=dict)
    dropped: tuple[str, ...] = Field(default=(), max_length=16)

    def corrections(self) -> Corrections:
        """Return the corrections in the form that `sage ask` uses."""
        return Corrections(replaced=self.replaced, dropped=self.dropped)


class Start(Ask):
    """A request to start a run."""

    hypotheses: int = Field(default=1, ge=1, le=10)
    auto_approve: bool = False
    reasoner: Literal["rules", "chat"] | None = None
    budget_usd: float | None = Field(default=None, ge=0)
    seed: int = 0


@router.get("/here")
def here(request: Request) -> dict[str, Any]:
    """Describe the server, including the value required to make changes."""
    site: Site = request.app.state.site
    return {
        "csrf": request.app.state.csrf,
        "version": own_version(),
        "reasoner": site.settings.effective_reasoner,
        "reviewers": site.reviewers,
        "user": request.scope["state"].get("person", ""),
        "user_fixed": site.people.identified,
        "roles": sorted(roles(request)) if site.people.identified else [],
        "pages": [page.describe(name) for name, page in request.app.state.pages.items()],
        "runs_dir": str(site.settings.runs_dir.resolve()),
        "cohorts": [
            item.model_dump(include={"id", "title", "simulated"})
            for item in site.cohort_names().values()
        ],
    }


@router.get("/doctor")
def doctor(request: Request) -> list[dict[str, Any]]:
    """List the components missing on this machine, with remedies."""
    from sage.cli.doctor import diagnose

    return [asdict(check) for check in diagnose(request.app.state.site.settings)]


@router.post("/ask")
def ask(asked: Ask, request: Request) -> dict[str, Any]:
    """Parse a question with the rules used by `sage ask`.

    If a language model is configured, the model parses the question when a run starts, but
    nothing is paid for while the user is typing.
    """
    from agents.core.base import Resources
    from agents.question.agent import read_question

    site: Site = request.app.state.site
    if not asked.prompt.strip():
        return {"lines": [], "parts": [], "refusals": [], "mismatches": [], "notes": []}
    given = question_input(asked.prompt, site.cohort(asked.cohort).dictionary(), site.graph)
    reading = read_question(given, Resources(ontology=site.ontology))
    question = make_contract(given, reading, site.ontology, asked.corrections())
    said = describe_question(question)
    return {
        "intent": said[0],
        "lines": said[1:],
        "parts": [
            {
                "role": part.role.value,
                "words": part.words,
                "name": part.name,
                "said": describe_part(part),
                "testable": part.testable,
                "left_out": part.left_out,
                "nearest": list(part.nearest),
            }
            for part in question.parts
        ],
        "notes": list(question.notes),
        "refusals": [*question.refusals, *describe_lost(question)],
        "mismatches": list(question.setting.mismatches),
    }


@router.get("/estimate")
def estimate(
    request: Request, hypotheses: Annotated[int, Query(ge=1, le=10)] = 1
) -> dict[str, Any]:
    """Return calls, tokens and cost as `--estimate` does, and the time from earlier local runs."""
    from sage.run.estimate import estimate as expect

    site: Site = request.app.state.site
    kind = site.settings.effective_reasoner
    took = [
        times
        for _, run in site.runs()[:30]
        if (manifest := run.manifest()).status == "finished" and manifest.reasoner == kind
        and sum(times := _seconds(run)) > 0
    ]  # fmt: skip
    once, each = (median(times) for times in zip(*took, strict=True)) if took else (0.0, 0.0)
    usual = once + each * hypotheses if took else None
    expected = expect(site.settings, hypotheses)
    return {
        "reasoner": kind,
        "calls": sum(row.calls for row in expected.agents),
        "tokens": sum(row.prompt_tokens + row.completion_tokens for row in expected.agents),
        "usd": expected.usd,
        "usd_most": expected.usd_most,
        "seconds": usual,
        "runs": len(took),
    }


def _seconds(run: RunFolder) -> tuple[float, float]:
    """Return the duration in seconds of a run's one-time steps and of the steps per hypothesis."""
    ended = [event for event in run.events() if event.get("event") == "end"]
    named = {event["hypothesis"] for event in ended if event.get("hypothesis")}
    once = sum(float(event["seconds"]) for event in ended if not event.get("hypothesis"))
    whole = sum(float(event["seconds"]) for event in ended)
    return once, (whole - once) / max(1, len(named))


@router.get("/runs")
def runs(request: Request, limit: int = 40) -> dict[str, Any]:
    """List runs with their answers, and campaigns, newest first."""
    site: Site = request.app.state.site
    commands: Commands = request.app.state.commands
    listed = site.runs()
    found = []
    for name, run in listed[: max(1, min(limit, 200))]:
        item = summary(name, run, run.manifest(), commands)
        if item["status"] == "running":
            item["why"] = describe_activity(run) or item["why"]
        found.append(item | collect_claims(request, run))
    for name, wrong in site.damaged.items():
        about = {"name": name, "prompt": name, "cohort": "", "created": "", "simulated": False}
        said = {"status": "failed", "problem": wrong, "why": wrong, "report": False, "claims": []}
        found.append(about | said)
    campaigns = []
    for campaign in site.campaigns()[:20]:
        plan = campaign.plan()
        campaigns.append(
            {"name": campaign.root.name, "status": plan.status, "stopped": plan.stopped,
             "question": plan.spec.prompt}
        )  # fmt: skip
    return {"runs": found, "all": len(listed), "campaigns": campaigns}


def collect_claims(request: Request, run: RunFolder) -> dict[str, Any]:
    """Return a run's answers; empty, with the reason, if a file in the run was changed."""
    try:
        return {"claims": request.app.state.site.claims(run)}
    except InputError as error:
        return {"claims": [], "why": str(error)}


def describe_activity(run: RunFolder) -> str:
    """Describe the steps that were started and have not ended."""
    begun: dict[str, None] = {}
    for event in run.events():
        label = describe_step(event)
        if event["event"] == "start":
            begun[label] = None
        elif event["event"] in ("end", "error"):
            begun.pop(label, None)
    return ", ".join(begun)


def summary(name: str, run: RunFolder, manifest: Manifest, commands: Commands) -> dict[str, Any]:
    """Summarize a run for a line in a list.

    Parameters
    ----------
    manifest : the manifest stored in the folder; a killed process leaves its status at
        "running"

    Returns
    -------
    The fields of the line. The status is "interrupted" if the manifest says "running" but no
    process holds the folder and no command started by this server is working on the run.
    `why` explains in a sentence why there is no answer yet or no answer at all.
    """
    status: str = manifest.status
    if status == "running" and not find_holder(run) and not commands.alive(name):
        status = "interrupted"
    return {
        "name": name,
        "prompt": manifest.spec.prompt,
        "cohort": manifest.cohort_title or manifest.spec.cohort,
        "simulated": manifest.simulated,
        "reasoner": manifest.reasoner,
        "created": manifest.created,
        "finished": manifest.finished,
        "status": status,
        "problem": manifest.problem,
        "why": manifest.problem or WHY.get(status, "No claim was tested."),
        "report": (run.root / "report.html").is_file(),
    }


@router.post("/runs")
def start(asked: Start, request: Request) -> dict[str, str]:
    """Start a run in a separate process, as `sage run` does."""
    site: Site = request.app.state.site
    if asked.auto_approve and site.reviewers > 1:
        raise InputError(
            f"{site.reviewers} people must review each run here, so the review cannot be skipped"
        )
    if asked.auto_approve and not roles(request) & {Role.REVIEW, Role.ADMINISTER}:
        raise InputError('the role "review" is required to skip the review')
    owner = request.scope["state"].get("person", "")
    check_count(request)
    names = site.cohort_names()
    site.cohort(asked.cohort)  # refuses an unlisted or unreadable cohort
    name = new_id(asked.prompt)
    arguments = ["run", f"--out={site.settings.runs_dir / name}"]
    if asked.reasoner:
        arguments.append(f"--reasoner={asked.reasoner}")
    if site.settings.checkpoint_url is not None:  # runs are executed by workers
        arguments.append("--queue")
    commands: Commands = request.app.state.commands
    site.people.release_failed(lambda place: bool(commands.failure(Path(place).name)))
    free = (asked.reasoner or site.settings.effective_reasoner) == "rules"
    run = RunFolder(site.settings.runs_dir / name)
    spec = RunSpec(
        **asked.model_dump(include={"prompt", "hypotheses", "auto_approve", "seed"}),
        cohort=names[asked.cohort].path or asked.cohort,
        kg=site.kg,
        budget_usd=site.people.grant(run, owner, asked.budget_usd, free=free),
        corrections=asked.corrections(),
    )
    if (entry := request.scope["state"].get("logged")) is not None:
        site.people.log(entry.who, BEGAN, name, request=entry.seq)
    commands.start(name, *arguments, spec=spec, owner=owner)
    return {"name": name}
