"""`sage screen`: rank a cohort's features by their association with an endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sage.cli.options import AsJson, CohortOption, CohortRoot, Features


def screen(
    cohort: CohortOption,
    endpoint: Annotated[str, typer.Option(help="Survival endpoint of the cohort.")] = "OS",
    cohort_root: CohortRoot = None,
    features: Features = None,
    covariates: Annotated[
        list[str] | None, typer.Option("--covariate", help="Covariate to adjust for; repeatable.")
    ] = None,
    top: Annotated[int, typer.Option(min=1)] = 20,
    detected: Annotated[
        float,
        typer.Option(min=0, max=1, help="Exclude genes detected in a smaller share of patients."),
    ] = 0.2,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the table and the volcano plot.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank all genes and continuous features by their Cox association with an endpoint.

    A screen finds candidates; it supports no claim. It is recorded in the ledger, and from
    then on any claim about the screened features in these patients is exploratory. Test a
    candidate in other patients.

    Example: sage screen --cohort cohorts/tcga-blca --endpoint OS --covariate clinical:age
    """
    from sage.cli.cohort import load_named
    from sage.cli.console import out as console
    from sage.cli.console import print_json, print_line, working
    from sage.run.wiring import open_ledger
    from sage.settings import load
    from sage_screening.cohort import screen_cohort

    with working(f"reading {cohort}") as status:
        data = load_named(cohort, cohort_root, features)
        status.update(f"screening {data.id} for {endpoint}")
        ledger = open_ledger(None if out is None else out / "ledger.jsonl", load())
        found = screen_cohort(
            data, endpoint, tuple(covariates or ()), detected=detected, out=out, ledger=ledger
        )
    rows: list[dict[str, Any]] = found.rows(top)
    if as_json:
        print_json({**found.summary(), "top": rows})
        return
    summary = found.summary()
    console.print(
        f"{summary['features']} features, {summary['n']} patients, {summary['events']} events; "
        f"{summary['significant']} with q below 0.05; {summary['undetected']} genes excluded; "
        f"{summary['seconds']:.1f} s",
        soft_wrap=True,
    )
    left_out = ", ".join(f"{count} without {what}" for what, count in summary["left_out"].items())
    if left_out:
        print_line(f"left out: {left_out}")
    for warning in summary["warnings"]:
        console.print(f"[yellow]warning[/] {warning}", soft_wrap=True)
    for row in rows:
        if row["status"] != "ok":
            print_line(f"  {row['feature']:<34} not estimated: {row['status']}")
            continue
        print_line(
            f"  {row['feature']:<34} HR {row['hr']:.2f} per SD (95% CI {row['lower']:.2f} to "
            f"{row['upper']:.2f})  p {row['p']:.2g}  q {row['q']:.2g}"
        )
    console.print(
        "ranked by the larger of the p-values from the Wald test (shown) and the score test",
        style="dim",
    )
    if out is not None:
        console.print(f"table and volcano plot in {out}")
