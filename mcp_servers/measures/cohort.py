"""Measurements over the slides in a cohort: maps, values, and variables per patient.

Each slide has its own folder with a record, so that an interrupted run can be resumed.
The variables are written from those records, patient by patient.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from mcp_servers.measures.compute import Value, of_patient
from mcp_servers.measures.enumeration import Suite, suite_of
from mcp_servers.measures.formula import keep_definitions
from mcp_servers.measures.language import Measurement
from mcp_servers.measures.maps import MANIFEST, held_in, list_maps, name_folder
from mcp_servers.measures.table import TABLE, KnownAt, declaration, describe_variable
from mcp_servers.roots import Roots
from mcp_servers.workers.base import Workers
from mcp_servers.workers.cohort import Item, Outcome, make_items, run_items
from sage.core.errors import InputError
from sage.core.files import replacing, write_json, write_text

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

Progress = Callable[[str, Outcome, int, int], None]
"""Callback with stage ("maps" or "values"), a slide's outcome, and slides done and total."""


@dataclass
class Measured:
    """Output of a cohort run."""

    table: Path
    validity: Path
    declaration: Path
    patients: int = 0
    slides: int = 0
    measurements: int = 0
    valid: int = 0
    """Number of valid values in the table; other cells are empty, with reasons in `validity`."""
    resumed: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    withheld: dict[str, str] = field(default_factory=dict)
    """Names that have no map on some slides, by reason."""


def items_with_patients(slides: Sequence[Path], cohort: Cohort | None) -> list[Item]:
    """Pair each slide with its patient, from the cohort's slide table or else the slide's name."""
    named = {} if cohort is None else _patients_by_file(cohort)
    return [
        Item(item.path, item.name, named.get(item.path.name.casefold(), item.patient))
        for item in make_items(slides)
    ]


def _patients_by_file(cohort: Cohort) -> dict[str, str]:
    spec = cohort.spec.slides
    if spec is None or spec.table is None or spec.file_column is None:
        return {}
    loaded = cohort.tables[spec.table]
    files = loaded.rows[spec.file_column]
    return {
        Path(str(file)).name.casefold(): str(patient)
        for file, patient in zip(files, loaded.patient, strict=True)
    }


def make_maps(
    workers: Workers,
    items: Sequence[Item],
    roots: Roots,
    arguments: Mapping[str, Any],
    on_outcome: Progress,
    tool: str = "slide_maps",
) -> tuple[list[Item], list[Outcome]]:
    """Make slide maps with a tool; return the maps made and every slide's outcome.

    The tool writes `maps/`: `slide_maps`, or `read_findings` for a reader's findings.
    """
    outcomes: list[Outcome] = []
    run_items(
        workers,
        tool,
        items,
        roots,
        arguments,
        outcomes=outcomes,
        on_outcome=partial(on_outcome, "maps"),
        keep_runs=False,
    )
    made = [
        Item(
            roots.output / tool / outcome.item.name / "maps" / MANIFEST,
            outcome.item.name,
            outcome.item.patient,
        )
        for outcome in outcomes
        if outcome.error is None
    ]
    return made, outcomes


def map_items(folder: Path) -> tuple[list[Item], dict[str, str]]:
    """List the maps in a folder, each with a unique name, and the maps that cannot be read.

    Raises `InputError` if there are no maps.
    """
    items: list[Item] = []
    broken: dict[str, str] = {}
    taken: set[str] = set()
    for path in list_maps(folder):
        try:
            held = held_in(path)
        except InputError as error:
            broken[path.name] = str(error)
            continue
        name = name_folder(held.slide)
        if name in taken:
            name = f"{name}-{len(taken)}"
        taken.add(name)
        items.append(Item(path / MANIFEST, name, held.patient))
    return items, broken


def suite_for(items: Sequence[Item], suite: Suite) -> list[Measurement]:
    """Return the measurements in a suite that apply to the combined contents of these maps."""
    return suite_of((held_in(item.path.parent) for item in items), suite)


def list_withheld(items: Sequence[Item]) -> dict[str, str]:
    """List, by reason, the types, kinds and regions that were not analyzed on some slides."""
    found: dict[str, dict[str, int]] = {}
    for item in items:
        for name, reason in held_in(item.path.parent).withheld.items():
            counts = found.setdefault(reason, {})
            counts[name] = counts.get(name, 0) + 1
    return {
        reason: ", ".join(f"{name} ({n} of {len(items)} slides)" for name, n in counts.items())
        for reason, counts in found.items()
    }


