"""`sage slides`: measurements of a cohort's slides, maps, and the networks behind them."""

from __future__ import annotations

import typer

from sage.cli import maps
from sage.cli.measure import measure

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Measure slides, exchange maps, train networks.",
)
app.command()(measure)
app.add_typer(maps.app, name="maps")
