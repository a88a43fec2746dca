"""The `sage` command: groups are named here and loaded only when they are called."""

from __future__ import annotations

import importlib
from typing import Any

import click
import typer
from typer.core import TyperGroup

GROUPS = {
    "kg": ("sage.cli.kg:app", "Literature to knowledge graph: build, paths, export, quality."),
    "cohort": ("sage.cli.cohort:app", "Patient cohorts: list, check, fetch, simulate."),
    "validate": ("sage.cli.validate:app", "Test a hypothesis on a cohort; screen features."),
    "tools": ("sage.cli.tools:app", "The tool registry: list, show, run, promote."),
    "mcp": ("sage.cli.mcp:app", "Serve the tools to any agent over MCP."),
    "sandbox": ("sage.cli.sandbox:app", "Where analysis code runs: build, check, clean."),
    "bench": ("sage.cli.bench:app", "Calibration benchmarks."),
}


class LazyGroups(TyperGroup):
    """A command group whose subgroups are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The eager commands, then the lazy groups."""
        return [*super().list_commands(ctx), *GROUPS]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the group `name`, or fall back to the eager commands."""
        if name not in GROUPS:
            return super().get_command(ctx, name)
        target, summary = GROUPS[name]
        if ctx.resilient_parsing or ctx.params.get("help"):
            return click.Group(name, short_help=summary)
        module, attribute = target.split(":")
        try:
            loaded: Any = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as missing:
            if missing.name != module:
                raise
            raise click.UsageError(f"`sage {name}` is not part of this installation") from None
        return typer.main.get_command(loaded)
