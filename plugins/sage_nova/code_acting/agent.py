"""Turn loop in which a model writes the steps or a user's program provides them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.core.base import Agent, Reasoner, Resources, Role, View, prompt_file
from mcp_servers.describe import describe_tool
from sage.core.errors import InputError
from sage.core.llm.trace import Trace
from sage.core.llm.turns import (
    BoundError,
    Bounds,
    Moves,
    RefusedError,
    RulePolicy,
    Spent,
    Task,
    Tool,
    UnusableError,
    Use,
    take_turns,
)
from sage.core.printable import count_noun
from sage_nova.code_acting.session import IMPORTS, Session
from sage_nova.code_acting.types import (
    MOST_STEPS,
    Acted,
    Asked,
    Cell,
    CodeAnswer,
    Observation,
)
from sage_nova.code_acting.write import CONTINUED

AGENT = "code_actor"
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
_NAME = re.compile(r"(?<![\w.])[A-Za-z]\w*(?:[-./]\w+)+")
BY_MODEL = (
    "A language model wrote these programs and read their output; SAGE ran them in a sandbox and"
    " checked that the numbers of the answer were printed. Not reviewed by a pathologist. Not for"
    " diagnosis."
)
BY_PERSON = "A person wrote this program; SAGE ran it in a sandbox. Not for diagnosis."


def abstain(given: View, resources: Resources) -> CodeAnswer:
    """Return the rule reasoner's answer, which runs nothing."""
    return CodeAnswer(answer=None, reason="No model was asked, and no program was given.")


CODE_ACTOR = Agent(
    name=AGENT, role=Role.HIGH, reads=Asked, returns=CodeAnswer,
    prompt=prompt_file(__file__, "act.md"), rule=abstain,
)  # fmt: skip


def check_answer(question: str, seen: Sequence[Observation], output: CodeAnswer) -> list[str]:
    """List an answer's problems: no step was run, or it has numbers or files from no step."""
    if output.answer is None and not output.reason.strip():
        return ["reason: required, because answer is null"]
    if output.answer is not None and all(step.undone for step in seen):
        return ["answer: no step has run yet; look at the data first, or answer null with a reason"]
    shown = [question]
    for step in seen:
        shown += [step.printed, step.value]
        shown += [cell for table in step.tables for row in table.rows for cell in row[1:]]
    known = [_parse(text) for part in shown for text in _NUMBER.findall(part)]
    found = []
    texts = [("", output.answer or ""), ("", output.reason)]
    texts += [
        (f"values.{name}", str(value).strip())
        for name, value in output.values.items()
        if not isinstance(value, bool)
    ]
    for where, words in texts:
        for text in _NUMBER.findall(_NAME.sub(" ", words)):  # names of slides contain no results
            counts = text != words and _is_digit(text)  # in a sentence, not as a value
            if not counts and not _matches(text, known):
                found.append(
                    f"{where or text}: {text} does not appear in the output of any step; print "
                    "it in a step first, or remove it"
                )
    files = seen[-1].files if seen else ()
    found += [f"files: {name!r} is not in /output" for name in output.files if name not in files]
    return found


def _parse(text: str) -> float:
    return float(text.replace(",", ""))


def _is_digit(text: str) -> bool:
    """Return True for a one-digit integer, which in a sentence is usually a count."""
    return _parse(text).is_integer() and abs(_parse(text)) < 10


def _matches(text: str, known: Sequence[float]) -> bool:
    """Return True if a number or its percentage matches a known number to the digits written."""
    number = _parse(text)
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    half = 0.5 * 10.0 ** (int(exponent or 0) - digits) * (1 + 1e-9)
    return any(abs(value * scale - number) <= half for value in known for scale in (1, 100, -1))


@dataclass(frozen=True)
class AgentTask:
    """Task for the turn loop: an agent, its input, its check, and the statement on every answer."""

    agent: Agent[Any, CodeAnswer]
    build_input: Callable[[Session, str, int], View]
    check: Callable[[str, Sequence[Observation], CodeAnswer], list[str]]
    by_model: str
    by_person: str


def _build_input(session: Session, question: str, steps: int) -> Asked:
    return Asked(
        question=question, data=session.describe_data(),
        tools=tuple(describe_tool(tool, nested=True) for tool in session.registry),
        imports=tuple(sorted(IMPORTS)), steps=steps, seconds=session.limits.seconds,
    )  # fmt: skip


