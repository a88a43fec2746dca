"""`sage import`: create a cohort from tables and show all guesses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sage.cli.options import AsJson
from sage.core.errors import InputError

if TYPE_CHECKING:
    from sage_import.intake import Proposal
    from validation.core.types import Finding

MARKS = {"sure": "green", "likely": "cyan", "unsure": "yellow", "given": "green"}
MOST_CORRECTIONS = 200


def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="Tables (.csv, .tsv, .txt, .xlsx, .parquet, .dta, .sav, GDC .json, GEO series), a "
            "cBioPortal or GDC folder, a .zip.",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Correct a guess, as KEY=VALUE; repeatable."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to create; default: cohorts/NAME.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Write without confirmation; open guesses must be set.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the guesses without writing anything.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a cohort that this command wrote earlier.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a cohort from your own files; outcomes, variables and codes are guessed and shown.

    Every guess is shown with its evidence, and `--set` corrects it: `time=os_months`,
    `event=OS_STATUS:1:DECEASED`, `censored=censorship:1`, `unit=months`, `id=PATIENT`,
    `missing=9999,unk`, `STAGE.order=I<II<III`, `where=type:BLCA`, `known_at=baseline`, and
    `time=none` if there is no outcome. In a terminal, you are asked three to five questions;
    otherwise the command lists the open questions and exits with code 2. The new folder
    contains cohort.toml and the columns in use; your files are not changed.

    Example: sage import patients.csv --set "event=status:dead" --yes
    """
    from sage.cli.console import err, print_json
    from sage_import.intake import propose, publish

    corrections = list(settings or [])
    asks = sys.stdin.isatty() and not (yes or dry_run or as_json)
    with err.status("reading"):
        proposal = propose(files, corrections)
    if not as_json:
        _print_proposal(proposal)
    if asks:
        proposal = _ask_open(files, corrections, proposal)
    if dry_run:
        if as_json:
            print_json(plain(proposal))
        return
    folder = out or Path("cohorts") / proposal.name
    with err.status(f"writing {folder}"):
        findings = publish(proposal, folder, force=force)
    if as_json:
        print_json(plain(proposal) | {"folder": str(folder), "findings": _plain_findings(findings)})
        return
    _print_written(folder, findings)


def plain(proposal: Proposal) -> dict[str, Any]:
    """Convert a proposal to JSON data: guesses, questions, columns, and omissions."""
    return {
        "name": proposal.name,
        "guesses": [guess.model_dump(mode="json") for guess in proposal.guesses],
        "columns": [column.model_dump(mode="json") for column in proposal.columns],
        "questions": [guess.model_dump(mode="json") for guess in proposal.questions],
        "left_out": [loss.model_dump(mode="json") for loss in proposal.losses],
    }


def _plain_findings(findings: list[Finding]) -> list[dict[str, Any]]:
    return [finding.model_dump(mode="json") for finding in findings]


def _print_proposal(proposal: Proposal) -> None:
    from sage.cli.console import out, print_line

    for guess in proposal.guesses:
        mark = "open" if guess.open else guess.confidence
        color = "red" if guess.open else MARKS[guess.confidence]
        out.print(f"[{color}]{mark:6}[/] {guess.what}", end="")
        out.print(f" = {guess.value}" if guess.value else "", markup=False, style="bold", end="")
        out.print(f" [dim]({guess.key})[/]")
        print_line(f"         {guess.evidence}", style="dim")
    out.print()
    for role, title in (
        ("outcome", "outcomes"),
        ("variable", "variables"),
        ("left out", "left out"),
    ):
        listed = [column for column in proposal.columns if column.role == role]
        if not listed:
            continue
        out.print(f"[bold]{len(listed)} columns: {title}[/]")
        for column in listed:
            details = [column.kind, f"{column.missing:.0%} missing" if column.missing else ""]
            details += [
                f"known at: {column.known_at}" if role == "variable" else "",
                column.evidence,
            ]
            details += [", ".join(f"{level} {n}" for level, n in column.levels.items())]
            words = "; ".join(word for word in details if word)
            print_line(f"  {column.column}: {words}")
            if column.warning:
                print_line(f"    ! {column.warning}", style="yellow")
            if column.remedy:
                print_line(f"    → {column.remedy}", style="dim")
    if proposal.losses:
        out.print("[bold]not read[/]")
    for loss in proposal.losses:
        print_line(f"  {loss.what}: {loss.count} left out; {loss.reason}")
        print_line(f"    → {loss.remedy}", style="dim")


def _ask_open(files: list[Path], corrections: list[str], proposal: Proposal) -> Proposal:
    """Ask the open questions, then whether to write, taking corrections until the answer is yes.

    Enter accepts the shown value; the direction of an event has no default to accept.

    Raises
    ------
    typer.Exit
        If the user declines.
    """
    from rich.prompt import Prompt

    from sage.cli.console import err, out, print_line
    from sage_import.intake import propose

    answered: set[str] = set()
    for _ in range(MOST_CORRECTIONS):
        guess = next((item for item in proposal.questions if item.key not in answered), None)
        guess = guess or next(iter(proposal.open), None)
        if guess is not None:
            print_line(f"\n{guess.what}: {guess.evidence}")
            choices = " or ".join(guess.choices)
            answer = Prompt.ask(f"{guess.key}{f' ({choices})' if choices else ''}",
                                default=guess.value or None, console=out)  # fmt: skip
            if not answer:
                continue
            if answer == guess.value and not guess.open:
                answered.add(guess.key)
                continue
            correction = f"{guess.key}={answer}"
        else:
            answer = Prompt.ask("\nWrite the cohort? yes, no, or KEY=VALUE to correct a guess",
                                default="yes", console=out)  # fmt: skip
            if answer.casefold() in ("yes", "y"):
                return proposal
            if answer.casefold() in ("no", "n", "q"):
                err.print("nothing was written")
                raise typer.Exit(1)
            correction = answer
        try:
            proposal = propose(files, [*corrections, correction])
        except InputError as error:
            print_line(str(error), style="red", err=True)
            continue
        corrections.append(correction)
        if guess is not None:
            answered.add(guess.key)
        elif not proposal.open:
            _print_proposal(proposal)
    raise InputError(f"more than {MOST_CORRECTIONS} corrections; set them with --set")


def _print_written(folder: Path, findings: list[Finding]) -> None:
    from sage.cli.console import out, print_line
    from sage.core.printable import count_noun

    counts = {
        name: sum(item.severity == name for item in findings) for name in ("error", "warning")
    }
    for finding in findings:
        if finding.severity == "error" or finding.code == "timing_undeclared":
            out.print(
                f"[red]{finding.severity}[/] [bold]{finding.code}[/] {finding.where}",
                soft_wrap=True,
            )
            print_line(f"    {finding.message}")
            print_line(f"    → {finding.remedy}", style="dim")
    out.print(f"\nwritten: {folder / 'cohort.toml'}", soft_wrap=True)
    found = " and ".join(count_noun(number, name) for name, number in counts.items())
    out.print(f"`check` found {found}; next:")
    out.print(f"  sage cohort check {folder}\n  sage cohort show {folder}", soft_wrap=True)
    out.print(f'  sage run "QUESTION" --cohort {folder}', soft_wrap=True)
