"""`sage nova`: answer questions about slides or a cohort with programs that call tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sage.cli.options import AsJson, CohortRoot, Features

Program = Annotated[
    Path | None,
    typer.Option(
        help="Run this program, with cells separated by `# %%`, instead of asking a model."
    ),
]
Steps = Annotated[int, typer.Option(min=1, max=200, help="Maximum number of programs.")]
StepSeconds = Annotated[float, typer.Option(min=1, help="Time limit of a program without tools.")]
Memory = Annotated[int, typer.Option(min=256, help="Memory limit of a program, in MiB.")]
Engine = Annotated[
    Literal["auto", "docker", "bubblewrap"] | None,
    typer.Option(help="Sandbox for programs; default: from sage.toml, or auto."),
]
Budget = Annotated[float | None, typer.Option(min=0, help="Maximum cost of the model, in USD.")]
Replace = Annotated[bool, typer.Option("--replace", help="Overwrite the folder's contents.")]

app = typer.Typer(
    no_args_is_help=True, help="Answer questions with programs that call NOVA's tools."
)


@app.callback()
def _group() -> None: ...


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="Question in plain words.")],
    data: Annotated[
        list[Path], typer.Argument(help="Slides, images, tables, or folders that contain them.")
    ],
    program: Program = None,
    suite: Annotated[
        str, typer.Option("--tools", help="Suite of tools that programs may call, or none.")
    ] = "nova",
    steps: Steps = 20,
    step_seconds: StepSeconds = 300,
    memory: Memory = 4096,
    sandbox: Engine = None,
    budget_usd: Budget = None,
    out: Annotated[Path, typer.Option(help="Folder for the session.")] = Path("answer"),
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question about histology data with programs that call tools (NOVA's agent).

    A model writes a program, reads its output and continues, at most 20 times. Programs run in the
    sandbox: they can read DATA and write to the session's folder, nothing else. Their printed
    output is sent to the model; DATA is not. Numbers in the answer must appear in the printed
    output. The folder contains the answer, the programs, a trace and all files. The
    same command resumes an interrupted session without repeating replies or tool calls.

    Example: sage nova ask "How much of the slide is tissue?" slide.svs --program tissue.py

    Example: sage nova ask "Mean nuclear area per image?" images/ --budget-usd 2 --out nuclei
    """
    from sage_nova.run import Options, ask_slides

    options = Options(question, program, steps, step_seconds, memory, sandbox, budget_usd, as_json)
    ask_slides(data, suite, out, options, replace)


@app.command()
def explore(
    subject: Annotated[
        str,
        typer.Argument(metavar="COHORT_OR_RUN", help="Cohort, or folder of a finished run."),
    ],
    question: Annotated[str, typer.Argument(help="Question in plain words.")],
    variables: Annotated[
        list[str] | None,
        typer.Option("--variable", help="Show only this variable or gene; repeatable."),
    ] = None,
    endpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint", help="Also show this outcome, which makes it exploratory; repeatable."
        ),
    ] = None,
    cohort_root: CohortRoot = None,
    features: Features = None,
    program: Program = None,
    steps: Steps = 20,
    step_seconds: StepSeconds = 300,
    memory: Memory = 4096,
    sandbox: Engine = None,
    budget_usd: Budget = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the session; default: exploration, or within the run."),
    ] = None,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Explore a cohort with programs written by a model, separately from any verdict.

    A model writes a program, reads the small tables that the program saves in
    exploratory.json, and continues. Printed output, rows, small counts and error messages do
    not reach the model. All variables and genes except outcomes are shown; outcomes only with
    --endpoint. The ledger records the exploration: later claims about these outcomes in these
    patients are exploratory.

    The answer is titled as exploratory, and its numbers appear in the tables. The report on a
    finished RUN shows it in a separate section. The same command resumes an interrupted
    session. docs/nova.md describes what a program reads and writes, and what a hostile
    program could leak.

    Example: sage nova explore demo "Which variables move with TLS density?" --program look.py

    Example: sage nova explore cohort/ "Who relapses early?" --endpoint OS --budget-usd 1
    """
    from sage.core.errors import InputError
    from sage_nova.explore import Request, explore_cohort, explore_run, is_run
    from sage_nova.run import Options

    options = Options(question, program, steps, step_seconds, memory, sandbox, budget_usd, as_json)
    request = Request(options, tuple(variables or ()), tuple(endpoints or ()))
    if not is_run(subject):
        explore_cohort(subject, cohort_root, features, out or Path("exploration"), request, replace)
    elif cohort_root or features or out or replace:
        raise InputError(
            "--cohort-root, --features, --out and --replace apply only to cohorts; a run uses its "
            "own data and keeps every exploration"
        )
    else:
        explore_run(subject, request)
