"""Options shared by several commands, each defined once with its name and type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for programs.")]
SpecFile = Annotated[
    Path | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        help="JSON file: a contract printed by `sage ask --json`, possibly edited, or the spec "
        "in a run's manifest. Other options override its fields.",
    ),
]
CohortName = Annotated[
    str | None,
    typer.Option(
        "--cohort", help='Cohort folder or built-in name; default: "demo", which is simulated.'
    ),
]
GraphPath = Annotated[
    Path | None,
    typer.Option("--kg", help="Knowledge graph: GraphML, or a folder written by `sage kg build`."),
]
Hypotheses = Annotated[
    int | None, typer.Option(min=1, max=10, help="Number of hypotheses to test; default: 1.")
]
Seed = Annotated[int | None, typer.Option(help="Random seed; default: 0.")]
BudgetUsd = Annotated[
    float | None,
    typer.Option(min=0, help="Maximum cost of the model in USD; requires prices in sage.toml."),
]
ReasonerName = Annotated[
    str | None, typer.Option("--reasoner", help="`rules` (no model) or `chat`.")
]
AutoApprove = Annotated[
    bool | None,
    typer.Option("--auto-approve", help="Skip the review by a person; the report notes it."),
]
Agreed = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="Accept how the question is interpreted, even if diseases differ or parts "
        "are missing.",
    ),
]
CohortArgument = Annotated[
    str, typer.Argument(metavar="COHORT", help="Cohort folder or built-in name.")
]
CohortOption = Annotated[str, typer.Option("--cohort", help="Cohort folder or built-in name.")]
CohortRoot = Annotated[
    Path | None,
    typer.Option(
        "--cohort-root",
        help="Folder with the cohort's data files, if not the folder that contains cohort.toml.",
    ),
]
Features = Annotated[
    list[Path] | None,
    typer.Option("--features", help="Table of variables computed from the slides; repeatable."),
]
Pattern = Annotated[
    str | None,
    typer.Option("--pattern", help='File name pattern in the slide folder, e.g. "*.svs".'),
]
Mpp = Annotated[float | None, typer.Option("--mpp", help="Pixel size in µm.", min=0.01)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Argument or field, as KEY=VALUE; repeatable."),
]
Workers = Annotated[
    str | None,
    typer.Option(
        "--workers", help='Number of processes, or "ray", "ray:auto", or "ray://HOST:PORT".'
    ),
]
Memory = Annotated[
    int | None, typer.Option("--memory", help="Memory for all workers, in MiB.", min=64)
]
Cache = Annotated[
    Path | None, typer.Option("--cache", help="Folder for cached results; default: in OUT.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Recompute cached results.")]
ToolFolders = Annotated[
    list[Path] | None,
    typer.Option("--tools", help="Folder with your own tools, whose code is executed; repeatable."),
]
AllowedHost = Annotated[
    list[str] | None,
    typer.Option(
        help="Accepted Host header, if not on loopback or behind a proxy; repeatable. HTTP only."
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File whose first line is the token; default: a new token, printed at startup. HTTP "
        "only."
    ),
]
TrustHeader = Annotated[
    str,
    typer.Option(
        help="Header in which a reverse proxy identifies the person, e.g. X-Forwarded-User. HTTP "
        "only."
    ),
]
TrustProxy = Annotated[
    list[str] | None,
    typer.Option(help="Address or network of that proxy; default: this machine. Repeatable."),
]
RolesFile = Annotated[
    Path | None, typer.Option(help="TOML file with roles and quotas; requires --trust-header.")
]
TlsCert = Annotated[
    Path | None, typer.Option(help="Certificate chain (PEM), to serve over TLS. HTTP only.")
]
TlsKey = Annotated[
    Path | None, typer.Option(help="Private key for the certificate (PEM), without a passphrase.")
]
