"""Tools that start a SAGE run, review its hypotheses, and report its state.

They run the `sage` command as a separate process with a list of arguments, through a callable
supplied by the application; this package has no knowledge of the application itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.spec import ATTRIBUTE, Resources, ToolSpec, tool
from sage.core.errors import FaultError, InputError
from sage.core.models import Strict

RUN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
"""A run's ID, an ID prefix, or "last"; never a path."""


@dataclass(frozen=True)
class Answer:
    """A command's result."""

    code: int
    stdout: str
    stderr: str


Drive = Callable[[Sequence[str], Callable[[], bool]], Answer]
"""Function that runs `sage` with these arguments until its second argument returns True."""


RunName = Annotated[
    str, Field(description='A run\'s ID, a prefix of it, or "last"', max_length=128)
]


class StartInput(Strict):
    """A research question, and the data on which to test it."""

    prompt: str = Field(min_length=8, max_length=4000, description="The research question")
    cohort: str = Field(
        default="demo", description='Cohort under the roots, a built-in name, or "demo"'
    )
    graph: str | None = Field(default=None, description="Knowledge graph under the roots")
    hypotheses: int = Field(default=1, ge=1, le=10)
    seed: int = Field(default=0, ge=0)


class ReviewInput(Strict):
    """A decision on the hypotheses awaiting review."""

    run: RunName
    decision: Literal["approve", "reject", "edit", "another"]
    reason: str = Field(
        default="",
        max_length=2000,
        description="Reason for the rejection, or what is wanted instead",
    )
    changes: dict[str, Any] = Field(
        default_factory=dict, description="For edit: fields of the hypothesis and their new values"
    )
    hypothesis: str | None = Field(
        default=None, max_length=128, description="Numbers of the hypotheses; default: all"
    )


class StatusInput(Strict):
    """The run whose state is requested."""

    run: RunName = "last"


class RunResult(BaseModel):
    """Output of the command. `status` states what the run is waiting for, if anything."""

    run: str | None
    status: str
    detail: dict[str, Any]


def run_tools(drive: Drive) -> list[ToolSpec]:
    """Build the `start_run`, `review_run` and `run_status` tools from a driver for `sage`."""

    @tool(
        "start_run",
        "knowledge",
        "2.0.0",
        "Start a run of SAGE on a research question. The run pauses when its hypotheses are "
        "ready for review: answer with review_run. Takes minutes.",
        Resources(cpu=1, memory_mb=2048),
        cacheable=False,
        acts=True,
        title="Start a research run",
    )
    def start_run(given: StartInput, context: ToolContext) -> RunResult:
        words = ["run", "--json", "--seed", str(given.seed)]
        words += ["--hypotheses", str(given.hypotheses)]
        words += ["--cohort", _under_roots(given.cohort, context)]
        if given.graph is not None:
            words += ["--kg", str(context.input(given.graph))]
        context.progress(0.05, "running")
        return _parse_run(drive([*words, "--", given.prompt], context.cancelled))

    @tool(
        "review_run",
        "knowledge",
        "1.0.0",
        "Answer the review checkpoint of a run: approve, reject with a reason, edit, or ask for "
        "another hypothesis. The run then continues to its report. Takes minutes.",
        Resources(cpu=1, memory_mb=2048),
        cacheable=False,
        acts=True,
        title="Answer a run's review",
    )
    def review_run(given: ReviewInput, context: ToolContext) -> RunResult:
        words = ["review", "--json"]
        if given.hypothesis is not None:
            words += [f"--hypothesis={given.hypothesis}"]
        if given.decision == "approve":
            words += ["--approve"]
        elif given.decision == "edit":
            if not given.changes:
                raise InputError("edit requires changes (hypothesis fields and their new values)")
            with context.writing("changes.json") as path:
                path.write_text(json.dumps(given.changes), encoding="utf-8")
            words += [f"--edit={context.output('changes.json')}"]
        else:
            if not given.reason.strip():
                raise InputError(f"{given.decision} requires a reason")
            words += [f"--{given.decision}={given.reason}"]
        context.progress(0.05, "running")
        return _parse_run(drive([*words, "--", _run_name(given.run)], context.cancelled))

    @tool(
        "run_status",
        "knowledge",
        "1.0.0",
        "Show a run of SAGE: its status, hypotheses, verdicts, time and cost.",
        Resources(cpu=1, memory_mb=256),
        cacheable=False,
        title="Show the state of a run",
    )
    def run_status(given: StatusInput, context: ToolContext) -> RunResult:
        return _parse_run(drive(["show", "--json", "--", _run_name(given.run)], context.cancelled))

    return [getattr(item, ATTRIBUTE) for item in (start_run, review_run, run_status)]


def _run_name(name: str) -> str:
    if not RUN.match(name):
        raise InputError(f'"{name[:40]}" is not a run ID')
    return name


def _under_roots(cohort: str, context: ToolContext) -> str:
    """Return the name of a built-in cohort unchanged, and resolve anything else under the roots."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", cohort):
        try:
            return str(context.input(cohort))
        except InputError:  # no such folder: the command knows its built-in names
            return cohort
    return str(context.input(cohort))


def parse_json(answer: Answer, allowed: Collection[int] = (0,)) -> dict[str, Any]:
    """Parse the JSON object that a command printed.

    Raises `InputError` if the command refused (exit code 2), and `FaultError` if it ended
    with another code that is not in `allowed`, or printed anything else.
    """
    if answer.code not in allowed:
        lines = [line for line in answer.stderr.splitlines() if line.strip()]
        message = lines[-1].removeprefix("error: ") if lines else f"exit code {answer.code}"
        kind = InputError if answer.code == 2 else FaultError
        raise kind(f"sage: {message[:500]}")
    try:
        detail = json.loads(answer.stdout)
    except ValueError as error:
        raise FaultError(f"sage did not return JSON: {answer.stdout[:200]!r}") from error
    if not isinstance(detail, dict):
        raise FaultError("sage returned something other than a JSON object")
    return detail


def _parse_run(answer: Answer) -> RunResult:
    detail = parse_json(answer)
    manifest = detail.get("manifest")
    inner = manifest if isinstance(manifest, dict) else {}
    run = detail.get("run") or detail.get("id") or inner.get("id")
    status = detail.get("status") or inner.get("status") or "finished"
    return RunResult(run=str(run) if run else None, status=str(status), detail=detail)
