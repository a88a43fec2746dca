"""`sage validate gate`: select measurements worth testing, without reading outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli.options import AsJson
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.measures.language import Measurement
    from mcp_servers.measures.maps import MapsOnDisk, SlideMaps
    from validation.cohort.cohort import Cohort


@dataclass(frozen=True)
class Candidates:
    """Measurements to be judged.

    `coded` adds to the slide maps any other values that the measurements need; `note` applies
    to all of the measurements.
    """

    measurements: list[Measurement]
    coded: Callable[[Iterable[SlideMaps]], Iterable[SlideMaps]] = iter
    note: str = ""


GatedCohort = Annotated[
    str,
    typer.Argument(
        metavar="COHORT",
        help="Patients used for exploration: a cohort folder or name, or - for all patients with "
        "maps.",
    ),
]
MapsFolder = Annotated[
    Path, typer.Option("--maps", help="Folder of maps (`sage exchange maps import`).")
]
Shifted = Annotated[
    list[str] | None,
    typer.Option(
        "--shifted",
        metavar="WHAT=DIR",
        help="Maps of the same slides at another resolution, stain or scanner, as NAME=DIR; "
        "repeatable.",
    ),
]
GateFolder = Annotated[Path, typer.Option("--out", help="Folder for the report.")]
GateSeed = Annotated[int, typer.Option("--seed", help="Random seed for the perturbations.")]


def gate(
    cohort: GatedCohort,
    maps: MapsFolder,
    define: Annotated[
        Path | None, typer.Option(help="File with measurements, one formula per line.")
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Suite of measurements generated from the map contents: standard or full."
        ),
    ] = None,
    shifted: Shifted = None,
    out: GateFolder = Path("gate"),
    seed: GateSeed = 0,
    as_json: AsJson = False,
) -> None:
    """Judge measurements by stability, redundancy, gaps and confounding, without any outcome.

    Detections are moved and dropped, and half of the tissue is removed; intraclass
    correlations measure the agreement. Only a single measurement is kept from each redundant
    set. Writes gate.json, gate.txt and passed.txt, which contains the formulas that passed,
    for use with `sage slides measure --define`.

    Example: sage validate gate my-cohort --maps maps --suite standard --out gate
    """
    judge_cohort(
        cohort, maps, lambda slides: Candidates(_measurements(define, suite, slides)),
        shifted=shifted, out=out, seed=seed, as_json=as_json,
    )  # fmt: skip


def judge_cohort(
    cohort: str,
    maps: Path,
    choose: Callable[[MapsOnDisk], Candidates],
    *,
    shifted: list[str] | None,
    out: Path,
    seed: int,
    as_json: bool,
) -> None:
    """Judge the measurements that `choose` returns for a cohort's maps, and report the results."""
    from mcp_servers.measures.gate import GateLimits, write_gate
    from mcp_servers.measures.gate import gate as judge
    from mcp_servers.measures.maps import MapsOnDisk
    from mcp_servers.measures.places import INSPECTED
    from sage.cli.cohort import load_named
    from sage.cli.console import err, print_json, print_line
    from sage.core.extras import require_extra
    from sage.core.files import write_text

    require_extra("slides", "the gate")
    held = None if cohort == "-" else load_named(cohort)
    slides = MapsOnDisk(maps, None if held is None else set(held.patients))
    candidates = choose(slides)
    again = dict(_parse_shift(word) for word in shifted or ())
    with err.status("gate") as status:
        report, measured = judge(
            candidates.measurements,
            slides,
            shifted={name: MapsOnDisk(folder) for name, folder in again.items()},
            known={} if held is None else _read_tissue_variables(held),
            limits=GateLimits(),
            seed=seed,
            progress=lambda step: status.update(f"gate: {step}"),
            coded=candidates.coded,
        )
    if candidates.note:
        noted = [
            g.model_copy(update={"notes": (*g.notes, candidates.note)}) for g in report.measurements
        ]
        report = report.model_copy(update={"measurements": tuple(noted)})
    out.mkdir(parents=True, exist_ok=True)
    write_gate(report, out)
    lines = [gated.formula for gated in report.measurements if gated.passed]
    sizes = {"pooled(area(tissue))": measured.area_mm2, "pooled(count(cells))": measured.cells}
    types = {name for held in slides.held for name in held.types}
    if types and all(name.startswith(INSPECTED) for name in types):
        del sizes["pooled(count(cells))"]  # a reader's looks: as many as the tissue is large
    known = [formula for formula, sums in sizes.items() if any(size == size for size in sums)]
    write_text(
        out / "passed.txt",
        "\n".join(dict.fromkeys([*lines, "# what may hide behind a measurement", *known])) + "\n",
    )
    if as_json:
        print_json(report)
        return
    print_line(report.text().split("\n\n")[0])
    for gated in report.measurements:
        if gated.passed:
            print_line(f"  {gated.formula}")
    print_line(f"report: {out / 'gate.txt'}")


def _measurements(define: Path | None, suite: str | None, slides: MapsOnDisk) -> list[Measurement]:
    from mcp_servers.measures.enumeration import suite_of
    from mcp_servers.measures.formula import read_definitions

    if (define is None) == (suite is None):
        raise InputError("--define FILE or --suite standard is required")
    if define is not None:
        return read_definitions(define)
    if suite not in ("standard", "full"):
        raise InputError(f"--suite must be standard or full, got {suite}")
    return suite_of(slides.held, "full" if suite == "full" else "standard")


def _parse_shift(word: str) -> tuple[str, Path]:
    from mcp_servers.measures.gate import SHIFTS

    name, equals, folder = word.partition("=")
    if not equals or name not in SHIFTS:
        raise InputError(
            f"--shifted {word}: expected NAME=DIR, where NAME is one of {', '.join(SHIFTS)}"
        )
    return name, Path(folder)


def _read_tissue_variables(cohort: Cohort) -> dict[str, dict[str, float]]:
    """Read the cohort's tissue variables by patient, excluding columns that define an outcome."""
    outcomes = frozenset().union(*(cohort.outcome_columns(name) for name in cohort.spec.endpoints))
    found = {}
    for variable in cohort.dictionary().variables:
        tissue = variable.kind == "continuous" and variable.modality in ("imaging", "immune")
        if not tissue or cohort.columns_read(variable.key) & outcomes:
            continue
        column = cohort.column(variable.key).dropna()
        found[variable.key] = {str(patient): float(value) for patient, value in column.items()}
    return found
