"""The `sage` command, whose subcommand groups are imported only when they are called."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sage.cli.ask import ask
from sage.cli.campaign import campaign
from sage.cli.doctor import doctor
from sage.cli.run import resume, review, run
from sage.cli.serve import serve
from sage.cli.show import show
from sage.core.log import Level, configure
from sage.core.plugins import find_plugins, load_plugin, summarize_plugin

GROUPS = {
    "cohort": ("sage.cli.cohort:app", "List, check and simulate patient cohorts."),
    "kg": ("sage.cli.kg:app", "Build knowledge graphs from literature; find paths, export."),
    "validate": (
        "sage.cli.validate:app",
        "Test hypotheses on cohorts; gate measurements; ledger.",
    ),
    "slides": ("sage.cli.slides:app", "Measure slides; import, show and export maps."),
    "tools": ("sage.cli.tools:app", "List, show and run registered tools; serve over MCP."),
    "admin": (
        "sage.cli.admin:app",
        "Pause and replay runs; manage the sandbox; show settings.",
    ),
}


class LazyGroups(TyperGroup):
    """A command group that imports its subgroups on demand."""

    def list_commands(self, ctx: Any) -> list[str]:
        """List the eager commands, then the lazy groups, then commands from installed plugins."""
        return [*super().list_commands(ctx), *GROUPS, *find_plugins("sage.commands")]

    def get_command(self, ctx: Any, name: str) -> Any:
        """Import the group or plugin called `name`, or fall back to the eager commands."""
        plugins = find_plugins("sage.commands")
        if name not in GROUPS and name not in plugins:
            return super().get_command(ctx, name)
        if ctx.meta.get("listing"):
            summary = GROUPS[name][1] if name in GROUPS else summarize_plugin(plugins[name])
            return TyperCommand(name, short_help=summary, help=summary)
        if name in GROUPS:
            module, attribute = GROUPS[name][0].split(":")
            loaded: Any = getattr(importlib.import_module(module), attribute)
        else:
            loaded = load_plugin("sage.commands", name)
        if not isinstance(loaded, typer.Typer):
            function, loaded = loaded, typer.Typer(add_completion=False)
            loaded.command(name)(function)
        return typer.main.get_command(loaded)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the groups and their summaries to the help text, without importing them."""
        ctx.meta["listing"] = True
        super().format_help(ctx, formatter)


app = typer.Typer(
    cls=LazyGroups,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=True,
    help=(
        "Turn a research question in computational pathology into a tested, traceable "
        'hypothesis.\n\nExample: sage run "Which genes interact with tertiary lymphoid '
        'structures in bladder cancer?" --auto-approve'
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from sage.core.versions import own_version

        typer.echo(f"sage {own_version()}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
    log_level: Level = typer.Option(
        "warning", "--log-level", help="Minimum level of log messages on stderr."
    ),
    log_file: Path | None = typer.Option(
        None,
        "--log-file",
        dir_okay=False,
        help="Also append log messages to this file, as JSON lines.",
    ),
) -> None:
    configure(log_level, log_file)


for _command in (run, ask, review, resume, show, campaign, serve, doctor):
    app.command()(_command)
