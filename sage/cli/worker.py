"""`sage worker`: work on runs that others queued."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from sage.cli.options import AsJson


def worker(
    pool: Annotated[Literal["runs"], typer.Option(help="Which queue to work on.")] = "runs",
    most: Annotated[
        int | None, typer.Option(min=1, help="End after so many runs; default: go on.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when no run waits or is worked on.")
    ] = False,
    lease: Annotated[
        float,
        typer.Option(min=2.0, help="Seconds after which others take over what a dead worker held."),
    ] = 60.0,
    grace: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds for the step under way when told to stop (SIGTERM)."),
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Work on the runs that `sage run --queue` put in, one at a time, until Ctrl-C or SIGTERM.

    Runs lie in PostgreSQL (`checkpoint_url`) or, for workers of one machine, in a file beside the
    runs. Told to stop, a worker ends the step under way and puts the run back; a run whose worker
    was killed goes to another, and no finished step runs again.

    Example: sage worker --drain
    """
    from sage.cli.console import out, print_json
    from sage.control.runs import open_runs
    from sage.control.worker import Worker
    from sage.core.extras import need
    from sage.settings import load

    need("literature", "working on runs")
    with open_runs(load(), new=True) as runs:
        assert runs is not None

        def tell(line: str) -> None:
            if not as_json:
                out.print(line, markup=False, soft_wrap=True)

        mine = Worker(runs, tell, lease_s=lease, grace_s=grace)
        tell(f"worker {mine.name} of the runs in {runs.database.where}")
        with mine.stopping_on_signals():
            done = mine.work(most=most, drain=drain)
        if as_json:
            print_json({"worker": mine.name, "runs": done})
