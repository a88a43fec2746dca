"""`sage bench page`: the page of results."""

from __future__ import annotations

from pathlib import Path

import typer


def page(
    results: Path = typer.Argument(
        ..., help="Folder of what --json of the benchmarks wrote: hypobench.json, mtb.json …"
    ),
    out: Path | None = typer.Option(None, help="Write it there instead of printing it."),
) -> None:
    """Write one page of results: floor, best published, SAGE's own, and what each cost.

    Example: sage bench page benchmarks/results/page
    """
    from benchmarks.adapters.page import write_page
    from sage.core.files import write_text

    text = write_page(results)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(f"{out}: written")
