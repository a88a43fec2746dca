"""`sage bench claims`: statements of reports, drawn for readers and scored."""

from __future__ import annotations

from pathlib import Path

import typer

from sage.cli.options import AsJson


def claims(
    runs: list[Path] = typer.Argument(..., help="Folders of runs that ended in a report."),
    out: Path = typer.Option(..., help="The sample, JSON lines; a file that is there stays."),
    statements: int = typer.Option(100, min=10, help="How many to draw."),
    seed: int = typer.Option(0, min=0, help="Of the draw."),
) -> None:
    """Draw statements of reports for two readers, with what they need to check them.

    Four in ten are of data, three of literature, three interpretive; docs/claim-audit.md says what
    the readers do, and `sage bench claims-score` what they found.

    Example: sage bench claims runs/RUN --statements 10 --out sample.jsonl
    """
    from benchmarks.adapters.claim_audit import draw
    from benchmarks.adapters.claim_audit import statements as of_run
    from sage.core.errors import InputError
    from sage.core.files import write_text

    if out.exists():
        raise InputError(f"{out}: exists, and may have been read; name another file with --out")
    pool = [one for run in runs for one in of_run(run)]
    drawn = draw(pool, statements, seed)
    write_text(out, "".join(f"{one.model_dump_json()}\n" for one in drawn))
    for kind in dict.fromkeys(one.kind for one in sorted(drawn, key=lambda one: one.kind)):
        count = sum(one.kind == kind for one in drawn)
        typer.echo(f"{kind}: {count} of {sum(one.kind == kind for one in pool)}")
    typer.echo(f"{out}: {len(drawn)} statements of {len({one.report for one in drawn})} reports")


def claims_score(
    sample: Path = typer.Argument(..., help="What `sage bench claims` drew."),
    first: Path = typer.Argument(..., help="First reading: JSON lines or CSV; id, verdict, reason"),
    second: Path = typer.Argument(..., help="Second reading, made without the first."),
    adjudicated: Path | None = typer.Option(None, help="Decisions where the two differ."),
    out: Path | None = typer.Option(None, help="Write the page of results there."),
    as_json: AsJson = False,
) -> None:
    """Score two readings of drawn statements: share supported, kappa, disagreements.

    Example: sage bench claims-score sample.jsonl first.jsonl second.csv
    """
    from benchmarks.adapters.claim_audit import page, read_readings, read_sample, score
    from sage.cli.console import print_json
    from sage.core.errors import InputError
    from sage.core.files import write_text

    read = [path.resolve() for path in (sample, first, second, adjudicated) if path is not None]
    if out is not None and out.resolve() in read:
        raise InputError(f"--out {out}: is read here; name another file for the page")
    drawn = read_sample(sample)
    decided = read_readings(adjudicated, drawn) if adjudicated else None
    scored = score(drawn, read_readings(first, drawn), read_readings(second, drawn), decided)
    if out is not None:
        write_text(out, page(scored))
    if as_json:
        print_json(scored.model_dump())
    else:
        typer.echo(page(scored), nl=False)