SLIDES = AgentTask(CODE_ACTOR, _build_input, check_answer, BY_MODEL, BY_PERSON)


def ask(
    session: Session, question: str, author: Reasoner | Sequence[str], *, trace: Trace,
    steps: int = MOST_STEPS, task: AgentTask = SLIDES,
    on_step: Callable[[Cell, Observation], None] = lambda *_: None,
) -> Acted:  # fmt: skip
    """Answer a question with at most `steps` programs (20 in the paper), with no prior memory.

    Parameters
    ----------
    author : a reasoner with a model, or the cells of a user's program

    Returns
    -------
    The record. If the replies gave no answer, `outcome` is "failed" and `error` is the
    reason.

    Raises
    ------
    SageError
        If the model cannot be reached, the budget is exhausted, or the sandbox does not work.
    """
    begun = time.monotonic()
    by_model = not isinstance(author, Sequence)

    def act(cell: Cell) -> dict[str, Any]:
        if by_model and len(session.done) >= steps:  # a turn can request several programs
            raise InputError(
                f"the session's limit of {count_noun(steps, 'step')} is reached; answer now"
            )
        seen = session.act(cell)
        on_step(cell, seen)
        # Times differ when a session continues, and replies are looked up by the messages sent.
        timed: Any = {"seconds": True, "calls": {"__all__": {"seconds"}}}
        return seen.model_dump(mode="json", exclude_defaults=True, exclude=timed)

    tool = Tool(
        "act", "Run a program as the next step; returns its output and any error.", Cell, act
    )
    given = task.build_input(session, question, steps)
    answer: CodeAnswer | None = None
    model, error, spent = None, "", Spent()
    try:
        if isinstance(author, Sequence):
            turns = Task(
                agent=task.agent.name, given=given, returns=CodeAnswer, check=lambda _: [],
                tools=(tool,), bounds=Bounds(turns=len(author) + 2),
            )  # fmt: skip
            policy = RulePolicy(task.agent.name, _run_cells(author, session))
            answer = take_turns(turns, policy, trace, "program").output
        else:
            agent = replace(
                task.agent,
                tools=(tool,),
                bounds=Bounds(turns=steps + 1),
                check=lambda _, output: task.check(
                    question, [done.observation for done in session.done], output
                ),
            )
            reply = author.ask(agent, given)
            answer, model, spent = reply.output, reply.model, reply.spent
    except BoundError as wrong:  # its only limit: a turn per step, and a turn to answer
        most = count_noun(steps, "step")
        error = f"no answer within {most}; simplify the question, or allow more steps with --steps"
        spent = wrong.spent
    except (UnusableError, RefusedError) as wrong:
        error, spent = str(wrong), wrong.spent
    abstained = answer is not None and answer.answer is None
    return Acted(
        question=question,
        data={f"/inputs/{name}": path.name for name, path in session.data.items()},
        by="model" if by_model else "program",
        model=model,
        sandbox=session.sandbox.name,
        outcome="failed" if answer is None else "abstained" if abstained else "answered",
        answer=answer,
        error=error,
        steps=tuple(session.done),
        own_functions=session.own_functions(),
        prompt_tokens=spent.prompt_tokens,
        completion_tokens=spent.completion_tokens,
        usd=spent.usd,
        seconds=round(time.monotonic() - begun, 2),
        statement=task.by_model if by_model else task.by_person,
    )


def _run_cells(cells: Sequence[str], session: Session) -> Moves[CodeAnswer]:
    """Run a program's cells in order; the last printed text or value is the answer."""
    for code in cells:
        yield Use("act", Cell(code=code.removeprefix(CONTINUED)))
        seen = session.done[-1].observation
        if seen.error and (seen.undone or not code.startswith(CONTINUED) or code is cells[-1]):
            return CodeAnswer(
                answer=None, reason=f"step {seen.step} ended with an error: {seen.error[-1500:]}"
            )
    last = session.done[-1].observation
    output = (last.value or last.printed).strip()
    shown = any(done.observation.tables for done in session.done)
    if not output and not last.files and not shown:
        return CodeAnswer(answer=None, reason="the program produced no output and no file")
    else_see = "see the tables" if shown else "see the files"
    return CodeAnswer(answer=output[:4000] or else_see, files=last.files[:50])
