"""`sage ask-slides`: a question about slides and tables, answered by programs that call tools."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.options import AsJson

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from agents.disclosure import Withheld
    from agents.reasoners.chat import ChatReasoner
    from mcp_servers.workers.base import Workers
    from sage.cli.console import Terminal
    from sage_nova.code_acting.agent import Manner
    from sage_nova.code_acting.session import Session
    from sage_nova.code_acting.types import Acted, Cell, Observation

ProgramFile = Annotated[
    Path | None,
    typer.Option(
        help="Run this program, cells parted by `# %%`, in place of asking a model; its last "
        "printed text is the answer."
    ),
]
Steps = Annotated[int, typer.Option(min=1, max=200, help="Programs at most.")]
StepSeconds = Annotated[float, typer.Option(min=1, help="Time of one program, tools apart.")]
Memory = Annotated[int, typer.Option(min=256, help="Memory of a program, MiB.")]
Engine = Annotated[
    Literal["auto", "docker", "bubblewrap"] | None,
    typer.Option(help="Where programs run; default: as sage.toml says, else auto."),
]
Budget = Annotated[float | None, typer.Option(min=0, help="What a model may cost.")]
MOST_LINES = 6
Replace = Annotated[bool, typer.Option("--replace", help="Write over what the folder holds.")]


def ask_slides(
    question: Annotated[str, typer.Argument(help="In plain words.")],
    data: Annotated[list[Path], typer.Argument(help="Slides, images, tables, or folders of them.")],
    program: ProgramFile = None,
    suite: Annotated[
        str, typer.Option("--tools", help="Suite of tools that programs may call; or none.")
    ] = "nova",
    steps: Steps = 20,
    step_seconds: StepSeconds = 300,
    memory: Memory = 4096,
    sandbox: Engine = None,
    budget_usd: Budget = None,
    out: Annotated[Path, typer.Option(help="Folder of the session.")] = Path("answer"),
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question about histology data by programs that call tools (NOVA's agent).

    A model writes a program, sees what it gave, and goes on, 20 times at most. Programs run in the
    sandbox: they read your DATA, write into the session's folder, and reach nothing else. What they
    print goes to the model's endpoint; DATA itself does not. Numbers of the answer must stand in
    what was printed. The folder holds the answer, the programs, a notebook, a trace and all files.

    Run the same line again after an interruption: what the model and the tools gave is not asked
    for again.

    Example: sage ask-slides "How much of the slide is tissue?" slide.svs --program tissue.py

    Example: sage ask-slides "Mean nuclear area per image?" images/ --budget-usd 2 --out nuclei
    """
    from mcp_servers.registry import Registry, load
    from sage.cli.console import Terminal, print_json
    from sage.core.errors import InputError
    from sage.settings import load as load_settings
    from sage_nova.code_acting.agent import SLIDES
    from sage_nova.code_acting.session import DEFAULT_LIMITS, Session, named
    from sandbox.chooser import choose

    found = named(data)
    cells = cells_from(program)
    engine = choose(sandbox or load_settings().sandbox, packages=())
    tools = Registry() if suite == "none" else load(suite)
    if any(path.is_relative_to(out.resolve()) for path in found.values()):
        raise InputError(f"--out {out} holds the data; name another folder")
    asked = {
        "question": question, "data": {name: str(path) for name, path in found.items()},
        "tools": suite, "program": program is not None,
    }  # fmt: skip
    decide = decider(cells, out, budget_usd)
    with begin_session(out, asked, replace=replace), _process_for(suite, out) as workers:
        console = Terminal(stderr=True) if as_json else Terminal()
        limits = DEFAULT_LIMITS.model_copy(update={"seconds": step_seconds, "memory_mb": memory})
        session = Session(
            found, tools, engine, out, limits, on_event=lambda line: say(console, f"  {line}"),
            workers=workers,
        )  # fmt: skip
        acted = carry(session, question, decide, console, steps=steps, manner=SLIDES)
        if as_json:
            print_json(acted.model_dump(mode="json"))
        files = "session.json, analysis.py, session.ipynb, trace.jsonl, files/, made/"
        tell(acted, console, f"{out}: {files}", as_json=as_json)


def _process_for(suite: str, out: Path) -> AbstractContextManager[Workers | None]:
    """A process that runs the tools of a session, and keeps their results in its folder."""
    from contextlib import nullcontext

    from mcp_servers.workers.jobs import Recipe
    from mcp_servers.workers.pool import LocalPool

    if suite == "none":
        return nullcontext()
    return LocalPool(Recipe(suite, cache_folder=str(out / "results")), 1, max_attempts=1)


