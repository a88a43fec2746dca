"""`sage doctor`: show what is installed and what is missing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from sage.cli.options import AsJson

if TYPE_CHECKING:
    from sage.cli.diagnose import Check


def doctor(
    probe: bool = typer.Option(
        False, "--probe", help="Also contact the configured model endpoint."
    ),
    as_json: AsJson = False,
) -> None:
    """Check the installation: libraries, model, sandbox, GPU, data, disk, ledger.

    Example: sage doctor
    """
    from sage.cli.diagnose import diagnose
    from sage.settings import load

    print_checks(diagnose(load(), probe=probe), as_json=as_json)


def print_checks(checks: list[Check], *, as_json: bool) -> None:
    """Print checks as a table or as JSON.

    Raises
    ------
    typer.Exit
        With code 1 if something is broken.
    """
    from sage.cli.console import out, print_json

    if as_json:
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        from rich.table import Column, Table

        table = Table("", *(Column(name, overflow="fold") for name in ("what", "found", "to do")))
        marks = {"ok": "[green]ok[/]", "missing": "[yellow]–[/]", "broken": "[red]broken[/]"}
        for item in checks:
            table.add_row(marks[item.state], item.what, item.found, item.remedy)
        out.print(table)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)
