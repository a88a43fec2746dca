"""`sage nova explore`: a question about a cohort, answered by programs that show no patient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.options import AsJson
from sage_nova.cli import (
    Budget,
    Engine,
    Memory,
    Replace,
    Steps,
    StepSeconds,
    begin_session,
    carry,
    cells_from,
    decider,
    is_unfinished,
    say,
    tell,
)

if TYPE_CHECKING:
    from sage.settings import Settings
    from sage_nova.code_acting.exploring import Exploration
    from validation.cohort.cohort import Cohort

WITH_ROWS = ("inputs", "running", "made")
"""Folders of a session that hold patients' rows while it is under way."""


def explore(
    subject: Annotated[
        str,
        typer.Argument(metavar="COHORT_OR_RUN", help="A cohort, or the folder of a finished run."),
    ],
    question: Annotated[str, typer.Argument(help="In plain words.")],
    variables: Annotated[
        list[str] | None,
        typer.Option("--variable", help="Show this one alone, genes included; repeat for more."),
    ] = None,
    endpoints: Annotated[
        list[str] | None,
        typer.Option("--endpoint", help="Show this outcome too, which spends it; repeat."),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Where the cohort's files lie, if not beside cohort.toml.")
    ] = None,
    features: Annotated[
        list[Path] | None,
        typer.Option("--features", help="A table that a tool computed on the slides; repeat."),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(
            help="Run this program of yours, cells parted by `# %%`, in place of asking a model; it"
            " leaves its tables in exploratory.json."
        ),
    ] = None,
    steps: Steps = 20,
    step_seconds: StepSeconds = 300,
    memory: Memory = 4096,
    sandbox: Engine = None,
    budget_usd: Budget = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the session; default: exploration, or within the run."),
    ] = None,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Explore a cohort by programs that a model writes, apart from every verdict.

    A model writes a program, sees the small tables that it left, and goes on. Prints, rows, small
    counts and messages of errors do not reach the model. Shown are all variables and genes that
    hold no outcome; an outcome is shown where --endpoint names it. The ledger notes that: a claim
    on what was looked at is exploratory in these patients from then on.

    The answer is titled as exploratory, and its numbers stand in the tables. Of a finished RUN it
    stands in the report, in a part of its own. Run the same line again after an interruption. What
    a program reads and leaves, and what a hostile one could still carry: docs/nova.md.

    Example: sage nova explore demo "Which variables move with TLS density?" --program look.py

    Example: sage nova explore cohort/ "Who relapses early?" --endpoint OS --budget-usd 1 --out
    early
    """
    from sage.cli.cohort import load_named
    from sage.core.errors import InputError
    from sage.report.keeping import keep_exploration, new_session
    from sage.run.begin import reopen
    from sage.settings import load

    options = _Options(
        tuple(variables or ()), tuple(endpoints or ()), program, steps, step_seconds, memory,
        sandbox, budget_usd, replace, as_json,
    )  # fmt: skip
    if not _is_run(subject):
        cohort = load_named(subject, root, features)
        _explore(cohort, question, out or Path("exploration"), options, load())
        return
    if root or features or out or replace:
        raise InputError(
            "--root, --features, --out and --replace are for cohorts: a run has its own, and keeps"
            " every exploration"
        )
    services = reopen(subject)
    try:
        manifest = services.folder.manifest()
        if manifest.status != "finished":
            raise InputError(
                f"run {manifest.id} is {manifest.status}; explore it when it is finished"
            )
        asked = options.asked(question, services.cohort)
        session = new_session(services.folder, lambda folder: is_unfinished(folder, asked))
        for killed in session.parent.glob("*"):  # the run is held, so that none is under way
            _clear(killed)

        def keep(found: Exploration) -> str:
            report = keep_exploration(services.folder, session.name, found, session / "files")
            return f"\n{report}: {found.title}"

        _explore(services.cohort, question, session, options, services.settings, keep)
    finally:
        services.folder.release()


@dataclass(frozen=True)
class _Options:
    """What the line says of the session."""

    variables: tuple[str, ...]
    endpoints: tuple[str, ...]
    program: Path | None
    steps: int
    step_seconds: float
    memory: int
    sandbox: Literal["auto", "docker", "bubblewrap"] | None
    budget_usd: float | None
    replace: bool
    as_json: bool

    def asked(self, question: str, cohort: Cohort) -> dict[str, object]:
        """What makes a session the same one."""
        return {
            "question": question, "cohort": cohort.id, "data": cohort.hashes(),
            "variables": list(self.variables), "endpoints": list(self.endpoints),
            "program": self.program is not None,
        }  # fmt: skip


def _is_run(name: str) -> bool:
    from sage.settings import load

    path = Path(name)
    if path.exists():
        return (path / "manifest.json").is_file()
    return name == "last" or (load().runs_dir / name / "manifest.json").is_file()


def _clear(session: Path) -> None:
    import shutil

    for name in WITH_ROWS:
        shutil.rmtree(session / name, ignore_errors=True)


def _explore(
    cohort: Cohort,
    question: str,
    out: Path,
    options: _Options,
    settings: Settings,
    keep: Callable[[Exploration], str] = lambda _: "",
) -> None:
    """Note the look, mount it, ask, and write the session's folder.

    `keep` takes what was found, also where there is no answer, and says where it stands.
    """
    import signal
    import sys

    from agents.disclosure import identifiers
    from mcp_servers.registry import Registry
    from sage.cli.console import Terminal, print_json
    from sage.core.files import write_json
    from sage.run.wiring import open_ledger
    from sage_nova.code_acting.exploring import Tables, explored, exploring, mount
    from sage_nova.code_acting.session import DEFAULT_LIMITS, Session
    from sandbox.chooser import choose
    from validation.screening.look import look_at, note_look

    cells = cells_from(options.program)
    engine = choose(options.sandbox or settings.sandbox, packages=())
    look = look_at(cohort, options.variables, options.endpoints)
    out = out.resolve()
    names = identifiers(name for pair in cohort.pseudonyms.items() for name in pair)
    decide = decider(cells, out, options.budget_usd, withheld=lambda: names)
    with begin_session(out, options.asked(question, cohort), replace=options.replace):
        console = Terminal(stderr=True) if options.as_json else Terminal()
        say(console, f"Shown: {look}")
        if look.held_back:
            say(console, f"Not shown, for they hold an outcome: {', '.join(look.held_back)}")
        if look.spent:
            note_look(open_ledger(out / "ledger.jsonl", settings), cohort, look)
            say(
                console, "Noted in the ledger: these are exploratory in these patients from now on."
            )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` is reached
        try:
            inputs = mount(cohort, look, out / "inputs")
            limits = DEFAULT_LIMITS.model_copy(
                update={"seconds": options.step_seconds, "memory_mb": options.memory}
            )
            session = Session(
                inputs, Registry(), engine, out, limits,
                eye=Tables.of(inputs, look, settings.min_count),
            )  # fmt: skip
            manner = exploring(cohort, look, settings.min_count)
            acted = carry(session, question, decide, console, steps=options.steps, manner=manner)
        finally:
            _clear(out)
        found = explored(acted, str(look))
        if options.program and not (found.appendix.tables or found.appendix.refused):
            say(console, "The program shows no table: it left no exploratory.json, in which alone"
                " something is shown (docs/nova.md has an example).")  # fmt: skip
        write_json(out / "appendix.json", found)
    kept = keep(found)
    if options.as_json:
        print_json(found.model_dump(mode="json"))
    else:
        say(console, found.title)
    tell(acted, console, f"{out}: appendix.json, session.json, analysis.py, session.ipynb,"
         f" trace.jsonl, files/{kept}", as_json=options.as_json)  # fmt: skip
