"""Options that the commands of several groups share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for machines.")]
SpecFile = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        help="JSON: a contract that `sage ask --json` printed, edited, or the spec of a run's"
        " manifest. Other options override its fields.",
    ),
]
CohortName = Annotated[
    str | None,
    typer.Option(
        "--cohort", help='A cohort folder or built-in name; default "demo", which is simulated.'
    ),
]
GraphPath = Annotated[
    Path | None,
    typer.Option(
        "--kg", help="A knowledge graph: GraphML, or a folder that `sage kg build` wrote."
    ),
]
Hypotheses = Annotated[
    int | None, typer.Option(min=1, max=10, help="How many hypotheses to test; default 1.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random; default 0.")]
BudgetUsd = Annotated[
    float | None,
    typer.Option(min=0, help="Hard bound on the model's cost; needs prices in sage.toml."),
]
ReasonerName = Annotated[
    str | None, typer.Option("--reasoner", help="`rules` (no model) or `chat`.")
]
AutoApprove = Annotated[
    bool | None,
    typer.Option(
        "--auto-approve", help="Pass the human review without a human; the report says so."
    ),
]
Agreed = Annotated[
    bool,
    typer.Option("--yes", help="Accept the question as it was read, also where diseases differ."),
]
