"""`sage cohort`: list, check, show, fetch and simulate cohorts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli.options import AsJson, CohortArgument, CohortRoot, Features
from sage.core.errors import InputError

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

app = typer.Typer(
    add_completion=False,
    name="cohort",
    help="List, check, show and simulate patient cohorts.",
    no_args_is_help=True,
)

COLORS = {"error": "red", "warning": "yellow", "info": "cyan"}


def load_named(
    name: str, root: Path | None = None, features: Sequence[Path] | None = None
) -> Cohort:
    """Load a cohort by folder or name, following the settings."""
    from sage.run.wiring import load_cohort
    from sage.settings import load

    if Path(name).is_dir():  # even if it has the name of a built-in cohort
        name = str(Path(name).resolve())
    return load_cohort(name, load(), root, features or ())


@app.command("list")
def list_cohorts(
    folders: Annotated[
        list[Path] | None, typer.Option("--in", help="Additional folder to search; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List available cohorts: built-in, simulated, and found in folders.

    Example: sage cohort list --in cohorts
    """
    from sage.cli.console import out, print_json
    from validation import cohort

    for folder in folders or []:
        if not folder.is_dir():
            raise InputError(f"--in {folder}: folder not found")
    found = cohort.available([*(folders or []), Path("cohorts")])
    if as_json:
        print_json([cohort.model_dump(mode="json") for cohort in found])
        return
    for item in found:
        mark = " [magenta]SIMULATED[/]" if item.simulated else ""
        out.print(f"[cyan]{item.id}[/]{mark}  {item.title}  [dim]{item.path or item.kind}[/]")
    out.print("[cyan]demo[/] [magenta]SIMULATED[/]  The demonstration cohort, created on first use")


@app.command()
def check(name: CohortArgument, cohort_root: CohortRoot = None, as_json: AsJson = False) -> None:
    """Check a cohort for problems that could mislead an analysis.

    The exit code is 2 if there is an error, and 0 if there are only warnings and notes.
    --json prints a list of findings, errors first: severity (error, warning, info), code,
    where, message, remedy.

    Example: sage cohort check cohorts/tcga-blca
    """
    from sage.cli.console import err, out, print_json, print_line
    from validation.cohort.findings import check_cohort
    from validation.core.types import Finding

    with err.status(f"checking {name}"):
        try:
            findings = check_cohort(load_named(name, cohort_root))
        except InputError as error:
            findings = [
                Finding(
                    severity="error",
                    code="unreadable",
                    where=name,
                    message=str(error),
                    remedy="write cohort.toml (docs/cohorts.md; `sage validate schema cohort` "
                    "lists every key), or correct it and the files to which it refers",
                )
            ]
    errors = sum(finding.severity == "error" for finding in findings)
    if as_json:
        print_json([finding.model_dump(mode="json") for finding in findings])
    else:
        for item in findings:
            out.print(
                f"[{COLORS[item.severity]}]{item.severity}[/] [bold]{item.code}[/] {item.where}",
                soft_wrap=True,
            )
            print_line(f"    {item.message}")
            if item.remedy:
                print_line(f"    → {item.remedy}", style="dim")
        warnings = sum(finding.severity == "warning" for finding in findings)
        notes = len(findings) - errors - warnings
        out.print(f"errors: {errors}, warnings: {warnings}, notes: {notes}")
    if errors:
        raise typer.Exit(2)


@app.command()
def show(
    name: CohortArgument,
    cohort_root: CohortRoot = None,
    features: Features = None,
    as_json: AsJson = False,
) -> None:
    """Show a cohort's data dictionary: variables, endpoints, and patients lost in each join.

    Example: sage cohort show gbsg2
    """
    from rich.table import Table

    from sage.cli.console import err, out, print_json, print_line
    from validation.contracts.timing import known_text

    with err.status(f"reading {name}"):
        dictionary = load_named(name, cohort_root, features).dictionary()
    if as_json:
        print_json(dictionary)
        return
    mark = " [magenta]SIMULATED[/]" if dictionary.simulated else ""
    out.print(f"[bold]{dictionary.title}[/]{mark}: {dictionary.n_patients} patients")
    table = Table(box=None, pad_edge=False)
    for heading in ("variable", "kind", "unit", "n", "missing", "known at", "source"):
        table.add_column(heading, overflow="fold")
    for variable in dictionary.variables:
        table.add_row(
            variable.key,
            variable.kind,
            variable.unit or "",
            str(variable.n),
            f"{variable.missing:.0%}",
            known_text(variable.known_at),
            variable.source,
        )
    if dictionary.expression:
        table.add_row(
            "expression:GENE",
            "continuous",
            dictionary.expression_unit or "",
            str(dictionary.expression_n),
            "",
            known_text(dictionary.expression_known_at),
            f"{len(dictionary.expression)} genes",
        )
    out.print(table)
    ends = Table(box=None, pad_edge=False)
    for heading in ("endpoint", "kind", "n", "events", "median follow-up", "coding"):
        ends.add_column(heading, overflow="fold")
    for end in dictionary.endpoints:
        follow = "" if end.median_follow_up is None else f"{end.median_follow_up} months"
        events = "" if end.events is None else str(end.events)
        ends.add_row(end.key, end.kind, str(end.n), events, follow, end.coding)
    out.print(ends)
    for join in dictionary.joins:
        out.print(f"[dim]{join.step}: {join.before} → {join.after} ({join.reason})[/]")
    for note in dictionary.notes:
        print_line(f"note: {note}")


@app.command()
def simulate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create.")],
    seed: Annotated[
        int, typer.Option(help="Random seed; the same seed gives the same cohort.")
    ] = 0,
    patients: Annotated[int, typer.Option(min=40, max=5000)] = 400,
    null: Annotated[bool, typer.Option("--null", help="Simulate without any effects.")] = False,
    slides: Annotated[
        int, typer.Option(min=0, help="Number of patients with a rendered slide.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Write a simulated bladder cohort with known ground truth, for trials and calibration.

    Example: sage cohort simulate worlds/first --seed 1
    """
    from sage.cli.console import err, out, print_json
    from validation.simulate import write_world

    with err.status("simulating"):
        write_world(folder, seed=seed, patients=patients, null=null, slides=slides)
    if as_json:
        print_json({"folder": str(folder), "seed": seed, "null": null, "simulated": True})
        return
    out.print(f"SIMULATED cohort of {patients} patients in {folder}; the truth is in PLANTED.md")
