"""Asking: a model writes the steps, or a person's program gives them; either in the turn loop."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.base import Agent, Reasoner, Resources, Role, View, prompt_file
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
from sage.core.printable import amount
from sage_nova.code_acting.session import IMPORTS, Session
from sage_nova.code_acting.types import (
    MOST_STEPS,
    Acted,
    Asked,
    Cell,
    CodeAnswer,
    Observation,
)
from sage_nova.code_acting.write import WENT_ON

AGENT = "code_actor"
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
_NAME = re.compile(r"(?<![\w.])[A-Za-z]\w*(?:[-./]\w+)+")
BY_MODEL = (
    "A language model wrote these programs and read what they gave; SAGE ran them in a sandbox and"
    " held the numbers of the answer against what was printed. No pathologist looked. Not for"
    " diagnosis."
)
BY_PERSON = "A person wrote this program; SAGE ran it in a sandbox. Not for diagnosis."


def no_answer(given: View, resources: Resources) -> CodeAnswer:
    """The rule, where nothing was run."""
    return CodeAnswer(answer=None, reason="No model was asked, and no program was given.")


CODE_ACTOR = Agent(
    name=AGENT, role=Role.HIGH, reads=Asked, returns=CodeAnswer,
    prompt=prompt_file(__file__, "act.md"), rule=no_answer,
)  # fmt: skip


def answer_problems(question: str, seen: Sequence[Observation], output: CodeAnswer) -> list[str]:
    """Why an answer is not acceptable: no step, numbers that none showed, files that none left."""
    if output.answer is None and not output.reason.strip():
        return ["reason: an answer of null says why"]
    if output.answer is not None and all(one.undone for one in seen):
        return ["answer: no step has run yet; look at the data first, or answer null with a reason"]
    shown = [question]
    for one in seen:
        shown += [one.printed, one.value]
        shown += [cell for table in one.tables for row in table.rows for cell in row[1:]]
    known = [_value(text) for part in shown for text in _NUMBER.findall(part)]
    found = []
    said = [("", output.answer or ""), ("", output.reason)]
    said += [
        (f"values.{name}", str(value).strip())
        for name, value in output.values.items()
        if not isinstance(value, bool)
    ]
    for where, words in said:
        for text in _NUMBER.findall(_NAME.sub(" ", words)):  # a slide's name holds no figures
            counts = text != words and _is_digit(text)  # in a sentence, not as a value
            if not counts and not _stands(text, known):
                found.append(
                    f"{where or text}: {text} stands in nothing that a step showed; show it in a"
                    " step first, or leave it out"
                )
    files = seen[-1].files if seen else ()
    found += [
        f"files: there is no {name!r} in /output" for name in output.files if name not in files
    ]
    return found


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _is_digit(text: str) -> bool:
    """Whether a number is whole and of one digit: in a sentence it counts things, and passes."""
    return _value(text).is_integer() and abs(_value(text)) < 10


def _stands(text: str, known: Sequence[float]) -> bool:
    """Whether a number is one of the known, to the digits it is written with; or its percentage."""
    number = _value(text)
    mantissa, _, exponent = text.lower().partition("e")
    digits = len(mantissa.partition(".")[2])
    half = 0.5 * 10.0 ** (int(exponent or 0) - digits) * (1 + 1e-9)
    return any(abs(value * scale - number) <= half for value in known for scale in (1, 100, -1))


@dataclass(frozen=True)
class Manner:
    """What the one loop is used for: who is asked, with which input, and what holds the answer.

    Parameters
    ----------
    agent : with its prompt
    given : the input of a question, from the session and the most steps
    problems : why an answer is not acceptable, after what was seen
    by_model, by_person : said of every answer
    """

    agent: Agent[Any, CodeAnswer]
    given: Callable[[Session, str, int], View]
    problems: Callable[[str, Sequence[Observation], CodeAnswer], list[str]]
    by_model: str
    by_person: str


def _asked(session: Session, question: str, steps: int) -> Asked:
    return Asked(
        question=question, data=session.shown(),
        tools=tuple(describe_tool(one, nested=True) for one in session.registry),
        imports=tuple(sorted(IMPORTS)), steps=steps, seconds=session.limits.seconds,
    )  # fmt: skip


SLIDES = Manner(CODE_ACTOR, _asked, answer_problems, BY_MODEL, BY_PERSON)


def ask(
    session: Session,
    question: str,
    decide: Reasoner | Sequence[str],
    *,
    trace: Trace,
    steps: int = MOST_STEPS,
    manner: Manner = SLIDES,
    on_step: Callable[[Cell, Observation], None] = lambda *_: None,
) -> Acted:
    """Answer a question with at most `steps` programs. Memory begins and ends with the question.

    Parameters
    ----------
    session : data, tools and sandbox
    question : in plain words
    decide : who writes the steps: a reasoner with a model, or a person's program as its cells
    trace : gets every turn
    steps : programs at most; 20 in the paper
    manner : slides with tools, or the exploration of a cohort
    on_step : told of every step

    Returns
    -------
    The record, also where the replies gave no answer: `outcome` is then "failed", `error` says why.

    Raises
    ------
    SageError
        If the model cannot be reached, the budget is used up or the sandbox does not work.
    """
    begun = time.monotonic()
    by_model = not isinstance(decide, Sequence)

    def act(cell: Cell) -> dict[str, Any]:
        if by_model and len(session.done) >= steps:  # a turn can ask for several programs
            raise InputError(f"the {amount(steps, 'step')} of this session are used up; answer now")
        seen = session.act(cell)
        on_step(cell, seen)
        # Times differ when a session goes on, and its replies are found by what was told.
        timed: Any = {"seconds": True, "calls": {"__all__": {"seconds"}}}
        return seen.model_dump(mode="json", exclude_defaults=True, exclude=timed)

    tool = Tool(
        "act", "Run a program as the next step; returns what came of it, and its error.", Cell, act
    )
    given = manner.given(session, question, steps)
    answer: CodeAnswer | None = None
    model, error, spent = None, "", Spent()
    try:
        if isinstance(decide, Sequence):
            task = Task(
                agent=manner.agent.name, given=given, returns=CodeAnswer, check=lambda _: [],
                tools=(tool,), bounds=Bounds(turns=len(decide) + 2),
            )  # fmt: skip
            policy = RulePolicy(manner.agent.name, _cells(decide, session))
            answer = take_turns(task, policy, trace, "program").output
        else:
            agent = replace(
                manner.agent,
                tools=(tool,),
                bounds=Bounds(turns=steps + 1),
                check=lambda _, output: manner.problems(
                    question, [done.observation for done in session.done], output
                ),
            )
            reply = decide.ask(agent, given)
            answer, model, spent = reply.output, reply.model, reply.spent
    except BoundError as wrong:  # turns are its only bound: one per step, and one to answer
        error = (
            f"no answer within {amount(steps, 'step')}; ask for less, or allow more with --steps"
        )
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
        statement=manner.by_model if by_model else manner.by_person,
    )


def _cells(cells: Sequence[str], session: Session) -> Moves[CodeAnswer]:
    """A program's cells one after the other; its last printed text or value is its answer."""
    for code in cells:
        yield Use("act", Cell(code=code.removeprefix(WENT_ON)))
        seen = session.done[-1].observation
        if seen.error and (seen.undone or not code.startswith(WENT_ON) or code is cells[-1]):
            return CodeAnswer(
                answer=None, reason=f"step {seen.step} ended with an error: {seen.error[-1500:]}"
            )
    last = session.done[-1].observation
    said = (last.value or last.printed).strip()
    shown = any(done.observation.tables for done in session.done)
    if not said and not last.files and not shown:
        return CodeAnswer(answer=None, reason="the program showed nothing and left no file")
    else_see = "see the tables" if shown else "see the files"
    return CodeAnswer(answer=said[:4000] or else_see, files=last.files[:50])
