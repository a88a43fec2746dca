"""`sage hospital`: queue, workers, audit log, archives, removal of data, and server checks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sage.cli.options import AsJson
from sage.core.errors import FaultError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sage.settings import Settings

app = typer.Typer(add_completion=False, no_args_is_help=True)
Outputs = Annotated[
    Path, typer.Option("--out", help="Output folder of `sage tools serve` or `sage tools run`.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List what would be removed, without removing anything.")
]


@app.callback()
def _group() -> None:
    """Manage the queue, workers, audit log, archives, outputs and a patient's data."""


@app.command()
def audit(
    who: str | None = typer.Option(None, help="Show only this person's actions."),
    limit: int = typer.Option(50, min=1, help="Maximum number of rows, latest first."),
    as_json: AsJson = False,
) -> None:
    """Show people's actions on servers and through commands, and verify the log.

    Rows are hashed in a chain; the exit code is 1 if a row was edited or removed.

    Example: sage hospital audit --who ann
    """
    from sage.cli.console import out, print_json, print_line
    from sage.core.printable import one_line
    from sage.settings import load
    from sage_hospital.audit import open_audit

    with open_audit(load()) as log:
        kept = log is not None
        rows, problem = (log.rows(), log.find_problem()) if log is not None else ([], "")
    shown = [row for row in rows if who in (None, row.who)][-limit:]
    if as_json:
        print_json({"problem": problem, "rows": [row.model_dump(mode="json") for row in shown]})
    else:
        for row in shown:
            detail = ", ".join(f"{name} {value}" for name, value in row.detail.items())
            line = f"{row.at}  {row.who}  {row.what}  {row.about}  {detail}"
            print_line(one_line(line))
        if not shown and kept:
            print_line("the log is empty" if who is None else f"the log has no rows for {who}")
        elif not shown:
            out.print(
                "there is no log; a log is kept if `sage serve --trust-header` is used or "
                "checkpoint_url is set"
            )
    if problem:
        raise FaultError(f"{problem}; restore it from a backup")


@app.command()
def backup(
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="Archive to write (.tar.gz).")],
    as_json: AsJson = False,
) -> None:
    """Write all runs, their checkpoints, the queue and the ledger into one archive.

    Runs may continue meanwhile: the databases are copied in one snapshot, then the folders.
    If a run changes too fast to be copied, the command reports it and writes no archive.
    Cohorts, slides, caches and other tables on a PostgreSQL server are not included.

    Example: sage hospital backup monday.tar.gz
    """
    from sage.cli.console import out, print_json
    from sage.core.hooks import EXPORTED, log_command
    from sage.core.printable import count_noun
    from sage.settings import load
    from sage_hospital import backup as backups

    settings = load()
    log_command(settings, EXPORTED, archive, command="backup")
    found = backups.backup(settings, archive)
    if as_json:
        print_json({"archive": str(archive), **found})
        return
    out.print(
        f"{archive}: {count_noun(found['runs'], 'run')}, {count_noun(found['files'], 'file')},"
        f" {count_noun(found['rows'], 'row')} from PostgreSQL",
        soft_wrap=True,
    )
    if elsewhere := found["elsewhere"]:
        out.print(
            f"[yellow]not included:[/] {count_noun(elsewhere, 'run')} in the queue outside "
            "runs_dir (`sage show --json` lists the folders)",
            soft_wrap=True,
        )


@app.command()
def restore(
    archive: Annotated[
        Path, typer.Argument(metavar="FILE", help="Archive created by `sage hospital backup`.")
    ],
    as_json: AsJson = False,
) -> None:
    """Restore an archive's runs, checkpoints, queue and ledger to the paths in the settings.

    Nothing is overwritten: runs_dir and the tables must be empty, and the ledger file must
    not exist (use SAGE_RUNS_DIR and SAGE_LEDGER to restore elsewhere). Each file is first
    compared with the archive's list.

    Example: sage hospital restore monday.tar.gz
    """
    from sage.cli.console import out, print_json
    from sage.core.hooks import log_command
    from sage.core.printable import count_noun
    from sage.settings import load
    from sage_hospital import backup as backups

    settings = load()
    found = backups.restore(settings, archive)
    log_command(settings, "restored", archive)  # behind the rows of the archive's own log
    if as_json:
        print_json({"runs_dir": str(settings.runs_dir), **found})
        return
    out.print(
        f"{count_noun(found['runs'], 'run')} in {settings.runs_dir},"
        f" {count_noun(found['rows'], 'row')} in PostgreSQL; list them with: sage show",
        soft_wrap=True,
    )