def say(console: Terminal, line: str) -> None:
    """A line for the terminal as it is."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def cells_from(program: Path | None) -> list[str] | None:
    """The cells of a person's program; None where a model is to write them.

    Raises
    ------
    InputError
        If the file cannot be read or has no code, or there is neither file nor model.
    """
    from sage.core.errors import InputError
    from sage.settings import load
    from sage_nova.code_acting.write import cells_of

    if program is None:
        if load().effective_reasoner != "chat":
            raise InputError(
                "no model is set: set base_url or api_key (`sage admin config` shows where), or"
                " give a"
                " program of yours with --program"
            )
        return None
    try:
        cells = cells_of(program.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--program {program}: not a readable text: {error}") from None
    if not cells:
        raise InputError(f"--program {program}: it has no line of code")
    return cells


def begin_session(out: Path, asked: dict[str, object], *, replace: bool) -> IO[str]:
    """Make a session's folder and hold it until what is returned is closed. The same line again
    goes on; another question does not land among the first one's files.

    Raises
    ------
    InputError
        If the question is empty, or the folder holds something else, or another process works in
        it.
    """
    import fcntl

    from sage.core.errors import InputError
    from sage.core.files import naming, write_json

    if not str(asked["question"]).strip():
        raise InputError("the question is empty")
    if out.exists() and any(out.iterdir()) and not (replace or is_unfinished(out, asked)):
        raise InputError(f"--out {out} exists; name another folder, or --replace writes over it")
    with naming(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise InputError(f"--out {out}: another process works there; name another folder") from None
    if replace:
        for name in RESULTS:
            (out / name).unlink(missing_ok=True)
    write_json(out / "question.json", asked)
    (out / "trace.jsonl").unlink(missing_ok=True)
    return lock


RESULTS = ("session.json", "analysis.py", "session.ipynb")


def is_unfinished(out: Path, asked: dict[str, object]) -> bool:
    """Whether a folder holds the beginning of the same question."""
    from sage.core.files import read_json

    begun = out / "question.json"
    return begun.is_file() and read_json(begun) == asked and not (out / RESULTS[-1]).exists()


def decider(
    cells: list[str] | None,
    folder: Path,
    budget_usd: float | None,
    withheld: Withheld = frozenset,
) -> list[str] | ChatReasoner:
    """Who writes the steps: a person's program, or the settings' model.

    Parameters
    ----------
    cells : a person's program; None asks a model
    folder : of the session
    budget_usd : what a model may cost
    withheld : texts that no prompt may hold

    Raises
    ------
    InputError
        If the model has no prices that a budget needs.
    """
    from sage.core.llm.trace import Trace
    from sage.run.wiring import make_chat
    from sage.settings import load

    if cells is not None:
        return cells
    trace = Trace(folder / "trace.jsonl")
    settings = load(reasoner="chat")
    return make_chat(settings, folder, budget_usd=budget_usd, withheld=withheld, trace=trace)


def carry(
    session: Session,
    question: str,
    decide: list[str] | ChatReasoner,
    console: Terminal,
    *,
    steps: int,
    manner: Manner,
) -> Acted:
    """Ask, tell every step, and write the session's files.

    Parameters
    ----------
    session : data, tools, sandbox and folder
    question : in plain words
    decide : who writes the steps
    console : told of every step
    steps : programs at most
    manner : what the loop is used for
    """
    from sage.core.llm.trace import Trace
    from sage_nova.code_acting.agent import ask
    from sage_nova.code_acting.write import write_session

    def stepped(cell: Cell, seen: Observation) -> None:
        for line in told_step(cell, seen):
            say(console, line)

    trace = Trace(session.folder / "trace.jsonl") if isinstance(decide, list) else decide.trace
    acted = ask(session, question, decide, trace=trace, steps=steps, manner=manner, on_step=stepped)
    write_session(acted, session.folder)
    return acted


def tell(acted: Acted, console: Terminal, files: str, *, as_json: bool) -> None:
    """Say the answer and where its files lie.

    Raises
    ------
    FaultError
        If the replies gave no answer.
    """
    from sage.core.errors import FaultError

    for line in () if as_json else (*told(acted), files):
        say(console, line)
    if acted.outcome == "failed":
        raise FaultError(f"no answer: {acted.error}")


def told_step(cell: Cell, seen: Observation) -> list[str]:
    """A step in lines for the terminal."""
    from sage.core.printable import amount, one_line
    from sage_nova.code_acting.write import table_lines

    lines = [f"Step {seen.step}: {one_line(cell.thought)[:300] or 'a program'}"]
    if seen.calls:
        failed = sum(1 for call in seen.calls if call.error)
        lines.append(
            f"  {amount(len(seen.calls), 'tool call')}" + (f", {failed} failed" if failed else "")
        )
    said = (seen.printed + seen.value).strip().splitlines()
    for table in seen.tables:
        said += table_lines(table)
    lines += [f"  left out: {why}" for why in seen.left_out]
    lines += [f"  {line[:200]}" for line in said[:MOST_LINES]]
    if len(said) > MOST_LINES:
        lines.append(f"  and {amount(len(said) - MOST_LINES, 'more line')}")
    if seen.error:
        state = "undone" if seen.undone else "error"
        lines.append(f"  {state}: {seen.error.strip().splitlines()[-1][:300]}")
    return lines


def told(acted: Acted) -> list[str]:
    """The answer in lines for the terminal."""
    from sage.core.printable import amount

    answer, lines = acted.answer, []
    if answer is not None:
        lines.append(f"Answer: {answer.answer if answer.answer is not None else 'none (abstains)'}")
        lines += [f"  {name}: {value}" for name, value in answer.values.items()]
        lines += [f"  file: {name}" for name in answer.files]
        if answer.reason:
            lines.append(f"Because: {answer.reason}")
    cost = f", ${acted.usd:.2f}" if acted.usd else ""
    lines.append(f"{amount(len(acted.steps), 'step')}, {acted.seconds:.0f} s{cost}")
    if acted.own_functions:
        lines.append(f"Functions that the programs defined: {', '.join(acted.own_functions)}")
    lines.append(acted.statement)
    return lines


app = typer.Typer(no_args_is_help=True, help="NOVA's tools and its agent.")
app.command("ask")(ask_slides)


@app.callback()
def _group() -> None: ...
