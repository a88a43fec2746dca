"""`sage forget`: remove one patient's data from runs, caches and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sage.cli.options import AsJson


def forget(
    patient: Annotated[
        str, typer.Argument(metavar="PATIENT", help="As the cohort's files name them.")
    ],
    cohort: Annotated[str, typer.Option(help="The patient's cohort: a folder or built-in name.")],
    out: Annotated[
        Path, typer.Option(help="The folder that `sage mcp serve --out` or `sage tools` wrote.")
    ] = Path("sage-output"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; say what would be removed.")
    ] = False,
    unnamed: Annotated[
        bool, typer.Option("--unnamed", help="Go on where no file names the patient.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove one patient's data from runs, caches and outputs, and say what cannot be removed.

    The tables of patients in the cohort's runs are emptied, the identifier is struck out of texts,
    parsed matrices and outputs that name the patient go. The cohort's own files are yours: those
    that still name the patient are listed. A name that no file holds is refused, since it may be
    misspelled.

    Example: sage forget SIM-0001 --cohort demo --dry-run
    """
    from sage.cli.console import out as console
    from sage.cli.console import print_json
    from sage.control.audit import log_command
    from sage.control.forget import forget as remove_all
    from sage.run.wiring import demo_cohort, load_cohort
    from sage.settings import load

    settings = load()
    folder = Path(cohort)
    if cohort == "demo":
        folder = demo_cohort(settings)
    elif not folder.is_dir():
        folder = load_cohort(cohort, settings).root
    found = remove_all(patient, folder, settings, out, name=cohort, dry=dry_run, unnamed=unnamed)
    if not dry_run:  # the log must not name who is to be forgotten
        log_command(settings, "forgot a patient", folder, tables=len(found.emptied))
    if as_json:
        print_json(found.model_dump())
        return
    verb = "would be" if dry_run else "were"
    for what, paths in (
        (f"tables of patients that {verb} emptied", found.emptied),
        (f"texts that {verb} rid of the name", found.struck_out),
        (f"caches that {verb} removed", found.caches),
        (f"outputs of tools that {verb} removed", found.outputs),
        ("left, and to be seen to", found.left),
        ("cannot be removed", found.cannot),
    ):
        console.print(f"{what}: {len(paths)}", style="bold")
        for path in paths:
            console.print(f"  {path}", markup=False, soft_wrap=True)
