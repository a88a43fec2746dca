"""`sage doctor` and `sage config`: what is here, what is missing, what is in force."""

from __future__ import annotations

import typer

from sage.cli.options import AsJson


def doctor(
    clean: bool = typer.Option(
        False, "--clean", help="Remove containers that a killed SAGE left behind."
    ),
    probe: bool = typer.Option(
        False, "--probe", help="Also ask the configured model endpoint for its models."
    ),
    as_json: AsJson = False,
) -> None:
    """Say what is installed, which reasoner, sandbox and GPU serve, and what is missing.

    Example: sage doctor
    """
    from sage.console import out, print_json
    from sage.diagnose import diagnose
    from sage.settings import load

    settings = load()
    removed: list[str] = []
    if clean:
        import sandbox

        removed = sandbox.sweep()
    checks = diagnose(settings, probe=probe)
    if as_json:
        print_json(
            {"checks": [check.model_dump(mode="json") for check in checks], "removed": removed}
        )
    else:
        from rich.table import Column, Table

        table = Table("", "what", "found", Column("to do", overflow="fold"))
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
    from sage.console import out, print_json
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
    from rich.table import Table

    table = Table("setting", "value", title=f"{file}{'' if file.is_file() else ' (absent)'}")
    for name, value in values.items():
        table.add_row(name, str(value))
    table.add_row("[dim]reasoner in force[/]", settings.effective_reasoner)
    table.add_row("[dim]ledger in force[/]", settings.ledger.shown)
    out.print(table)
