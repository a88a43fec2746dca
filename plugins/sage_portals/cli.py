"""`sage portals`: fetch cohorts from public APIs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sage.cli.options import AsJson

app = typer.Typer(no_args_is_help=True)


@app.callback()
def describe_group() -> None:
    """Fetch cohorts from the public APIs of GDC and cBioPortal."""


@app.command()
def fetch(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the cohort, such as tcga-blca")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to create; default: cohorts/NAME.")
    ] = None,
    gene: Annotated[list[str] | None, typer.Option(help="Additional gene; repeatable.")] = None,
    counts: Annotated[
        bool, typer.Option("--counts", help="Fetch all genes, as counts from GDC (about 2 GB).")
    ] = False,
    gdc: Annotated[str | None, typer.Option(help="Alternative address of the GDC API.")] = None,
    cbioportal: Annotated[
        str | None, typer.Option(help="Alternative address of the cBioPortal API.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a cohort from the public APIs of GDC and cBioPortal; repeat the command to resume.

    Example: sage portals fetch tcga-blca --gene CD274
    """
    from sage.cli.console import counting, print_json
    from sage.cli.console import out as console
    from sage_portals.fetch import CBIOPORTAL, GDC, fetch_cohort

    folder = out or Path("cohorts") / name
    with counting(name) as advance:
        fetch_cohort(
            name,
            folder,
            genes=tuple(gene or ()),
            counts=counts,
            gdc=gdc or GDC,
            cbioportal=cbioportal or CBIOPORTAL,
            progress=advance,
        )
    if as_json:
        print_json({"cohort": name, "folder": str(folder)})
        return
    console.print(f"{name} in {folder}; next: sage cohort check {folder}")
