"""Spatial measures: planted arrangements on simulated slides, found or falsely claimed.

Simulated slides contain tumor, B and T cells in varying numbers and with three varying
arrangements: how tightly B cells cluster, how deep T cells are in the tumor, and how many
T cells are next to B cells. In a planted cohort the hazard depends on an arrangement, in
a null cohort on none; in both it also depends on age. The procedure follows
docs/measurements.md: the standard suite, the gate and a screen in two thirds of the
patients, then a test of only the best variable, per standard deviation, in the observed
direction and adjusted for age, under a frozen contract in the remaining patients.

A planted truth is found if the confirmed claim is supported and its variable is
correlated with the planted arrangement in the right direction (rank correlation of at
least 0.3). In a null cohort every supported claim is false.
"""

from __future__ import annotations

import csv
import io
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.runner import Report, Row, load_lines, rate
from mcp_servers.measures.enumeration import enumerate_measurements
from mcp_servers.measures.gate import gate, spearman
from mcp_servers.measures.maps import CellMap, RegionMap, SlideMaps, multipolygon, shape_map
from mcp_servers.measures.table import TABLE, Measured, declaration, measure_patients
from mcp_servers.slides.arrays import F64, BoolArray
from sage.core.files import append_line, write_text
from sage.core.models import Strict
from sage.core.seeds import generator

TRUTHS = ("clustering of B cells", "depth of T cells", "T cells beside B cells")
NULL = "nothing"
HAZARD_RATIO = 1.6
"""Hazard ratio per standard deviation of the planted arrangement."""
CORRELATION = 0.8
"""Correlation of a measurement with the arrangement, as assumed in sizing the cohorts."""
EVENTS = 0.65
"""Approximate share of patients with an observed event."""
POWER, ALPHA = 0.9, 0.05
ALONG = 0.3
AGE = ("clinical:age",)
WIDTH_UM, HEIGHT_UM = 1000.0, 800.0
TYPES = ("b_cell", "neoplastic", "t_cell")


class Line(Strict):
    """Result for a cohort: the planted arrangement, the best variable, and its claim's outcome."""

    slides: int
    seed: int
    truth: str
    variable: str
    verdict: str
    because: str
    along: float | None
    found: bool
    false: bool
    passed: int


@dataclass(frozen=True)
class Measurable:
    """A set of slides, measured and gated once, from which many cohorts are drawn.

    `planted` maps the name of each arrangement to the patients' standardized values.
    """

    seed: int
    measured: Measured
    keep: frozenset[str]
    planted: dict[str, F64]
    discovery: int


def plan_patients() -> int:
    """Compute the number of patients required for the planned confirmation power (Schoenfeld)."""
    z = NormalDist()
    effect = CORRELATION * np.log(HAZARD_RATIO)
    events = ((z.inv_cdf(1 - ALPHA / 2) + z.inv_cdf(POWER)) / effect) ** 2
    return int(np.ceil(events / EVENTS))


CONFIRMATION = plan_patients()
DISCOVERY = 2 * CONFIRMATION


def simulate(seed: int, patients: int) -> tuple[list[SlideMaps], dict[str, F64]]:
    """Simulate one slide per patient, with planted arrangements."""
    rng = generator(seed)
    spread = np.exp(rng.uniform(np.log(15), np.log(90), patients))
    depth = rng.uniform(-100, 150, patients)
    beside = rng.uniform(0, 0.6, patients)
    slides = [
        _slide(f"P{i:04}", float(spread[i]), float(depth[i]), float(beside[i]), rng)
        for i in range(patients)
    ]
    raw = dict(zip(TRUTHS, (-np.log(spread), -depth, beside), strict=True))
    return slides, {name: (v - v.mean()) / v.std() for name, v in raw.items()}


