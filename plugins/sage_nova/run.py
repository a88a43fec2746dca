"""Command-line sessions: the program or model, the folder, and printed progress."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from agents.core.chat import ChatReasoner
from agents.core.disclosure import Withheld
from sage.cli.console import print_line
from sage.core.errors import FaultError, InputError
from sage.core.files import naming, read_json, write_json
from sage.core.llm.trace import Trace
from sage.core.printable import count_noun, one_line
from sage.run.wiring import make_chat
from sage.settings import load
from sage_nova.code_acting.agent import AgentTask, ask
from sage_nova.code_acting.session import DEFAULT_LIMITS, Session
from sage_nova.code_acting.types import Acted, Cell, Observation
from sage_nova.code_acting.write import render_table, split_cells, write_session
from sandbox.types import Limits

RESULTS = ("session.json", "analysis.py", "session.ipynb")
MAX_LINES = 6
"""Maximum number of output lines per step on the terminal."""


def step_limits(seconds: float, memory_mb: int) -> Limits:
    """Build the time and memory limits for a program."""
    return DEFAULT_LIMITS.model_copy(update={"seconds": seconds, "memory_mb": memory_mb})


def read_program(program: Path | None) -> list[str] | None:
    """Read the cells of the user's program; None if a model writes the programs.

    Raises
    ------
    InputError
        If the file cannot be read or has no code, or if there is neither a file nor a model.
    """
    if program is None:
        if load().effective_reasoner != "chat":
            raise InputError(
                "no model is set: set base_url (`sage admin config` shows where), or "
                "provide a program with --program"
            )
        return None
    try:
        cells = split_cells(program.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--program {program}: not a readable text file: {error}") from None
    if not cells:
        raise InputError(f"--program {program}: the file contains no code")
    return cells


def is_unfinished(out: Path, request: dict[str, object]) -> bool:
    """Return True if the folder contains an unfinished session with the same question."""
    begun = out / "question.json"
    return begun.is_file() and read_json(begun) == request and not (out / RESULTS[-1]).exists()


def open_session(out: Path, request: dict[str, object], *, replace: bool) -> IO[str]:
    """Create a session's folder and lock it until the returned file is closed.

    The same request continues an unfinished session.

    Raises
    ------
    InputError
        If the question is empty, the folder contains anything else, or another process uses
        it.
    """
    if not str(request["question"]).strip():
        raise InputError("the question is empty")
    if out.exists() and any(out.iterdir()) and not (replace or is_unfinished(out, request)):
        raise InputError(
            f"--out {out} already exists; choose another folder, or overwrite with --replace"
        )
    with naming(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise InputError(f"--out {out}: in use by another process; choose another folder") from None
    if replace:
        for name in RESULTS:
            (out / name).unlink(missing_ok=True)
    write_json(out / "question.json", request)
    (out / "trace.jsonl").unlink(missing_ok=True)
    return lock


def choose_author(
    cells: list[str] | None,
    folder: Path,
    budget_usd: float | None,
    withheld: Withheld = frozenset,
) -> list[str] | ChatReasoner:
    """Return the user's program or the configured model as the author of the steps.

    No prompt may contain `withheld`.

    Raises
    ------
    InputError
        If there is a budget but the model has no prices.
    """
    if cells is not None:
        return cells
    trace = Trace(folder / "trace.jsonl")
    settings = load(reasoner="chat")
    return make_chat(settings, folder, budget_usd=budget_usd, withheld=withheld, trace=trace)


def run_session(
    session: Session,
    question: str,
    author: list[str] | ChatReasoner,
    *,
    steps: int,
    task: AgentTask,
    err: bool,
) -> Acted:
    """Answer the question, print each step (to stderr with `err`), and write the files."""

    def print_step(cell: Cell, seen: Observation) -> None:
        for line in describe_step(cell, seen):
            print_line(line, err=err)

    trace = Trace(session.folder / "trace.jsonl") if isinstance(author, list) else author.trace
    record = ask(session, question, author, trace=trace, steps=steps, task=task, on_step=print_step)
    write_session(record, session.folder)
    return record


def report_answer(record: Acted, files: str, *, as_json: bool) -> None:
    """Print the answer and the location of its files.

    Raises
    ------
    FaultError
        If the replies gave no answer.
    """
    for line in () if as_json else (*describe_answer(record), files):
        print_line(line)
    if record.outcome == "failed":
        raise FaultError(f"no answer: {record.error}")


def describe_step(cell: Cell, seen: Observation) -> list[str]:
    """Format a step as lines for the terminal."""
    lines = [f"Step {seen.step}: {one_line(cell.thought)[:300] or 'a program'}"]
    if seen.calls:
        failed = sum(1 for call in seen.calls if call.error)
        lines.append(
            f"  {count_noun(len(seen.calls), 'tool call')}"
            + (f", {failed} failed" if failed else "")
        )
    output = (seen.printed + seen.value).strip().splitlines()
    for table in seen.tables:
        output += render_table(table)
    lines += [f"  left out: {reason}" for reason in seen.left_out]
    lines += [f"  {line[:200]}" for line in output[:MAX_LINES]]
    if len(output) > MAX_LINES:
        lines.append(f"  and {count_noun(len(output) - MAX_LINES, 'more line')}")
    if seen.error:
        state = "undone" if seen.undone else "error"
        lines.append(f"  {state}: {seen.error.strip().splitlines()[-1][:300]}")
    return lines


def describe_answer(record: Acted) -> list[str]:
    """Format the answer as lines for the terminal."""
    answer, lines = record.answer, []
    if answer is not None:
        lines.append(f"Answer: {answer.answer if answer.answer is not None else 'none (abstains)'}")
        lines += [f"  {name}: {value}" for name, value in answer.values.items()]
        lines += [f"  file: {name}" for name in answer.files]
        if answer.reason:
            lines.append(f"Reason: {answer.reason}")
    cost = f", ${record.usd:.2f}" if record.usd else ""
    lines.append(f"{count_noun(len(record.steps), 'step')}, {record.seconds:.0f} s{cost}")
    if record.own_functions:
        lines.append(f"Functions that the programs defined: {', '.join(record.own_functions)}")
    lines.append(record.statement)
    return lines
