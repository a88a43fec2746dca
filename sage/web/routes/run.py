"""Routes for a run in progress: its state, its live events, and each agent's turns."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, RedirectResponse, StreamingResponse

from agents.core.types import Draft, ExpandedHypothesis
from sage.core.errors import InputError
from sage.core.files import read_json, read_new_lines
from sage.core.llm.trace import episodes, read_trace
from sage.core.models import Strict
from sage.core.printable import clean_text
from sage.report.spending import list_paid
from sage.run.evaluation_nodes import suffix
from sage.run.folder import RunFolder, find_holder
from sage.run.steps import STEPS
from sage.web.processes import Commands, stop
from sage.web.routes.home import WHY, collect_claims, summary

if TYPE_CHECKING:
    from sage.web.site import Site

router = APIRouter(prefix="/runs/{name}")

POLL = 0.1
"""Seconds between reads of a run's event log."""
HEARTBEAT = 15.0
LONGEST = 60_000
"""Maximum number of characters shown from a text in a trace."""
LINES = 400
FIGURE = re.compile(r"(?:results/figures|fields)/[A-Za-z0-9_.-]{1,120}\.(?:svg|png)")
FIGURE_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'"
"""Security policy for a figure opened directly: it is drawn, but cannot run or load anything."""
SCREEN = 800
"""Number of screen pixels that an image's field should fill."""
REPORT_POLICY = (
    "sandbox allow-same-origin allow-downloads; default-src 'none'; style-src 'unsafe-inline';"
    " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""Security policy for a report, a scriptless document whose own embedded policy is stricter.

The origin is kept, because links to slides need the cookie, and so that figures can be
saved.
"""
READS = {
    "question": "the prompt, the vocabulary of graph and cohort",
    "path_generation": "the question",
    "ontologist": "the question, the paths with their passages",
    "scientist": "the question, the brief with quotations, the data dictionary",
    "expansion": "the reviewed hypothesis",
    "prover": "the expanded hypothesis, retrieved literature, the debate so far",
    "verifier": "the expanded hypothesis, retrieved literature, the debate so far",
    "judge": "the expanded hypothesis, retrieved literature, the debate so far",
    "feasibility": "the expanded hypothesis, its draft contract's numbers, gathered evidence",
    "coding_instructions": "the expanded hypothesis, the data dictionary, the tool registry",
    "interpreter": "the expanded hypothesis, the contract, the typed results",
    "summary": "the interpretation, the expanded hypothesis, the verdict with its reasons",
}
"""Descriptions of each agent's input (docs/reference/architecture.md)."""


def _state(name: str, site: Site, commands: Commands) -> dict[str, Any]:
    """Return the run's entry in the list of runs, even if its folder does not exist yet."""
    try:
        run = site.run(name)
    except InputError:
        if not commands.log(name).is_file():
            raise
        failed = commands.failure(name)
        status = "failed" if failed else "starting" if commands.alive(name) else "stopped"
        why = failed or WHY.get(status, "")
        return {"name": name, "status": status, "problem": failed, "why": why, "report": False}
    found = summary(name, run, run.manifest(), commands)
    if found["status"] == "waiting for review" and (commands.alive(name) or find_holder(run)):
        found |= {"status": "running", "why": WHY["running"]}
    if found["status"] == "running" and run.pause_path.exists():
        found |= {"status": "pausing", "why": WHY["pausing"]}
    if failed := commands.failure(name):
        found["problem"] = found["why"] = failed
    return found


@router.get("")
def show(name: str, request: Request) -> dict[str, Any]:
    """Return everything needed for the initial view of a run's page."""
    site: Site = request.app.state.site
    state = _state(name, site, request.app.state.commands)
    try:
        run = site.run(name)
    except InputError:
        return {**state, "steps": STEPS, "claims": [], "hypotheses": [], "spending": []}
    manifest, shown = run.manifest(), collect_claims(request, run)
    try:
        statements = _statements(run.verify_resting())
    except InputError as error:
        statements, shown = [], {"claims": [], "why": str(error)}
    return {
        **state,
        **shown,
        "steps": STEPS,
        "budget_usd": manifest.spec.budget_usd,
        "seed": manifest.spec.seed,
        "models": manifest.models,
        "folder": str(run.root),
        "hypotheses": statements,
        "spending": [row.model_dump() for row in list_paid(run)],
    }


def _statements(run: RunFolder) -> list[dict[str, str]]:
    """Return each hypothesis's id and statement, as last edited or revised."""
    found = [
        Draft.model_validate(read_json(path)).hypothesis
        for path in sorted((run.root / "outputs").glob("draft-h*.json"))
    ]
    for at, item in enumerate(found):
        rounds = [run.output(f"expanded-{suffix(item.id, number)}") for number in range(10)]
        for path in filter(Path.exists, rounds):
            found[at] = ExpandedHypothesis.model_validate(read_json(path)).hypothesis
    return [{"id": item.id, "statement": item.statement} for item in found]


@router.get("/events")
def events(name: str, request: Request) -> StreamingResponse:
    """Stream the event log as server-sent events; reconnecting clients resume where they were."""
    site: Site = request.app.state.site
    commands: Commands = request.app.state.commands
    if "created" in _state(name, site, commands):  # refused before the stream begins
        site.run(name).verify_resting()
    begin = request.headers.get("last-event-id", "0")
    offset = int(begin) if begin.isdigit() else 0

    async def tail() -> AsyncIterator[str]:
        nonlocal offset
        sent_state, quiet = "", 0.0
        while not await request.is_disconnected():
            sent = False
            for line in await asyncio.to_thread(_fresh, site, name, offset):
                offset += len(line)
                text = line.decode("utf-8", "replace").rstrip("\n")
                yield f"id: {offset}\nevent: step\ndata: {text}\n\n"
                sent = True
            state = json.dumps(await asyncio.to_thread(_state, name, site, commands))
            if state != sent_state or sent:
                sent_state = state
                yield f"event: state\ndata: {state}\n\n"
                sent = True
            quiet = 0.0 if sent else quiet + POLL
            if quiet >= HEARTBEAT:
                quiet = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(POLL)

    return StreamingResponse(tail(), media_type="text/event-stream")


def _fresh(site: Site, name: str, offset: int) -> list[bytes]:
    """Read new lines in the event log; return none while the run has no folder yet."""
    with suppress(InputError):
        return read_new_lines(site.run(name).events_path, offset)
    return []


@router.get("/agents")
def agents(name: str, request: Request, node: str, hypothesis: str = "") -> dict[str, Any]:
    """Return the questions to agents within a step: input, tool calls, answers and cost.

    Parameters
    ----------
    node : the step of the pipeline, as named in the run's events
    hypothesis : id of the step's hypothesis; empty for steps not about a hypothesis

    Returns
    -------
    Episodes in the order of the trace, each with its turns; none if the run has no trace.

    Raises
    ------
    InputError
        If the run does not exist; returned to the client with status 422.
    """
    run = request.app.state.site.run(name).verify_resting()
    if not run.trace_path.exists():
        return {"episodes": []}
    found = []
    for lines in episodes(read_trace(run.trace_path)):
        first = lines[0]
        if (first.node, first.hypothesis) != (node, hypothesis):
            continue
        found.append(
            {
                "agent": first.agent,
                "reasoner": first.reasoner or "",
                "reads": READS.get(first.agent, ""),
                "returns": first.returns or "",
                "input_sha256": first.input_sha256 or "",
                "tools": list(first.tools or ()),
                "turns": [_turn(line.model_dump(mode="json", exclude_none=True)) for line in lines],
            }
        )
    return {"episodes": found}


def _turn(line: dict[str, Any]) -> dict[str, Any]:
    """Shorten the long texts in a trace line, marking each shortened text."""
    shown: dict[str, Any] = {}
    for key in ("kind", "seconds", "prompt_tokens", "completion_tokens", "usd", "model", "tool",
                "text", "content", "reasoning", "error", "outcome", "cached"):  # fmt: skip
        if key in line:
            shown[key] = _shorten_texts(line[key])
    for key in ("messages", "arguments", "result", "output", "decision"):
        if line.get(key) is not None:
            shown[key] = _shorten_texts(json.dumps(line[key], indent=1, ensure_ascii=False))
    return shown


def _shorten_texts(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= LONGEST:
        return value
    return f"{value[:LONGEST]}\n… {len(value) - LONGEST:,} more characters in trace.jsonl"


@router.get("/log")
def log(name: str, request: Request) -> dict[str, Any]:
    """Return the last lines of the run's log and of its last command's output."""
    commands: Commands = request.app.state.commands
    lines: list[Any] = []
    site: Site = request.app.state.site
    if "created" in _state(name, site, commands):  # else the run has no folder yet
        path = site.run(name).verify_resting().root / "log.jsonl"
        with suppress(OSError), path.open("rb") as kept:
            kept.seek(max(0, path.stat().st_size - (1 << 18)))
            for line in kept.read().splitlines()[-LINES:]:
                with suppress(ValueError):
                    lines.append(json.loads(line))
    said = commands.log(name)
    text = said.read_text(encoding="utf-8", errors="replace")[-20_000:] if said.is_file() else ""
    return {"lines": lines, "said": clean_text(text)}


@router.get("/report")
def report(name: str, request: Request) -> FileResponse:
    """Return the report as a document without scripts."""
    run = request.app.state.site.run(name)
    return FileResponse(
        run.verified(run.root / "report.html"),
        media_type="text/html",
        headers={"content-security-policy": REPORT_POLICY},
    )


@router.get("/hypotheses/{hypothesis}/{file:path}")
def figure(name: str, hypothesis: str, file: str, request: Request) -> FileResponse:
    """Return a figure from the report as a downloadable file.

    Parameters
    ----------
    file : path below the hypothesis's folder, in `results/figures` or `fields`

    Raises
    ------
    InputError
        If the file is not a figure in the run; returned to the client with status 422.
    """
    path = _figure_path(request.app.state.site.run(name), hypothesis, file)
    return FileResponse(
        path,
        filename=f"{hypothesis}-{path.name}",
        headers={"content-security-policy": FIGURE_POLICY},
    )


@router.get("/curve/{hypothesis}")
def curve(name: str, hypothesis: str, request: Request) -> FileResponse:
    """Return the figure for a claim's answer, to be shown next to the answer.

    Raises
    ------
    InputError
        If the claim has no answer with a figure, or a file of the run was changed; returned
        to the client with status 422.
    """
    site: Site = request.app.state.site
    run = site.run(name)
    figures = {claim["id"]: claim["figure"] for claim in site.claims(run)}
    file = figures.get(hypothesis, "").removeprefix(f"hypotheses/{hypothesis}/")
    path = _figure_path(run, hypothesis, file)
    return FileResponse(path, headers={"content-security-policy": FIGURE_POLICY})


def _figure_path(run: RunFolder, hypothesis: str, file: str) -> Path:
    home = run.hypothesis(hypothesis).resolve()
    path = home / file
    if not FIGURE.fullmatch(file) or path.resolve() != path or not path.is_file():
        raise InputError("the run has no such figure")
    return run.verified(path)


@router.get("/fields/{hypothesis}/{number}/{side}")
def field(
    name: str, hypothesis: str, number: int, side: Literal["high", "low"], request: Request
) -> RedirectResponse:
    """Redirect to the location on the slide shown by an image in the report.

    Parameters
    ----------
    hypothesis, number : the image's hypothesis and its position among that hypothesis's
        images, from 1
    side : the patient with the high or the low value

    Raises
    ------
    InputError
        If the run has no such image, or the slide is not on this machine; returned to the
        client with status 422.
    """
    from sage.report.fields import field_of
    from sage.web.routes.slides import slide_named
    from validation.contracts.contract import FrozenContract, read_claim

    site: Site = request.app.state.site
    run = site.run(name)
    path = run.hypothesis(hypothesis) / "contract.json"
    frozen = read_claim(path) if path.is_file() else None
    keys = [e.key for e in frozen.contract.exposures] if isinstance(frozen, FrozenContract) else []
    keys = list(dict.fromkeys(keys))
    if not 1 <= number <= len(keys):
        raise InputError("the run has no such picture")
    maps, (x, y, wide) = field_of(site.whole_cohort_of(run), keys[number - 1], side)
    slide = slide_named(site, maps.slide)
    mpp = request.app.state.tiles.slide(slide).mpp or maps.mpp
    if not mpp:
        raise InputError("the slide does not specify its pixel size")
    place = {"slide": str(slide), "x": round(x / mpp), "y": round(y / mpp),
             "zoom": f"{SCREEN * mpp / wide:.4g}"}  # fmt: skip
    return RedirectResponse(f"/slides#{urlencode(place)}", 303)


@router.post("/stop")
def interrupt(name: str, request: Request) -> dict[str, bool]:
    """Send Ctrl-C to the run; finished steps are kept, and the run can be resumed later."""
    if not request.app.state.commands.interrupt(name):
        stop(request.app.state.site.run(name))
    return {"stopped": True}


@router.post("/pause")
def pause(name: str, request: Request) -> dict[str, bool]:
    """Pause the run before its next step, after finishing the current step.

    The request is stored in the run's folder, so it remains in force if this server ends.
    """
    run = request.app.state.site.run(name)
    if not find_holder(run) and not request.app.state.commands.alive(name):
        raise InputError(f"no process is working on run {run.id}")
    run.pause_path.touch()
    return {"pausing": True}


class GoOn(Strict):
    """Options for resuming a run; `answer` is for an analysis that was escalated to a person."""

    answer: Literal["", "retry", "abandon"] = ""


@router.post("/resume")
def resume(name: str, how: GoOn, request: Request) -> dict[str, bool]:
    """Continue the run as `sage resume` does."""
    run = request.app.state.site.run(name)
    if find_holder(run):
        raise InputError(f"run {run.id} is already in progress")
    site: Site = request.app.state.site
    who, bound = site.people.grant_resumed(run, request.scope["state"].get("person", ""))
    options = [f"--{how.answer}"] if how.answer else []
    options += [f"--budget-usd={bound}"] if bound is not None else []
    run.pause_path.unlink(missing_ok=True)
    request.app.state.commands.start(name, "resume", *options, "--", str(run.root), owner=who)
    return {"resumed": True}
