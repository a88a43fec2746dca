"""`sage gate`: which measurements are worth a test, before any outcome is read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli.options import AsJson
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.measures.language import Measurement
    from mcp_servers.measures.maps import MapsOnDisk
    from validation.cohort.cohort import Cohort

app = typer.Typer(name="gate", help="Judge measurements before any outcome.")


@app.command()
def gate(
    cohort: Annotated[
        str,
        typer.Argument(
            metavar="COHORT",
            help="The patients among whom hypotheses are looked for: a cohort folder or name, or -"
            " for all that have maps.",
        ),
    ],
    maps: Annotated[Path, typer.Option(help="Folder of maps (`sage maps import`).")],
    define: Annotated[
        Path | None, typer.Option(help="File of measurements, one formula a line.")
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help="standard or full: made by rule from what the maps hold.")
    ] = None,
    shifted: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WHAT=DIR",
            help="Maps of the same slides made again: resolution, stain or scanner; repeat.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("gate"),
    seed: Annotated[int, typer.Option(help="Seed of the disturbances.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Judge measurements by stability, redundancy, gaps and confounding. No outcome is read.

    Detections are moved and lost, half of the tissue is taken away, and what a measurement is worth
    then is said by intraclass correlations; of those that go together one stays. Writes gate.json,
    gate.txt, gate.svg and passed.txt, the formulas that passed, for `sage measure --define`.

    Example: sage gate my-cohort --maps maps --suite standard --out gate
    """
    from mcp_servers.measures.gate import GateLimits, write_gate
    from mcp_servers.measures.gate import gate as judge
    from mcp_servers.measures.maps import MapsOnDisk
    from sage.cli.cohort import load_named
    from sage.console import err, print_json
    from sage.console import out as console
    from sage.core.extras import need
    from sage.core.files import write_text

    need("slides", "the gate")
    held = None if cohort == "-" else load_named(cohort)
    slides = MapsOnDisk(maps, None if held is None else set(held.patients))
    measurements = _measurements(define, suite, slides)
    again = dict(_shifted(word) for word in shifted or ())
    with err.status("gate") as status:
        report, measured = judge(
            measurements,
            slides,
            shifted={name: MapsOnDisk(folder) for name, folder in again.items()},
            known={} if held is None else _known(held),
            limits=GateLimits(),
            seed=seed,
            progress=lambda step: status.update(f"gate: {step}"),
        )
    out.mkdir(parents=True, exist_ok=True)
    write_gate(report, out)
    lines = [gated.formula for gated in report.measurements if gated.passed]
    sizes = {"pooled(area(tissue))": measured.area_mm2, "pooled(count(cells))": measured.cells}
    known = [formula for formula, sums in sizes.items() if any(size == size for size in sums)]
    write_text(
        out / "passed.txt",
        "\n".join(dict.fromkeys([*lines, "# what may hide behind a measurement", *known])) + "\n",
    )
    if as_json:
        print_json(report)
        return
    console.print(report.text().split("\n\n")[0], soft_wrap=True, markup=False)
    for gated in report.measurements:
        if gated.passed:
            console.print(f"  {gated.formula}", soft_wrap=True, markup=False)
    console.print(f"report: {out / 'gate.txt'}", soft_wrap=True, markup=False)


def _measurements(define: Path | None, suite: str | None, slides: MapsOnDisk) -> list[Measurement]:
    from mcp_servers.measures.definitions import read_definitions
    from mcp_servers.measures.enumeration import suite_of

    if (define is None) == (suite is None):
        raise InputError("give --define FILE or --suite standard")
    if define is not None:
        return read_definitions(define)
    if suite not in ("standard", "full"):
        raise InputError(f"--suite {suite}: it is standard or full")
    return suite_of(slides.held, "full" if suite == "full" else "standard")


def _shifted(word: str) -> tuple[str, Path]:
    from mcp_servers.measures.gate import SHIFTS

    name, equals, folder = word.partition("=")
    if not equals or name not in SHIFTS:
        raise InputError(f"--shifted {word}: write one of {', '.join(SHIFTS)}, then =DIR")
    return name, Path(folder)


def _known(cohort: Cohort) -> dict[str, dict[str, float]]:
    """What the cohort measures on tissue already, by patient; never a column of an outcome."""
    outcomes = frozenset().union(*(cohort.outcome_columns(name) for name in cohort.spec.endpoints))
    found = {}
    for variable in cohort.dictionary().variables:
        tissue = variable.kind == "continuous" and variable.modality in ("imaging", "immune")
        if not tissue or cohort.columns_read(variable.key) & outcomes:
            continue
        column = cohort.column(variable.key).dropna()
        found[variable.key] = {str(patient): float(value) for patient, value in column.items()}
    return found
