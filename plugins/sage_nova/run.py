"""Command-line sessions: the program or model, the folder, and printed progress."""

from __future__ import annotations

import fcntl
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from agents.core.chat import ChatReasoner
from agents.core.disclosure import Withheld
from sage.cli.console import print_json, print_line
from sage.core.errors import FaultError, InputError
from sage.core.files import naming, read_json, write_json
from sage.core.llm.trace import Trace
from sage.core.printable import count_noun, one_line
from sage.run.wiring import make_chat
from sage.settings import load
from sage_nova.code_acting.agent import SLIDES, AgentTask, ask
from sage_nova.code_acting.session import DEFAULT_LIMITS, Session, name_inputs
from sage_nova.code_acting.types import Acted, Cell, Observation
from sage_nova.code_acting.write import PROGRAM, RECORD, render_table, split_cells, write_session
from sandbox.chooser import choose
from sandbox.types import Limits, Sandbox

if TYPE_CHECKING:
    from mcp_servers.workers.base import Workers

FILES = f"{RECORD}, {PROGRAM}, trace.jsonl, files/"
MAX_LINES = 6
"""Maximum number of output lines per step on the terminal."""


@dataclass(frozen=True)
class Options:
    """A session's question and its options on the command line."""

    question: str
    program: Path | None
    steps: int
    step_seconds: float
    memory: int
    sandbox: Literal["auto", "docker", "bubblewrap"] | None
    budget_usd: float | None
    as_json: bool

    @property
    def limits(self) -> Limits:
        """Time and memory limits for a program."""
        changed = {"seconds": self.step_seconds, "memory_mb": self.memory}
        return DEFAULT_LIMITS.model_copy(update=changed)

    def engine(self) -> Sandbox:
        """Return the sandbox for programs."""
        return choose(self.sandbox or load().sandbox, packages=())

    def say(self, line: str) -> None:
        """Print a line, to stderr if stdout is JSON."""
        print_line(line, err=self.as_json)

    def author(self, folder: Path, withheld: Withheld = frozenset) -> list[str] | ChatReasoner:
        """Return the cells of the user's program, or the model that writes the steps.

        No prompt may contain `withheld`.

        Raises
        ------
        InputError
            If the file cannot be read or has no code, if there is neither a file nor a model, or
            if there is a budget but the model has no prices.
        """
        if self.program is None:
            if load().effective_reasoner != "chat":
                raise InputError(
                    "no model is set: set base_url (`sage admin config` shows where), or "
                    "provide a program with --program"
                )
            return make_chat(
                load(reasoner="chat"), folder, budget_usd=self.budget_usd, withheld=withheld,
                trace=Trace(folder / "trace.jsonl"),
            )  # fmt: skip
        try:
            cells = split_cells(self.program.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"--program {self.program}: not a readable text file: {error}"
            ) from None
        if not cells:
            raise InputError(f"--program {self.program}: the file contains no code")
        return cells


def ask_slides(data: list[Path], suite: str, out: Path, options: Options, replace: bool) -> None:
    """Answer a question about slides or other files with programs that call a suite of tools."""
    from mcp_servers.registry import Registry
    from mcp_servers.registry import load as load_tools

    inputs, engine = name_inputs(data), options.engine()
    tools = Registry() if suite == "none" else load_tools(suite)
    if any(path.is_relative_to(out.resolve()) for path in inputs.values()):
        raise InputError(f"--out {out} contains the data; choose another folder")
    request = {
        "question": options.question, "data": {name: str(path) for name, path in inputs.items()},
        "tools": suite, "program": options.program is not None,
    }  # fmt: skip
    author = options.author(out)
    with open_session(out, request, replace=replace), _start_worker(suite, out) as workers:
        session = Session(
            inputs, tools, engine, out, options.limits, workers=workers,
            on_event=lambda line: options.say(f"  {line}"),
        )  # fmt: skip
        record = run_session(session, author, SLIDES, options)
        if options.as_json:
            print_json(record.model_dump(mode="json"))
        report_answer(record, f"{out}: {FILES}, made/", as_json=options.as_json)


def _start_worker(suite: str, out: Path) -> AbstractContextManager[Workers | None]:
    """Start a process that runs a session's tools and caches their results in its folder."""
    from mcp_servers.workers.jobs import Recipe
    from mcp_servers.workers.pool import LocalPool

    if suite == "none":
        return nullcontext()
    return LocalPool(Recipe(suite, cache_folder=str(out / "results")), 1, max_attempts=1)


def is_unfinished(out: Path, request: dict[str, object]) -> bool:
    """Return True if the folder contains an unfinished session with the same question."""
    begun = out / "question.json"
    return begun.is_file() and read_json(begun) == request and not (out / RECORD).exists()


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
    for name in (PROGRAM, RECORD, "trace.jsonl"):
        (out / name).unlink(missing_ok=True)
    write_json(out / "question.json", request)
    return lock


def run_session(
    session: Session, author: list[str] | ChatReasoner, task: AgentTask, options: Options
) -> Acted:
    """Answer the question, print each step, and write the files."""

    def print_step(cell: Cell, seen: Observation) -> None:
        for line in describe_step(cell, seen):
            options.say(line)

    trace = Trace(session.folder / "trace.jsonl") if isinstance(author, list) else author.trace
    record = ask(
        session, options.question, author, trace=trace, steps=options.steps, task=task,
        on_step=print_step,
    )  # fmt: skip
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
        calls = count_noun(len(seen.calls), "tool call")
        lines.append(f"  {calls}, {failed} failed" if failed else f"  {calls}")
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
        lines += [f"Reason: {answer.reason}"] if answer.reason else []
    cost = f", ${record.usd:.2f}" if record.usd else ""
    lines.append(f"{count_noun(len(record.steps), 'step')}, {record.seconds:.0f} s{cost}")
    if record.own_functions:
        lines.append(f"Functions that the programs defined: {', '.join(record.own_functions)}")
    return [*lines, record.statement]
