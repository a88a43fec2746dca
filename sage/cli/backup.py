"""`sage backup` and `sage restore`: runs and their databases, kept together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sage.cli.options import AsJson


def backup(
    archive: Annotated[
        Path, typer.Argument(metavar="FILE", help="The archive to write (.tar.gz).")
    ],
    as_json: AsJson = False,
) -> None:
    """Write all runs, their checkpoints, the queue and the ledger into one archive.

    Works while runs go on: the databases are copied first, as of one moment, then the folders; a
    run that changes too fast to be copied whole is named, to be paused, and no archive is left.
    Cohorts, slides and caches are not in it, and of a PostgreSQL server only SAGE's tables are.

    Example: sage backup monday.tar.gz
    """
    from sage.cli.console import out, print_json
    from sage.control import backup as backups
    from sage.control.audit import EXPORTED, log_command
    from sage.core.printable import amount
    from sage.settings import load

    settings = load()
    log_command(settings, EXPORTED, archive, command="backup")
    found = backups.backup(settings, archive)
    if as_json:
        print_json({"archive": str(archive), **found})
        return
    out.print(
        f"{archive}: {amount(found['runs'], 'run')}, {amount(found['files'], 'file')},"
        f" {amount(found['rows'], 'row')} of PostgreSQL",
        soft_wrap=True,
    )
    if elsewhere := found["elsewhere"]:
        out.print(
            f"[yellow]not in it:[/] {amount(elsewhere, 'run')} of the queue outside of runs_dir"
            " (`sage runs --json` tells the folders)",
            soft_wrap=True,
        )


def restore(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="What `sage backup` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Put an archive's runs, checkpoints, queue and ledger where the settings say.

    Nothing is overwritten: runs_dir must be empty, the ledger's file absent, the tables without
    rows (SAGE_RUNS_DIR and SAGE_LEDGER name others). Each file is compared with the archive's
    list first.

    Example: sage restore monday.tar.gz
    """
    from sage.cli.console import out, print_json
    from sage.control import backup as backups
    from sage.control.audit import log_command
    from sage.core.printable import amount
    from sage.settings import load

    settings = load()
    found = backups.restore(settings, archive)
    log_command(settings, "restored", archive)  # behind the rows of the archive's own log
    if as_json:
        print_json({"runs_dir": str(settings.runs_dir), **found})
        return
    out.print(
        f"{amount(found['runs'], 'run')} in {settings.runs_dir}, {amount(found['rows'], 'row')} of"
        " PostgreSQL; go on with: sage runs",
        soft_wrap=True,
    )
