"""Functions that start a run's state machine or resume it after a checkpoint or a kill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sage.core.errors import InputError, Paused
from sage.core.files import read_json
from sage.run.checkpoints import checkpointer
from sage.run.folder import RunFolder
from sage.run.questions import ask_question, question_of, refuse
from sage.run.state import Decision, ReviewAnswer

if TYPE_CHECKING:
    from sage.run.services import Services


@dataclass(frozen=True)
class Pause:
    """A checkpoint that waits for a person: a hypothesis review or an escalated analysis."""

    kind: Literal["review", "escalation"]
    waiting: tuple[str, ...]
    interrupts: tuple[str, ...]


def advance(services: Services, answer: dict[str, Any] | None = None) -> Pause | None:
    """Run until the next checkpoint that needs a person, or to the end (None).

    `answer` maps interrupt ids to the values they were waiting for. Without an answer, a run
    continues from its last checkpoint; finished nodes do not run again.

    Raises
    ------
    Paused
        If a pause was requested; the current step is completed and the next is not started.
    """
    from langgraph.types import Command
    from langsmith import tracing_context

    from sage.run.graph import build

    folder = services.folder
    status = folder.manifest().status
    if status == "finished":
        return None
    if status == "paused":  # continuing cancels the pause request
        folder.pause_path.unlink(missing_ok=True)
    folder.update(status="running", problem=None)
    with checkpointer(services) as saver:
        machine = build(services).compile(checkpointer=saver)
        config: Any = {
            "configurable": {"thread_id": services.manifest.thread},
            "max_concurrency": 1 if services.manifest.reasoner == "rules" else 4,
            "recursion_limit": 200,
        }
        snapshot = machine.get_state(config)
        begin: Any
        if answer is not None:
            begin = Command(resume=answer)
        elif snapshot.created_at is None:
            if not folder.output("question_contract").exists():  # stopped before it was read
                refuse(ask_question(services), yes=services.spec.corrections.yes)
            begin = {"prompt": services.spec.prompt, "question": question_of(services.folder)}
        else:
            begin = None
        _trace_decisions(services, answer or {})
        try:
            with tracing_context(enabled=False):
                machine.invoke(begin, config, durability="sync")
        except KeyboardInterrupt:
            folder.pause_path.unlink(missing_ok=True)
            folder.update(status="stopped")
            raise
        except Paused:
            folder.update(status="paused")
            raise
        except Exception as error:
            folder.pause_path.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                folder.update(status="failed", problem=str(error)[:1000])
            raise
        pause = _pause(machine.get_state(config))
        newest = next(saver.list({"configurable": {"thread_id": services.manifest.thread}}), None)
        if newest is not None:
            folder.update(checkpoint=newest.config["configurable"]["checkpoint_id"])
    if pause is None:
        folder.finish()
    else:
        status = "waiting for review" if pause.kind == "review" else "escalated"
        problem = escalation_detail(folder, pause.waiting) if pause.kind == "escalation" else None
        folder.update(status=status, problem=problem, sealed=folder.record.head())
    return pause


def advance_to_person(services: Services, answer: dict[str, Any] | None = None) -> Pause | None:
    """Advance like `advance`, but continue through the review if it is auto-approved."""
    pause = advance(services, answer)
    while pause and pause.kind == "review" and services.spec.auto_approve:
        decisions = tuple(
            Decision(hypothesis_id=item, action="approve", automatic=True) for item in pause.waiting
        )
        pause = advance(services, review_answer(services, pause, decisions))
    return pause


def _trace_decisions(services: Services, answer: dict[str, Any]) -> None:
    """Record a person's decisions as turns in the trace."""
    for value in answer.values():
        for decision in value.get("decisions", []):
            who = "passed without a person" if decision["automatic"] else decision["action"]
            comment = f": {decision['comment']}" if decision["comment"] else ""
            services.trace.human("review", who + comment, decision["hypothesis_id"], decision)
        if "action" in value:
            services.trace.human("escalation", value["action"], "", value)


def find_pause(services: Services) -> Pause | None:
    """Return the pause at which the run is waiting, without executing any step."""
    from sage.run.graph import build

    with checkpointer(services) as saver:
        machine = build(services).compile(checkpointer=saver)
        return _pause(machine.get_state({"configurable": {"thread_id": services.manifest.thread}}))


def _pause(snapshot: Any) -> Pause | None:
    interrupts = tuple(snapshot.interrupts)
    if not interrupts:
        return None
    names = tuple(interrupt.id for interrupt in interrupts)
    if "escalated" in interrupts[0].value:
        return Pause("escalation", tuple(each.value["escalated"] for each in interrupts), names)
    return Pause("review", tuple(interrupts[0].value["waiting"]), names)


def review_answer(
    services: Services, pause: Pause, decisions: tuple[Decision, ...]
) -> dict[str, Any]:
    """Build the value that the review checkpoint is waiting for.

    Raises
    ------
    InputError
        If a decision is about a hypothesis that is not waiting, or if fewer people agreed on
        it than the `reviewers` setting requires, regardless of the interface used.
    """
    need = services.settings.reviewers
    if need > 1 and any(len(set(decision.reviewers)) < need for decision in decisions):
        raise InputError(
            f"{need} different people must review each hypothesis here (`reviewers` setting); vote "
            "on the `sage serve` page"
        )
    strange = [
        decision.hypothesis_id
        for decision in decisions
        if decision.hypothesis_id not in pause.waiting
    ]
    if strange:
        raise InputError(
            f"hypothesis {strange[0]} is not waiting for review; waiting: "
            f"{', '.join(pause.waiting)}"
        )
    answer = ReviewAnswer(decisions=decisions)
    return {pause.interrupts[0]: answer.model_dump(mode="json")}


def escalation_answer(pause: Pause, action: Literal["retry", "abandon"]) -> dict[str, Any]:
    """Build the value sent to every waiting escalation checkpoint."""
    return {interrupt: {"action": action} for interrupt in pause.interrupts}


def escalation_detail(folder: RunFolder, waiting_for: tuple[str, ...]) -> str:
    """Explain why the waiting analyses failed and which file to fix."""
    found = []
    for name in waiting_for:
        outcome = read_json(folder.output(f"coding-{name}"))["output"]
        found.append(f"{name}: {outcome['message']}")
    return " ".join(found)
