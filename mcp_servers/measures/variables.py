"""Measurements as variables of a cohort: a table, lines for cohort.toml, every value's reason."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from mcp_servers.measures.language import Measurement
from mcp_servers.measures.table import Measured
from sage.core.files import write_text

TABLE = "measures.csv"
LINES = "measures.toml"
VALUES = "measures_values.csv"
AREA, CELLS = "tissue_area_mm2", "cell_count"
"""Columns beside the measurements, by which a claim can be adjusted."""


def write_variables(
    measured: Measured, folder: Path, keep: Collection[str] | None = None, name: str = "measures"
) -> tuple[Path, Path, Path]:
    """Write a cohort's measurements.

    Parameters
    ----------
    measured : of all patients
    folder : made if need be
    keep : names of the measurements to write, such as those that passed the gate; None for all
    name : of the table in cohort.toml

    Returns
    -------
    `measures.csv`: one row per patient, values that are undefined or outside a tool's card left
    empty. `measures.toml`: the table and its variables for cohort.toml, known at baseline since a
    slide shows what was there when the tissue was taken. `measures_values.csv`: every value with
    whether it is valid and, if not, why.
    """
    chosen = [
        (place, measurement)
        for place, measurement in enumerate(measured.measurements)
        if keep is None or measurement.name in keep
    ]
    rows = []
    for at, patient in enumerate(measured.patients):
        values = [measured.values[at][place] for place, _ in chosen]
        beside = [_number(float(array[at])) for array in (measured.area_mm2, measured.cells)]
        shown = [_number(value.value) if value.valid else "" for value in values]
        rows.append([patient, *shown, *beside])
    names = [measurement.name for _, measurement in chosen]
    paths = folder / TABLE, folder / LINES, folder / VALUES
    write_text(paths[0], _as_csv([["patient", *names, AREA, CELLS], *rows]))
    write_text(paths[1], toml_lines([measurement for _, measurement in chosen], name))
    long = [
        [
            patient,
            measurement.name,
            _number(value.value),
            value.unit,
            str(value.valid).lower(),
            value.slides,
            value.why_not,
        ]
        for at, patient in enumerate(measured.patients)
        for place, measurement in chosen
        for value in [measured.values[at][place]]
    ]
    header = ["patient", "measurement", "value", "unit", "valid", "slides", "why_not"]
    write_text(paths[2], _as_csv([header, *long]))
    return paths


def toml_lines(measurements: Collection[Measurement], name: str = "measures") -> str:
    """The sections of cohort.toml for `measures.csv`, one variable per measurement."""
    parts = [
        f'[tables.{name}]\nfile = "{TABLE}"\nkey = "patient"\nknown_at = "baseline"\n'
        'source = "measured on slides"\n'
    ]
    for measurement in measurements:
        synonyms = [f"spatial arrangement of {what}" for what in measurement.arranged]
        fields: dict[str, object] = {
            "table": name,
            "column": measurement.name,
            "kind": "continuous",
            "modality": "imaging",
            "label": measurement.label,
            "unit": measurement.unit,
            "synonyms": synonyms,
            "note": f"{measurement.sentence} Formula: {measurement.formula}",
        }
        parts.append(_section(measurement.name, fields))
    for column, label, unit in (
        (AREA, "Area of tissue measured", "mm²"),
        (CELLS, "Number of cells measured", "1"),
    ):
        fields = {
            "table": name,
            "column": column,
            "kind": "continuous",
            "modality": "imaging",
            "label": label,
            "unit": unit,
        }
        parts.append(_section(column, fields))
    return "\n".join(parts)


def _section(name: str, fields: dict[str, object]) -> str:
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    return f"[variables.{name}]\n" + "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None or value != value else repr(float(value))


def _as_csv(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
