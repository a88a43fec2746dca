"""`sage ask-slides`: a question about slides and tables, answered by programs that call tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.options import AsJson

if TYPE_CHECKING:
    from agents.code_acting.types import Acted, Cell, Observation


def ask_slides(
    question: Annotated[str, typer.Argument(help="In plain words.")],
    data: Annotated[list[Path], typer.Argument(help="Slides, images, tables, or folders of them.")],
    program: Annotated[
        Path | None,
        typer.Option(
            help="Run this program, cells parted by `# %%`, in place of asking a model; its last "
            "printed text is the answer."
        ),
    ] = None,
    suite: Annotated[
        str, typer.Option("--tools", help="Suite of tools that programs may call; or none.")
    ] = "nova",
    steps: Annotated[int, typer.Option(min=1, max=200, help="Programs at most.")] = 20,
    step_seconds: Annotated[
        float, typer.Option(min=1, help="Time of one program, tools apart.")
    ] = 300,
    memory: Annotated[int, typer.Option(min=256, help="Memory of a program, MiB.")] = 4096,
    sandbox: Annotated[
        Literal["auto", "docker", "bubblewrap"] | None,
        typer.Option(help="Where programs run; default: as sage.toml says, else auto."),
    ] = None,
    budget_usd: Annotated[float | None, typer.Option(min=0, help="What a model may cost.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the session.")] = Path("answer"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Write over what the folder holds.")
    ] = False,
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
    from agents.code_acting.agent import ask
    from agents.code_acting.session import DEFAULT_LIMITS, Session, named
    from agents.code_acting.write import PROGRAM, cells_of, write_session
    from mcp_servers.registry import Registry, load
    from mcp_servers.results_cache import ResultsCache
    from sage.console import Terminal, print_json
    from sage.core.errors import FaultError, InputError
    from sage.core.files import read_json, write_json
    from sage.core.llm.trace import Trace
    from sage.settings import load as load_settings
    from sandbox.chooser import choose

    if not question.strip():
        raise InputError("the question is empty")
    found = named(data)
    cells = None
    if program is not None:
        try:
            cells = cells_of(program.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--program {program}: not a readable text: {error}") from None
        if not cells:
            raise InputError(f"--program {program}: it has no line of code")
    engine = choose(sandbox or load_settings().sandbox, packages=())
    tools = Registry() if suite == "none" else load(suite)

    # The same line again goes on; another question does not land among the first one's files.
    asked = {
        "question": question, "data": {name: str(path) for name, path in found.items()},
        "tools": suite, "program": program is not None,
    }  # fmt: skip
    begun = out / "question.json"
    unfinished = begun.is_file() and read_json(begun) == asked and not (out / PROGRAM).exists()
    if out.exists() and any(out.iterdir()) and not (replace or unfinished):
        raise InputError(f"--out {out} exists; name another folder, or --replace writes over it")
    if any(path.is_relative_to(out.resolve()) for path in found.values()):
        raise InputError(f"--out {out} holds the data; name another folder")
    out.mkdir(parents=True, exist_ok=True)
    write_json(begun, asked)
    trace_file = out / "trace.jsonl"
    trace_file.unlink(missing_ok=True)
    trace = Trace(trace_file)
    tools.cache = ResultsCache(out / "results")
    console = Terminal(stderr=True) if as_json else Terminal()

    def show(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stepped(cell: Cell, seen: Observation) -> None:
        for line in told_step(cell, seen):
            show(line)

    decide: object = cells
    if cells is None:
        from sage.wiring import make_chat

        settings = load_settings(reasoner="chat")
        decide = make_chat(settings, out, budget_usd=budget_usd, trace=trace)
    limits = DEFAULT_LIMITS.model_copy(update={"seconds": step_seconds, "memory_mb": memory})
    session = Session(found, tools, engine, out, limits, on_event=lambda line: show(f"  {line}"))
    acted = ask(session, question, decide, trace=trace, steps=steps, on_step=stepped)  # type: ignore[arg-type]
    write_session(acted, out)
    if as_json:
        print_json(acted.model_dump(mode="json"))
    else:
        for line in told(acted):
            show(line)
        show(f"{out}: session.json, analysis.py, session.ipynb, trace.jsonl, files/, made/")
    if acted.outcome == "failed":
        raise FaultError(f"no answer: {acted.error}")


def told_step(cell: Cell, seen: Observation) -> list[str]:
    """A step in lines for the terminal."""
    from sage.core.printable import amount, one_line

    lines = [f"Step {seen.step}: {one_line(cell.thought)[:300] or 'a program'}"]
    if seen.calls:
        failed = sum(1 for call in seen.calls if call.error)
        lines.append(
            f"  {amount(len(seen.calls), 'tool call')}" + (f", {failed} failed" if failed else "")
        )
    said = (seen.printed + seen.value).strip().splitlines()
    lines += [f"  {line[:200]}" for line in said[:6]]
    if len(said) > 6:
        lines.append(f"  and {amount(len(said) - 6, 'more line')}")
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
