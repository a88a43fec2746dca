"""`sage bench biodsa`: statements of papers, judged on their tables or called non-verifiable."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from sage.cli.options import AsJson


def biodsa(
    benchmark: Path = typer.Argument(..., help="BioDSA-1K's parquet file, or its folder."),
    study: list[str] | None = typer.Option(
        None,
        help="ID=COHORT: a cBioPortal study's tables, as `sage cohort init` makes a cohort of its "
        "folder; repeatable. As downloaded it has no mutations. Without one only feasibility is "
        "scored.",
    ),
    limit: int | None = typer.Option(None, min=1, help="With --study: only the first statements."),
    times: int = typer.Option(1000, min=20, help="Resamples of papers, for the intervals."),
    seed: int = typer.Option(0, min=0, help="Of the resamples."),
    as_json: AsJson = False,
) -> None:
    """Judge BioDSA-1K's statements: true, false or non-verifiable, and feasibility alone.

    The papers' own evidence is not read: it is empty exactly where a statement is non-verifiable.
    Intervals of feasibility draw papers.

    Example: sage bench biodsa biodsa_1k.parquet --study blca_tcga=blca_tcga
    """
    from benchmarks.adapters import biodsa as bench
    from sage.cli.console import counting, print_json
    from sage.cli.console import out as console
    from sage.core.errors import InputError
    from sage.core.extras import need
    from sage.settings import load

    need("literature", "the model of words beside the rules")
    studies = dict(pair.split("=", 1) for pair in study or () if "=" in pair)
    if len(studies) != len(study or ()):
        raise InputError("--study: write ID=COHORT, each study once")
    items = bench.read_items(benchmark)
    known = {item.study for item in items}
    if strange := sorted(set(studies) - known):
        raise InputError(f"--study {strange[0]}: no row is of this study")
    areas = bench.score_feasibility(items, times=times, seed=seed)
    wording = bench.score_wording(items, times=times, seed=seed)
    judged: list[bench.Judged] = []
    if studies:
        mine = [item for item in items if item.study in studies][:limit]
        with counting("statements", quiet=as_json) as advance:
            judged = bench.judge_all(
                mine, studies, load(), progress=lambda d, t: advance("statements", d, t)
            )
    scored = bench.score_verdicts(judged) if judged else None
    if as_json:
        print_json(
            {
                "cpu_seconds": round(sum(os.times()[:4]), 1),
                "statements": len(items),
                "labels": {
                    label: sum(item.label == label for item in items)
                    for label in ("true", "false", "non-verifiable")
                },
                "studies": len(known),
                "studies_given": sorted(studies),
                "feasibility": [area.model_dump() for area in areas],
                "wording": [area.model_dump() for area in wording],
                "verdicts": scored and scored.model_dump(),
                "judged": [item.model_dump() for item in judged],
            }
        )
        return
    console.print(f"{len(items)} statements of {len(known)} studies, {len(studies)} given")
    for title, rows in (("verifiable or not", areas), ("true or false, no data", wording)):
        for row in rows:
            console.print(
                f"{title}: AUC {row.auc:.3f} ({row.lower:.3f} to {row.upper:.3f})  {row.method}",
                highlight=False,
            )
    if scored is None:
        console.print("verdicts: none, no study's tables are given (--study)")
        return
    for part in (scored.accuracy, scored.type_one, scored.type_two, scored.abstained):
        console.print(
            f"{part.name}: {part.hits} of {part.runs}, {part.rate:.1%}"
            f" ({part.lower:.1%} to {part.upper:.1%})",
            highlight=False,
        )
    console.print(f"most frequent label for all: {scored.constant:.1%}", highlight=False)
