"""`sage doctor` and `sage config`: what is here, what is missing, what is in force."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from sage.cli.options import AsJson


def doctor(
    clean: bool = typer.Option(
        False, "--clean", help="Remove containers that a killed SAGE left behind."
    ),
    probe: bool = typer.Option(
        False, "--probe", help="Also ask the configured model endpoint for its models."
    ),
    deployment: bool = typer.Option(
        False,
        "--deployment",
        help="Also check what a server of several people needs: database, queue, disk, log.",
    ),
    as_json: AsJson = False,
) -> None:
    """Say what is installed, which reasoner, sandbox and GPU serve, and what is missing.

    Example: sage doctor
    """
    from sage.cli.console import out, print_json
    from sage.cli.diagnose import diagnose
    from sage.settings import load

    settings = load()
    removed: list[str] = []
    if clean:
        import sandbox

        removed = sandbox.sweep()
    checks = diagnose(settings, probe=probe)
    if deployment:
        from sage.control.deployment import check_deployment

        checks += check_deployment(settings)
    if as_json:
        print_json(
            {"checks": [check.model_dump(mode="json") for check in checks], "removed": removed}
        )
    else:
        from rich.table import Column, Table

        table = Table("", *(Column(name, overflow="fold") for name in ("what", "found", "to do")))
        marks = {"ok": "[green]ok[/]", "missing": "[yellow]–[/]", "broken": "[red]broken[/]"}
        for item in checks:
            table.add_row(marks[item.state], item.what, item.found, item.remedy)
        out.print(table)
        if clean:
            out.print(f"removed {len(removed)} left-over containers")
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)


def config(as_json: AsJson = False) -> None:
    """Print the settings in force and the file they come from. Secrets are hidden.

    Settings come from sage.toml, then SAGE_… variables, then the command line.

    Example: SAGE_NOVELTY_THRESHOLD=6 sage config
    """
    from sage.cli.console import out, print_json
    from sage.settings import config_file, load

    settings = load()
    values = settings.model_dump(mode="json")
    file = config_file()
    if as_json:
        print_json(
            {
                "file": str(file),
                "file_exists": file.is_file(),
                "settings": values,
                "ledger": settings.ledger.shown,
            }
        )
        return
    out.print(f"{file}{'' if file.is_file() else ' (absent)'}", style="bold", soft_wrap=True)
    for name, value in _flat(values):
        out.print(f"{name} = {value}", markup=False, soft_wrap=True)
    out.print(f"reasoner in force: {settings.effective_reasoner}", style="dim", soft_wrap=True)
    out.print(f"ledger in force: {settings.ledger.shown}", style="dim", soft_wrap=True)


def _flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings one by one, each under its whole name; a part without a value is left out."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None or not prefix:
            yield f"{prefix}{name}", "not set" if value is None else value
