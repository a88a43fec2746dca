"""`sage validate ledger`: claims that were registered and tested, and on which patients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sage.cli.options import AsJson, CohortRoot
from sage.core.errors import InputError
from sage.core.printable import count_noun

if TYPE_CHECKING:
    from validation.ledger.store import Store

app = typer.Typer(
    add_completion=False,
    name="ledger",
    no_args_is_help=True,
    help="Show, verify and exchange the ledger of contracts, tests and screens.",
)


def _open_ledger(*, new: bool = False) -> Store:
    """Open the configured ledger.

    Raises
    ------
    InputError
        If the ledger does not exist and `new` is not set.
    """
    from sage.settings import load
    from validation.ledger.store import open_store

    place = load().ledger.place
    if not new and "://" not in place and not Path(place).expanduser().exists():
        raise InputError(
            f"no ledger at {place}: either no contract has been registered yet, or SAGE_LEDGER or "
            "[ledger] in sage.toml points elsewhere"
        )
    return open_store(place)


@app.command()
def show(
    cohort: Annotated[
        str | None, typer.Option(help="Show only claims on this cohort's patients.")
    ] = None,
    cohort_root: CohortRoot = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows, latest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show all registrations, tests and screens, for all patients or for those in a cohort.

    With --cohort, patients are matched by their records, regardless of file, name or
    identifiers, and each claim is shown with its p-value adjusted over all claims on them.

    Example: sage validate ledger show --cohort cohorts/tcga-blca
    """
    from sage.cli.cohort import load_named
    from sage.cli.console import out, print_json, print_line
    from validation.ledger.ledger import Ledger
    from validation.ledger.lines import Line, Registration, Screened

    store = _open_ledger()
    known = Ledger(None, store)
    if cohort is not None:
        known.follow(load_named(cohort, cohort_root))
    else:
        known.follow_all()
    q = {adjusted.contract: adjusted.q for adjusted in known.adjust()} if cohort is not None else {}
    p = {claim.contract: claim for claim in known.claims()}

    def row(line: Line) -> dict[str, Any] | None:
        said = line.said
        if isinstance(said, Screened):
            what = f"{said.features} features"
            return {"at": line.at, "what": "screen", "cohort": said.cohort, "name": what,
                    "endpoint": said.endpoint, "status": "", "p": None, "q": None}  # fmt: skip
        if not isinstance(said, Registration):
            return None
        claim = p.get(said.registered)
        return {
            "at": line.at, "what": "contract", "cohort": said.cohort, "name": said.hypothesis,
            "contract": said.registered, "endpoint": said.endpoint,
            "exposures": list(said.exposures),
            "status": "registered" if claim is None else claim.status,
            "p": None if claim is None else claim.p, "q": q.get(said.registered),
        }  # fmt: skip

    rows = [found for line in known.lines if (found := row(line)) is not None]
    head = store.head()
    summary = {
        "store": store.where,
        "id": store.id,
        "rows": 0 if head is None else head.seq,
        "head": None if head is None else head.chain,
        "state": known.state,
        "contracts": sum(row["what"] == "contract" for row in rows),
        "screens": sum(row["what"] == "screen" for row in rows),
    }
    if as_json:
        print_json({**summary, "latest": rows[-limit:]})
        return
    from rich.table import Table

    print_line(
        f"{summary['store']}: {summary['state']}; contracts: {summary['contracts']}, screens: "
        f"{summary['screens']}, rows: {summary['rows']}"
    )
    if not rows:
        return
    table = Table("registered", "cohort", "what", "endpoint", "claim", "p", "q")
    for item in rows[-limit:]:
        numbers = ["" if item[key] is None else f"{item[key]:.2g}" for key in ("p", "q")]
        cells = [item["at"][:16], item["cohort"], item["name"], item["endpoint"], item["status"]]
        table.add_row(*(cell.replace("[", r"\[") for cell in cells), *numbers)
    out.print(table)
    if cohort is None:
        out.print(
            "p-values are adjusted over the claims on the same patients; set --cohort", style="dim"
        )


@app.command()
def verify(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER...", help="Result or run folders to compare with the ledger."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every row's hash chain, and that ledgers in folders agree with the store.

    The exit code is 1 if anything was edited, removed or replaced.

    Example: sage validate ledger verify sage-validation
    """
    from sage.cli.console import out, print_json
    from validation.ledger.ledger import Ledger
    from validation.ledger.lines import FILE

    store = _open_ledger()
    problems = store.problems()
    state = Ledger(None, store).state
    if state in ("emptied", "missing"):
        problems.append(f"{store.where}: {SAYS[state]}")
    for folder in folders or ():
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder")
        try:
            known = Ledger(folder / FILE, store)
        except InputError as error:
            problems.append(str(error))
            continue
        if known.state not in ("intact", "edited"):
            problems.append(f"{folder / FILE}: {SAYS[known.state]}")
    head = store.head()
    if as_json:
        print_json({"store": store.where, "rows": head.seq if head else 0, "problems": problems})
    else:
        for problem in problems:
            out.print(f"[red]broken[/] {problem}", soft_wrap=True)
        if not problems:
            rows = count_noun(head.seq if head else 0, "row")
            out.print(f"{store.where}: {rows}, intact", soft_wrap=True)
    if problems:
        raise typer.Exit(1)


SAYS = {
    "emptied": "rows are missing; restore them (`sage validate ledger merge`)",
    "missing": "its rows are in another store; merge it here (`sage validate ledger merge`)",
    "edited": "rows were edited",
    "unverified": "no store to compare it with",
}


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="File to create.")],
) -> None:
    """Write the whole ledger to a file, as a backup or for `sage validate ledger merge` elsewhere.

    It contains hashes and ranks of patients' records but no identifiers; anyone with the
    records can recognize them.

    Example: sage validate ledger export ledger-2026.jsonl
    """
    from sage.cli.console import print_line
    from sage.core.files import write_text
    from sage.core.hooks import EXPORTED, log_command
    from sage.settings import load

    if file.exists():
        raise InputError(f"{file} already exists; choose another file")
    lines = list(_open_ledger().export_lines())
    log_command(load(), EXPORTED, file, command="ledger export")
    write_text(file, "".join(f"{line}\n" for line in lines))
    print_line(f"{count_noun(len(lines), 'row')} written to {file}")


@app.command()
def merge(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Exported files, ledger.sqlite files, or URLs."),
    ],
    as_json: AsJson = False,
) -> None:
    """Merge rows from another ledger, such as a colleague's, a backup, or another machine's.

    A source with a broken chain is rejected as a whole. Known rows are not added twice.

    Example: sage validate ledger merge colleague.jsonl
    """
    from sage.cli.console import print_json, print_line
    from validation.ledger.store import open_store, read_lines

    found = {}
    for source in sources:  # check all sources before creating a ledger
        path = Path(source)
        if "://" not in source and not path.is_file():
            raise InputError(f"{source}: file not found")
        if path.suffix == ".jsonl":
            lines = path.read_text(encoding="utf-8").splitlines()
        else:
            lines = list(open_store(source).export_lines())
        found[path.name] = read_lines(lines, path.name)
    store = _open_ledger(new=True)
    taken = {name: store.take(rows) for name, rows in found.items()}
    if as_json:
        print_json({"store": store.where, "taken": taken})
        return
    for name, count in taken.items():
        print_line(f"{count_noun(count, 'row')} merged from {name}")
