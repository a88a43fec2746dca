"""`sage ask`: show how SAGE understands a question, before anything runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli.options import Agreed, AsJson, CohortOption, CohortRoot, GraphPath, ReasonerName
from sage.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.question.types import Question
    from sage.run.spec import Corrections

Exposure = Annotated[
    list[str] | None, typer.Option(help="Set the exposure in other words; repeatable.")
]
Endpoint = Annotated[str | None, typer.Option(help="Set the endpoint by name or key.")]
Modifier = Annotated[str | None, typer.Option(help="Set the variable that may modify the effect.")]
Treatment = Annotated[str | None, typer.Option(help="Set the treatment.")]
Populations = Annotated[
    list[str] | None,
    typer.Option("--population", help='Set the population, e.g. "women"; repeatable.'),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        help="Drop a part of the question, identified by its wording; the report notes it."
    ),
]


def corrections_of(
    exposure: list[str] | None,
    endpoint: str | None,
    modifier: str | None,
    treatment: str | None,
    population: list[str] | None,
    drop: list[str] | None,
) -> Corrections:
    """Collect corrections to a question's interpretation from the command-line options."""
    from agents.question.types import PartRole
    from sage.run.spec import Corrections

    given = {
        PartRole.EXPOSURE: tuple(exposure or ()),
        PartRole.ENDPOINT: (endpoint,) if endpoint else (),
        PartRole.MODIFIER: (modifier,) if modifier else (),
        PartRole.TREATMENT: (treatment,) if treatment else (),
        PartRole.POPULATION: tuple(population or ()),
    }
    return Corrections(
        replaced={role: words for role, words in given.items() if words},
        dropped=tuple(drop or ()),
        yes=True,
    )


def ask_to_agree(*, yes: bool, quiet: bool) -> Callable[[Question], None]:
    """Make a function that shows a question's contract and asks the user to agree to it.

    The function asks only on a terminal. Elsewhere, it refuses a question that names a
    different disease than the cohort, unless `yes` is set. A question that would lose a part
    is always refused.
    """
    from sage.cli.console import err, print_line
    from sage.run.questions import describe_question, refuse

    def agree(question: Question) -> None:
        if not quiet:
            for line in describe_question(question):
                print_line(line, err=True)
        refuse(question, yes=yes)
        if yes:
            return
        mismatches = " ".join(question.setting.mismatches)
        remedy = (
            "Set a cohort with --cohort, build a graph from its literature (`sage kg build`, then "
            "--kg), or continue anyway with --yes."
        )
        if not sys.stdin.isatty():
            if mismatches:
                raise InputError(f"{mismatches} {remedy}")
            return
        if mismatches:
            err.print(f"[yellow]{mismatches}[/] {remedy}", soft_wrap=True)
        err.print("Continue? [y/N] " if mismatches else "Run this question? [Y/n] ", end="")
        answer = sys.stdin.readline().strip().lower()
        if answer not in ("y", "yes") and (answer or mismatches):
            raise InputError(
                "stopped before running the question; correct it with `sage ask … --json > "
                "question.json` (--exposure, --endpoint, --drop …), then `sage run "
                "--spec question.json`"
            )

    return agree


def ask(
    prompt: str = typer.Argument(..., metavar="QUESTION", help="The research question."),
    kg: GraphPath = None,
    cohort: CohortOption = "demo",
    cohort_root: CohortRoot = None,
    exposure: Exposure = None,
    endpoint: Endpoint = None,
    modifier: Modifier = None,
    treatment: Treatment = None,
    population: Populations = None,
    drop: Drop = None,
    yes: Agreed = False,
    reasoner: ReasonerName = None,
    as_json: AsJson = False,
) -> None:
    """Show the interpretation of a question: its parts, unknown parts, and missing parts.

    Nothing is run. The exit code is 2 if the question cannot be answered as asked. The output
    of --json can be edited and given to `sage run --spec FILE`.

    Example: sage ask "Which stromal genes relate to lymph-node positivity?" --json
    """
    from sage.cli.console import counting, print_json, print_line
    from sage.run.questions import describe_question, make_contract, question_input, refuse
    from sage.run.wiring import graph_path, load_cohort, make_ontology, open_graph, question_reader
    from sage.settings import load

    settings = load(reasoner=reasoner)
    dictionary = load_cohort(cohort, settings, cohort_root).dictionary()
    with counting("graph", quiet=as_json) as progress:
        graph = open_graph(graph_path(kg, settings, progress), settings)
    given = question_input(prompt, dictionary, graph)
    corrections = corrections_of(exposure, endpoint, modifier, treatment, population, drop)
    found = make_contract(given, question_reader(settings)(given), make_ontology(), corrections)
    if as_json:
        print_json(found)
    else:
        for line in describe_question(found):
            print_line(line)
    refuse(found, yes=yes)
