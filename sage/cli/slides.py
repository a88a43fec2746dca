"""`sage slides`: measure a cohort's slides and show their maps."""

from __future__ import annotations

import typer

from sage.cli.maps import show_maps
from sage.cli.measure import measure

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure slides; show maps.")
app.command()(measure)
app.command("maps")(show_maps)
