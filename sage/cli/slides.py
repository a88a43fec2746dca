"""`sage slides`: measure a cohort's slides, import and export maps."""

from __future__ import annotations

import typer

from sage.cli import maps
from sage.cli.measure import measure

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Measure slides; import, show and export maps.",
)
app.command()(measure)
app.add_typer(maps.app, name="maps")
