"""`sage prune`: remove old outputs of tools and what started commands printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sage.cli.options import AsJson
from sage.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sage.settings import Settings


def prune(
    out: Annotated[
        Path, typer.Option(help="The folder that `sage mcp serve --out` or `sage tools` wrote.")
    ] = Path("sage-output"),
    days: Annotated[
        float | None, typer.Option(min=0.0, help="Remove what is older than so many days.")
    ] = None,
    mb: Annotated[
        float | None, typer.Option(min=0.0, help="Remove the oldest beyond so many megabytes.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Remove nothing; say what would be removed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old outputs of tool calls; what a run or a cohort refers to stays.

    Runs are never removed: the ledger refers to them. What was written within the last hour stays.

    Example: sage prune --out sage-output --days 30 --dry-run
    """
    from mcp_servers.servers.prune import Bounds
    from mcp_servers.servers.prune import prune as remove_old
    from sage.cli.console import out as console
    from sage.cli.console import print_json
    from sage.settings import load

    bounds = Bounds(days, mb)
    if not bounds:
        raise InputError("say what may go: --days 30, --mb 10000, or both")
    settings = load()
    needed = set(referenced(settings))
    found = remove_old(out, bounds, needed, dry=dry_run)
    said: dict[str, Any] = {
        "removed": [str(path) for path in found.removed],
        "bytes": found.freed,
        "kept": found.kept,
        "kept_bytes": found.kept_bytes,
        "referenced": found.referenced,
    }
    if as_json:
        print_json(said)
        return
    verb = "would remove" if dry_run else "removed"
    console.print(
        f"{verb} {len(found.removed)} call folders, {found.freed / 1e6:,.1f} MB;"
        f" {found.kept} stay, {found.kept_bytes / 1e6:,.1f} MB"
        + (f", {found.referenced} of them because a run or cohort needs them" if found.referenced
           else "")
    )  # fmt: skip


def referenced(settings: Settings) -> Iterator[Path]:
    """Files and folders that the manifests of runs and the cohorts here refer to."""
    import tomllib

    from sage.run.campaign.rounds import runs_and_rounds

    for run in runs_and_rounds(settings.runs_dir):
        manifest = run.manifest()
        named = [manifest.cohort, manifest.cohort_root, manifest.kg, manifest.corpus,
                 *manifest.features]  # fmt: skip
        yield from (Path(name) for name in named if name and "/" in name)
    for path in [*Path().glob("cohort.toml"), *Path().glob("*/cohort.toml"),
                 *Path().glob("cohorts/*/cohort.toml")]:  # fmt: skip
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} cannot be read ({error}), so that what it refers to is not known;"
                " mend it first"
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