def _slide(
    patient: str, spread: float, depth: float, beside: float, rng: np.random.Generator
) -> SlideMaps:
    import shapely

    phase = rng.uniform(0, 2 * np.pi)

    def margin(y: F64) -> F64:
        return np.asarray(450 + 60 * np.sin(2 * np.pi * y / 400 + phase))

    y = np.linspace(0, HEIGHT_UM, 81)
    edge = np.column_stack([margin(y), y])
    tumor = shapely.Polygon([(0, 0), *edge, (0, HEIGHT_UM)])
    counts = rng.poisson(np.array([240, 400, 240]) * np.exp(rng.normal(0, 0.3, 3)) + 20)
    height = rng.uniform(0, HEIGHT_UM, counts[1])
    neoplastic = np.column_stack([rng.uniform(0, margin(height)), height])
    homes = np.column_stack([rng.uniform(600, WIDTH_UM, 7), rng.uniform(0, HEIGHT_UM, 7)])
    b_cells = homes[rng.integers(0, 7, counts[0])] + rng.normal(0, spread, (counts[0], 2))
    height = rng.uniform(0, HEIGHT_UM, counts[2])
    t_cells = np.column_stack([margin(height) + rng.normal(depth, 120, counts[2]), height])
    near = rng.random(counts[2]) < beside
    hosts = b_cells[rng.integers(0, counts[0], int(near.sum()))]
    t_cells[near] = hosts + rng.normal(0, 10, hosts.shape)
    xy = np.concatenate([b_cells, neoplastic, t_cells])
    return SlideMaps(
        slide=patient,
        patient=patient,
        window=multipolygon([shapely.box(0, 0, WIDTH_UM, HEIGHT_UM)]),
        cells=CellMap(xy[:, 0], xy[:, 1], TYPES, np.repeat([0, 1, 2], counts)),
        regions=shape_map(RegionMap, [tumor], ["tumor"]),
    )


def prepare(seed: int, discovery: int = DISCOVERY, confirmation: int = CONFIRMATION) -> Measurable:
    """Simulate a set of slides, gate the suite on the discovery slides, and measure all slides."""
    slides, planted = simulate(seed, discovery + confirmation)
    suite = enumerate_measurements(TYPES, regions=("tumor",), suite="standard")
    report, _ = gate(suite, slides[:discovery], seed=seed)
    kept = [measurement for measurement in suite if measurement.name in report.passed]
    measured = measure_patients(kept, slides)
    return Measurable(seed, measured, frozenset(report.passed), planted, discovery)


def try_cohort(place: Path, given: Measurable, seed: int, truth: str) -> Line:
    """Draw outcomes, screen in discovery, confirm the best variable, and clean up."""
    from sage_screening.cohort import screen_cohort
    from validation.cohort import load
    from validation.ledger.ledger import Ledger

    rng = generator(seed)
    patients = len(given.measured.patients)
    age = rng.normal(65, 9, patients)
    hazard = 0.02 * (age - 65)
    if truth != NULL:
        hazard += np.log(HAZARD_RATIO) * given.planted[truth]
    times = rng.exponential(1000 * np.exp(-hazard))
    follow_up = rng.uniform(500, 3000, len(times))
    event = times <= follow_up
    days = np.ceil(np.minimum(times, follow_up))
    folder = place / f"measures-{given.seed}-{seed}"
    discovery = np.arange(patients) < given.discovery
    try:
        for name, rows in (("discovery", discovery), ("confirmation", ~discovery)):
            _write_cohort(folder / name, given, rows, np.column_stack([age, days, event]))
        ledger = Ledger(folder / "ledger.jsonl")
        found = screen_cohort(load(folder / "discovery"), "OS", AGE, ledger=ledger).result
        measures = {f"imaging:{name}" for name in given.keep}
        best = next(at for at in found.ranking() if found.names[at] in measures)
        key, ratio = found.names[best], float(found.hr[best])
        verdict, because = _confirm(folder, key, ratio, seed, ledger)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    along = None
    if truth != NULL:
        names = [measurement.name for measurement in given.measured.measurements]
        name = key.removeprefix("imaging:")
        values = given.measured.table[:, names.index(name)] if name in names else None
        along = None if values is None else spearman(values, given.planted[truth])
    supported = verdict == "supported"
    related = along is not None and abs(along) >= ALONG and (along > 0) == (ratio > 1)
    return Line(
        slides=given.seed,
        seed=seed,
        truth=truth,
        variable=key,
        verdict=verdict,
        because=because,
        along=along,
        found=supported and related,
        false=supported and not related,
        passed=len(given.keep),
    )


def _confirm(folder: Path, key: str, ratio: float, seed: int, ledger: Any) -> tuple[str, str]:
    from validation.cohort import load
    from validation.core.hypothesis import (
        Comparison,
        CutRule,
        Direction,
        Exposure,
        Hypothesis,
        Population,
    )
    from validation.drafting.draft import draft
    from validation.drafting.freezing import freeze
    from validation.run.runner import finalize, run

    cohort = load(folder / "confirmation")
    claim = Hypothesis(
        id="best",
        statement="The best variable of the screen goes with overall survival.",
        population=Population(description="all patients"),
        exposures=(Exposure(variable=key, label=key, cut=CutRule.CONTINUOUS),),
        comparison=Comparison.PER_SD,
        endpoint="OS",
        direction=Direction.HIGHER_RISK if ratio > 1 else Direction.LOWER_RISK,
        covariates=AGE,
    )
    frozen = freeze(draft(claim, cohort.dictionary(), seed=seed, alpha=ALPHA), cohort)
    out = folder / "best"
    run(frozen, cohort, out, ledger=ledger, figures=False, reproduce=False)
    (result,) = finalize([(frozen, out)], ledger, reproduce=False)
    return result.verdict.verdict, result.verdict.because


