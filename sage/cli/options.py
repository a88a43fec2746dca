"""Options that the commands of several groups share."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for machines.")]
ReadSlides = Annotated[
    int,
    typer.Option(
        min=0,
        max=3,
        help="Read the slides of so many patients at each end of an exposure about tissue, for the"
        " review and the report. Patients are chosen by the exposure alone.",
    ),
]