def compute_values(
    workers: Workers,
    items: Sequence[Item],
    measurements: Sequence[Measurement],
    roots: Roots,
    on_outcome: Progress,
) -> list[Outcome]:
    """Compute each slide's values with `measure_maps`, in `OUT/measure_maps/SLIDE/values.jsonl`."""
    outcomes: list[Outcome] = []
    if items:
        definitions = keep_definitions(measurements, roots.output)
        run_items(
            workers,
            "measure_maps",
            items,
            roots,
            {"definitions": str(definitions)},
            outcomes=outcomes,
            on_outcome=partial(on_outcome, "values"),
            keep_runs=False,
        )
    return outcomes


def write_variables(
    measurements: Sequence[Measurement],
    outcomes: Sequence[Outcome],
    failures: Mapping[str, tuple[str, str]],
    out: Path,
    known_at: KnownAt | None,
) -> Measured:
    """Write each patient's variables, their provenance, and lines for cohort.toml.

    `measured.csv` contains only numbers: a value is missing there if it is undefined or
    outside the card of the method that made the maps. `validity.csv` gives the reason, the
    number of slides measured and the number that failed.

    Parameters
    ----------
    outcomes : outcomes of the slides that `compute_values` processed
    failures : patient and reason, by slide, for slides that failed before that step
    known_at : written for every variable; None leaves the choice to the cohort
    """
    lost = dict(failures)
    slides: dict[str, list[str]] = {patient: [] for patient, _ in failures.values()}
    for outcome in outcomes:
        slides.setdefault(outcome.item.patient, [])
        if outcome.error is None:
            slides[outcome.item.patient].append(outcome.item.name)
        else:
            lost[outcome.item.name] = (outcome.item.patient, outcome.error)
    found = Measured(
        table=out / TABLE,
        validity=out / "validity.csv",
        declaration=out / "measured.toml",
        patients=len(slides),
        slides=len(outcomes) + len(failures),
        measurements=len(measurements),
        resumed=sum(outcome.resumed for outcome in outcomes),
        failures={name: reason for name, (_, reason) in lost.items()},
    )
    names = [measurement.name for measurement in measurements]
    with (
        replacing(found.table) as part,
        replacing(found.validity) as second,
        _open(part) as numbers,
        _open(second) as reasons,
    ):
        rows, notes = csv.writer(numbers), csv.writer(reasons)
        rows.writerow(["patient", *names])
        notes.writerow(["patient", "slides", "measured", "failed", *names])
        for patient in sorted(slides):
            own = [reason for who, reason in lost.values() if who == patient]
            values = list(_of_patient(measurements, slides[patient], own, out))
            rows.writerow([patient, *(_number(value) if value.valid else "" for value in values)])
            found.valid += sum(value.valid for value in values)
            counts = [len(slides[patient]) + len(own), len(slides[patient]), len(own)]
            notes.writerow([patient, *counts, *(_validity(value) for value in values)])
    described = {
        measurement.name: {"kind": "number", "known_at": known_at, **describe_variable(measurement)}
        for measurement in measurements
    }
    write_json(found.table.with_name(f"{found.table.stem}.columns.json"), described)
    write_text(found.declaration, declaration(measurements, known_at))
    return found


def _open(path: Path) -> TextIO:
    return path.open("w", newline="", encoding="utf-8")


def _of_patient(
    measurements: Sequence[Measurement], slides: Sequence[str], failed: Sequence[str], out: Path
) -> Iterator[Value]:
    """Yield a patient's value for each measurement."""
    folders = [out / "measure_maps" / name / "values.jsonl" for name in slides]
    lines = [path.read_text(encoding="utf-8").splitlines() for path in folders]
    for path, held in zip(folders, lines, strict=True):
        if len(held) != len(measurements):
            raise InputError(f"{path}: got {len(held)} values for {len(measurements)} measurements")
    for number, measurement in enumerate(measurements):
        value = of_patient(measurement, [Value.model_validate_json(held[number]) for held in lines])
        if not slides and failed:
            value = value.model_copy(update={"why_not": "; ".join(failed)})
        yield value


def _number(value: Value) -> str:
    return "" if value.value is None else repr(value.value)


def _validity(value: Value) -> str:
    if value.valid:
        return "ok"
    return f"{'missing' if value.value is None else 'not valid'}: {value.why_not}"[:500]