def _write_cohort(folder: Path, given: Measurable, rows: BoolArray, clinical: F64) -> None:
    places = np.flatnonzero(rows)
    measured = given.measured
    write_table(measured.select_rows(rows), folder, given.keep)
    lines = ["patient,age,days,dead"]
    for place in places:
        age, days, dead = clinical[place]
        lines.append(f"{measured.patients[place]},{age:.0f},{days:.0f},{dead:.0f}")
    write_text(folder / "clinical.csv", "\n".join(lines) + "\n")
    write_text(folder / "cohort.toml", COHORT + (folder / "measured.toml").read_text())


def write_table(measured: Measured, folder: Path, keep: Collection[str] | None = None) -> None:
    """Write measured values as `measured.csv` and `measured.toml`, marked as known at baseline.

    Parameters
    ----------
    keep : names of the measurements to write, such as those that passed the gate; None for
        all. Values that are undefined or outside the range on a tool's card are left empty.
    """
    chosen = [
        (place, measurement)
        for place, measurement in enumerate(measured.measurements)
        if keep is None or measurement.name in keep
    ]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["patient", *(measurement.name for _, measurement in chosen)])
    for patient, values in zip(measured.patients, measured.values, strict=True):
        shown = [values[place] for place, _ in chosen]
        rows.writerow([patient, *(repr(value.value) if value.valid else "" for value in shown)])
    write_text(folder / TABLE, text.getvalue())
    write_text(
        folder / "measured.toml",
        declaration([measurement for _, measurement in chosen], "baseline"),
    )


COHORT = """id = "simulated-slides"
title = "Simulated slides"
simulated = true
patient = { table = "clinical", ids = "exact" }

[tables.clinical]
file = "clinical.csv"
key = "patient"
known_at = "baseline"

[variables.age]
table = "clinical"
column = "age"
kind = "continuous"
label = "Age"
unit = "years"

[endpoints.OS]
table = "clinical"
time = "days"
time_unit = "days"
event = "dead"
event_values = [1]
censored_values = [0]

"""


def draw_cohorts(place: Path, sets: Iterable[int], draws: int, null_draws: int) -> Iterator[Line]:
    """Yield results for all cohorts: `draws` per truth and `null_draws` null cohorts per set."""
    for slides in sets:
        given = prepare(slides)
        truths = [truth for truth in TRUTHS for _ in range(draws)] + [NULL] * null_draws
        for number, truth in enumerate(truths):
            yield try_cohort(place, given, 1000 * slides + number, truth)


def summarize(lines: Sequence[Line]) -> Report:
    """Compute the shares of truths found, and of false claims in null and in planted cohorts."""
    planted = [line for line in lines if line.truth != NULL]
    null = [line for line in lines if line.truth == NULL]
    rates = [rate(f"found: {t}", [x.found for x in planted if x.truth == t]) for t in TRUTHS]
    rates += [
        rate("found: any truth", [line.found for line in planted]),
        rate("false claim in a planted cohort", [line.false for line in planted]),
        rate("false claim in a null cohort", [line.false for line in null]),
    ]
    sets = len({line.slides for line in lines})
    rows = tuple(
        Row(benchmark=f"Measures, {item.name}", measured=f"{item.runs} cohorts on {sets} sets",
            sage=str(item))
        for item in rates
    )  # fmt: skip
    return Report(rows=rows, data=[item.model_dump() for item in rates])


def run(
    keep: Annotated[Path, typer.Option(help="Results so far, to resume.")],
    sets: Annotated[int, typer.Option(min=1, help="Sets of slides; two minutes each.")] = 5,
    first: Annotated[int, typer.Option(help="Number of the first set.")] = 1,
    draws: Annotated[int, typer.Option(min=0, help="Cohorts per truth and set.")] = 10,
    null: Annotated[int, typer.Option(min=0, help="Null cohorts per set.")] = 42,
) -> Report:
    """Search for planted arrangements, and count claims where there are none."""
    lines = load_lines(keep, Line)
    done = {line.slides for line in lines}
    missing = [number for number in range(first, first + sets) if number not in done]
    with tempfile.TemporaryDirectory() as folder:
        for line in draw_cohorts(Path(folder), missing, draws, null):
            append_line(keep, line.model_dump_json())
            lines.append(line)
    return summarize(lines)