@app.command()
def forget(
    patient: Annotated[
        str, typer.Argument(metavar="PATIENT", help="Identifier as in the cohort's files.")
    ],
    cohort: Annotated[str, typer.Option(help="The patient's cohort: a folder or built-in name.")],
    out: Outputs = Path("sage-output"),
    dry_run: DryRun = False,
    unnamed: Annotated[
        bool, typer.Option("--unnamed", help="Continue even if no file contains the identifier.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove one patient's data from runs, caches and outputs; list what cannot be removed.

    Patient tables in the cohort's runs are emptied, the identifier is removed from texts, and
    cached matrices and outputs that contain it are deleted. The cohort's own files are only
    listed. An identifier that no file contains is refused, since it may be misspelled.

    Example: sage hospital forget SIM-0001 --cohort demo --dry-run
    """
    from sage.cli.console import out as console
    from sage.cli.console import print_json, print_line
    from sage.core.hooks import log_command
    from sage.run.wiring import demo_cohort, load_cohort
    from sage.settings import load
    from sage_hospital.forget import forget as remove_all

    settings = load()
    folder = Path(cohort)
    if cohort == "demo":
        folder = demo_cohort(settings)
    elif not folder.is_dir():
        folder = load_cohort(cohort, settings).root
    found = remove_all(patient, folder, settings, out, name=cohort, dry=dry_run, unnamed=unnamed)
    if not dry_run:  # the log must not name the person to be forgotten
        log_command(settings, "forgot a patient", folder, tables=len(found.emptied))
    if as_json:
        print_json(found.model_dump())
        return
    verb = "would be" if dry_run else "were"
    for what, paths in (
        (f"patient tables that {verb} emptied", found.emptied),
        (f"texts from which the identifier {verb} removed", found.struck_out),
        (f"caches that {verb} removed", found.caches),
        (f"tool outputs that {verb} removed", found.outputs),
        ("left for you to remove", found.left),
        ("cannot be removed", found.cannot),
    ):
        console.print(f"{what}: {len(paths)}", style="bold")
        for path in paths:
            print_line(f"  {path}")


@app.command()
def prune(
    out: Outputs = Path("sage-output"),
    days: Annotated[
        float | None, typer.Option(min=0.0, help="Remove outputs older than this many days.")
    ] = None,
    mb: Annotated[
        float | None,
        typer.Option(min=0.0, help="Remove the oldest outputs beyond this many megabytes."),
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove old outputs from tool calls, except those that a run or a cohort refers to.

    Runs are never removed, since the ledger refers to them. Outputs from the last hour are
    kept.

    Example: sage hospital prune --out sage-output --days 30 --dry-run
    """
    from mcp_servers.servers.prune import Bounds
    from mcp_servers.servers.prune import prune as remove_old
    from sage.cli.console import out as console
    from sage.cli.console import print_json
    from sage.settings import load

    bounds = Bounds(days, mb)
    if not bounds:
        raise InputError("set a limit: --days 30, --mb 10000, or both")
    settings = load()
    needed = set(referenced(settings))
    found = remove_old(out, bounds, needed, dry=dry_run)
    result: dict[str, Any] = {
        "removed": [str(path) for path in found.removed],
        "bytes": found.freed,
        "kept": found.kept,
        "kept_bytes": found.kept_bytes,
        "referenced": found.referenced,
    }
    if as_json:
        print_json(result)
        return
    verb = "would remove" if dry_run else "removed"
    console.print(
        f"{verb} {len(found.removed)} call folders, {found.freed / 1000000.0:,.1f} MB; "
        f"{found.kept} remain, {found.kept_bytes / 1000000.0:,.1f} MB"
        + (f", {found.referenced} of them needed by a run or cohort" if found.referenced
           else "")
    )  # fmt: skip


def referenced(settings: Settings) -> Iterator[Path]:
    """List files and folders that the manifests of runs and the local cohorts refer to."""
    import tomllib

    from sage.run.campaign.rounds import runs_and_rounds

    for run in runs_and_rounds(settings.runs_dir):
        manifest = run.manifest()
        spec = manifest.spec
        named = [spec.cohort, spec.cohort_root, manifest.kg, spec.corpus, *spec.features]
        yield from (Path(name) for name in named if name and "/" in str(name))
    for path in [*Path().glob("cohort.toml"), *Path().glob("*/cohort.toml"),
                 *Path().glob("cohorts/*/cohort.toml")]:  # fmt: skip
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} cannot be read ({error}) but may refer to outputs; correct it first"
            ) from None
        yield path
        yield from (path.parent / text for text in _texts(content) if "/" in text or "." in text)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


@app.command()
def check(as_json: AsJson = False) -> None:
    """Check a multi-user server: database, queue, disk, log, and records.

    The exit code is 1 if any check fails.

    Example: sage hospital check
    """
    from sage.cli.doctor import diagnose, print_checks
    from sage.settings import load
    from sage_hospital.deployment import check_deployment

    settings = load()
    print_checks([*diagnose(settings), *check_deployment(settings)], as_json=as_json)


@app.command()
def worker(
    most: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many runs; default: no limit.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Stop when no run is queued or running.")
    ] = False,
    lease: Annotated[
        float,
        typer.Option(
            min=2.0, help="Seconds after which another worker takes over a dead worker's run."
        ),
    ] = 60.0,
    grace: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds to finish the current step after SIGTERM."),
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Work on the runs queued by `sage run --queue`, in order, until Ctrl-C or SIGTERM.

    The queue is in PostgreSQL (`checkpoint_url`) or, for workers on a single machine, in a
    file next to the runs. On SIGTERM, a worker finishes its step and requeues the run. If a
    worker is killed, another worker resumes its run, and no finished step runs again.

    Example: sage hospital worker --drain
    """
    from sage.cli.console import print_json, print_line
    from sage.core.extras import require_extra
    from sage.settings import load
    from sage_hospital.runs import open_runs
    from sage_hospital.worker import Worker

    require_extra("literature", "working on runs")
    with open_runs(load(), new=True) as runs:
        assert runs is not None

        def report(line: str) -> None:
            if not as_json:
                print_line(line)

        mine = Worker(runs, report, lease_s=lease, grace_s=grace)
        report(f"worker {mine.name}, queue {runs.database.where}")
        with mine.stopping_on_signals():
            done = mine.work(most=most, drain=drain)
        if as_json:
            print_json({"worker": mine.name, "runs": done})


@app.command()
def queue(
    limit: int = typer.Option(20, min=1, help="Maximum number of runs to list, newest first."),
    as_json: AsJson = False,
) -> None:
    """List queued runs on all machines, with their owners and workers.

    Example: sage hospital queue
    """
    from sage.cli.console import out, print_json, print_line
    from sage.settings import load
    from sage_hospital.runs import open_runs

    with open_runs(load()) as table:
        known = table.newest(limit) if table is not None else []
    if as_json:
        print_json([run.model_dump(mode="json", exclude={"answer"}) for run in known])
        return
    if not known:
        out.print("no runs in the queue; add one with `sage run --queue`")
    for run in known:
        # Names of rounds are unique only within their campaign.
        of = f" of {Path(run.folder).parent.name}" if run.name.startswith("round-") else ""
        out.print(f"[cyan]{run.name}[/]{of}  {run.state}", soft_wrap=True)
        print_line(f"    {run.prompt[:200]}")
        at = f", assigned to {run.worker}" if run.state == "running" else ""
        why = f"; {run.problem}" if run.problem else ""
        print_line(f"    requested by {run.owner}{at}{why}; in {run.folder}", style="dim")
