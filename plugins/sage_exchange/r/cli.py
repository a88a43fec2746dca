"""`sage exchange r`: export a validation's analysis as an R script."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export_script(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Folder of a validated claim, inside the --out folder of `sage validate`."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Folder to write; default: FOLDER/r.")] = None,
) -> None:
    """Write a claim's analysis as an R script, with its data and SAGE's numbers.

    Example: sage exchange r sage-validation/cxcl13-os
    """
    from sage.core.errors import InputError
    from sage.core.hooks import EXPORTED, log_command
    from sage.settings import load
    from sage_exchange.r.export import export_r
    from validation.run.runner import read_analysis

    analyses = folder / "analysis"
    parts = ("confirmation", "all", "discovery")  # the verdict rests on the first that is there
    part = next((part for part in parts if (analyses / part / "analysis.json").is_file()), None)
    if part is None:
        raise InputError(
            f"{folder}: no analysis found; give OUT/NAME as written by `sage validate`"
        )
    log_command(load(), EXPORTED, folder, command="exchange r")
    found = read_analysis(analyses / part)
    script = export_r(folder / "inputs" / part, found, out or folder / "r")
    typer.echo(f"Rscript {script}")
