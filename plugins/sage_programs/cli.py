"""`sage programs`: measurements as programs, tools from functions, and variables from tools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli.gate import Candidates, GatedCohort, GateFolder, GateSeed, MapsFolder, Shifted
from sage.cli.measure import Known
from sage.cli.options import AsJson, CohortArgument, CohortRoot, Mpp, Pattern, Workers
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.measures.language import Measurement
    from mcp_servers.measures.maps import MapsOnDisk
    from mcp_servers.workers.cohort import Item, Outcome
    from sage_programs.contract import Program

CHECKED_ON = 24
"""Number of slides, spread over the cohort, on which a program's unit is checked first."""

app = typer.Typer(add_completion=False, no_args_is_help=True)
Define = Annotated[Path, typer.Option("--define", metavar="FILE.py", help="File with the program.")]


@app.callback()
def _group() -> None:
    """Measure with programs, promote functions to tools, and extract variables with tools."""


@app.command()
def gate(
    cohort: GatedCohort,
    maps: MapsFolder,
    define: Define,
    shifted: Shifted = None,
    out: GateFolder = Path("gate"),
    seed: GateSeed = 0,
    as_json: AsJson = False,
) -> None:
    """Judge a program as `sage validate gate` judges measurements, without reading outcomes.

    The program is checked statically, then run in the sandbox, first on enlarged slides to
    check its unit, then like any measurement.

    Example: sage programs gate my-cohort --maps maps --define reach.py --out gate-reach
    """
    from sage.cli.gate import judge_cohort

    judge_cohort(
        cohort, maps, lambda slides: _check(define, slides, seed),
        shifted=shifted, out=out, seed=seed, as_json=as_json,
    )  # fmt: skip


def _check(path: Path, slides: MapsOnDisk, seed: int) -> Candidates:
    """Check a program, and return it as a measurement with a note about the unit check."""
    from sage_programs.checks import check_values
    from sage_programs.contract import read_program
    from sage_programs.running import default_sandbox, with_values

    program = read_program(path)
    box = default_sandbox()
    looked_at = slides.spread(CHECKED_ON, seed)
    if against := check_values(program, looked_at, box):
        raise InputError(f"{path}: {'; '.join(against)}")
    checked = (
        f"its unit was checked on {len(looked_at)} of {len(slides)} slides, spread over the "
        "cohort; a wrong constant factor (µm² given as mm²) is not detected, so compare a value "
        "with the slide"
    )
    return Candidates([program.measurement], partial(with_values, [program], box=box), checked)


@app.command()
def approve(
    program: Annotated[Path, typer.Argument(metavar="FILE.py", help="Program that you have read.")],
    by: Annotated[str, typer.Option(metavar="NAME", help="Your name.")],
    gate: Annotated[Path, typer.Option(help="Folder with the `sage programs gate` report.")] = Path(
        "gate"
    ),
) -> None:
    """Record your approval of a program, after reading it and its gate.txt.

    Example: sage programs approve reach.py --gate gate-reach --by "A. Reader"
    """
    from sage.cli.console import print_line
    from sage_programs.review import approve as record

    print_line(f"approved: {record(program, gate / 'gate.json', by)}")


@app.command()
def measure(
    cohort: Annotated[
        str, typer.Argument(metavar="COHORT", help="Cohort folder or name, or - for none.")
    ],
    define: Define,
    slides: Annotated[
        Path | None,
        typer.Option(help="Slide folder, or a single slide, to compute maps from."),
    ] = None,
    maps: Annotated[
        Path | None, typer.Option(help="Folder of existing maps (`sage exchange maps import`).")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for states, maps and tables.")] = Path(
        "measured"
    ),
    pattern: Pattern = None,
    mpp: Mpp = None,
    known_at: Annotated[
        Known, typer.Option(help="Use baseline if the slides were taken before follow-up began.")
    ] = "baseline",
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Measure a cohort's slides or maps with an approved program, like `sage slides measure`.

    Example: sage programs measure my-cohort --maps maps --define approved.py --out by-program
    """
    from sage.cli.measure import measure_cohort, report_measured
    from sage_programs.review import approved_program

    if (slides is None) == (maps is None):
        raise InputError("--slides or --maps is required")
    found, _, conflicts = measure_cohort(
        cohort, slides, maps, out, program=Approved(approved_program(define)), pattern=pattern,
        mpp=mpp, known_at=known_at, workers=workers, quiet=as_json,
    )  # fmt: skip
    report_measured(found, conflicts, {}, as_json=as_json)


@app.command()
def promote(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help='Run ID, "last", or any folder with programs')
    ],
    function: Annotated[
        str, typer.Argument(metavar="FUNCTION", help="Function defined by a program in the run")
    ],
    into: Annotated[Path, typer.Option(help="Folder of your tools, for use with --tools")],
    as_json: AsJson = False,
) -> None:
    """Turn a function from a reviewed analysis into a tool.

    Read the function first: tools run with your own rights.

    Example: sage programs promote last joint_risk --into my-tools
    """
    from sage.cli.console import print_json, print_line
    from sage.run.folder import find_run
    from sage.settings import load
    from sage_programs.promotion import promote as promote_function

    folder = Path(run) if Path(run).is_dir() else find_run(run, load().runs_dir).root
    written = promote_function(folder, function, into)
    if as_json:
        print_json({"file": str(written)})
        return
    print_line(f"{written}\nto use it: sage tools list --tools {into}")


@app.command("extract")
def extract_features(
    cohort: CohortArgument,
    variables: Annotated[
        list[str], typer.Argument(help="Variables to compute, e.g. imaging:tls_density.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to create for the tables.")],
    cohort_root: CohortRoot = None,
    as_json: AsJson = False,
) -> None:
    """Compute imaging variables that a cohort lacks by running registered tools on its slides.

    Prints which variables exist, which a tool can compute, and which are not available. The
    tables can be used by `sage validate --features` and by runs (`features` in `[run]` of
    sage.toml).

    Example: sage programs extract demo imaging:tls_area --out features
    """
    from sage.cli.cohort import load_named
    from sage.cli.console import counting, print_json
    from sage.cli.console import out as console
    from sage_programs.extract import extract

    with counting("slides", quiet=as_json) as progress:
        result = extract(load_named(cohort, cohort_root), tuple(variables), out, progress)
    if as_json:
        print_json(result)
        return
    for title, names in (("in the cohort", result.found), ("not available", result.missing)):
        if names:
            console.print(f"{title}: {', '.join(names)}")
    for row in result.provenance:
        console.print(
            f"{row['variable']}: {row['tool']} {row['version']} on {row['slides']} slides of"
            f" {row['patients']} patients; {row['failed']} failed"
        )
    for path in result.features:
        console.print(path, soft_wrap=True)


@dataclass(frozen=True)
class Approved:
    """An approved program in the form required by `measure_cohort`."""

    program: Program

    @property
    def measurement(self) -> Measurement:
        """The program as a measurement in the measurement language."""
        return self.program.measurement

    def compute(
        self, items: list[Item], out: Path, on_outcome: Callable[[Outcome, int, int], None]
    ) -> list[Outcome]:
        """Compute each slide's value in the sandbox."""
        from sage_programs.running import default_sandbox, measure_items

        return measure_items(self.program, items, out, default_sandbox(), on_outcome)
