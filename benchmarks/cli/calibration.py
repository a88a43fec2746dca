"""`sage bench calibration`: claims about real patients that cannot be true."""

from __future__ import annotations

from pathlib import Path

import typer

from sage.cli.options import AsJson


def calibration(
    cohorts: list[str] = typer.Argument(
        ..., help="Built-in cohorts, folders or cohort.toml files; NAME=FOLDER where files lie."
    ),
    claims: int = typer.Option(400, min=1, help="Of each cohort."),
    seed: int = typer.Option(0, min=0, help="Of the draws."),
    jobs: int = typer.Option(1, min=1, help="How many at once."),
    out: Path | None = typer.Option(
        None, help="JSON lines, one per claim; those that are there are not run again."
    ),
    as_json: AsJson = False,
) -> None:
    """Deal a variable's values anew among a cohort's patients, and count what is then supported.

    Variable, endpoint, direction and cut are drawn; the claim goes the whole path of
    `sage validate`, each with a ledger of its own. Nothing dealt anew tells an outcome: every claim
    that is supported is false. One to four seconds each.

    Example: sage bench calibration gbsg2 --claims 2
    """
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    from benchmarks.adapters.permuted import Claim, judge, opened, summarize
    from sage.cli.console import counting, print_json
    from sage.cli.console import out as console
    from sage.core.files import append_line

    given = [name.partition("=")[::2] for name in cohorts]
    ids = {opened(name, root).id: (name, root) for name, root in given}
    known: dict[tuple[str, int], Claim] = {}
    if out is not None and out.exists():
        for text in out.read_text(encoding="utf-8").splitlines():
            claim = Claim.model_validate_json(text)
            known[claim.cohort, claim.number] = claim
    wanted = [(name, number) for name in ids for number in range(claims)]
    left = [key for key in wanted if key not in known]
    with (
        counting("claims", quiet=as_json) as advance,
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
    ):
        work = [pool.submit(judge, *ids[name], number, seed) for name, number in left]
        try:
            for done in as_completed(work):
                claim = done.result()
                known[claim.cohort, claim.number] = claim
                if out is not None:
                    append_line(out, claim.model_dump_json())
                advance("claims", len(known), len(wanted))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    rows = summarize([known[key] for key in wanted])
    if as_json:
        print_json([row.model_dump() for row in rows])
        return
    for row in rows:
        console.print(
            f"{row.cohort}: {row.supported} of {row.claims} supported, {row.rate:.1%}"
            f" ({row.lower:.1%} to {row.upper:.1%}); p below 0.05 alone would claim"
            f" {row.naive:.1%}; {row.refused} refused",
            highlight=False,
            soft_wrap=True,
        )
