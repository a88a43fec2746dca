"""Measurements for many patients, also as a table of variables for cohort.toml."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mcp_servers.measures.compute import Value, compute, of_patient
from mcp_servers.measures.language import Measurement
from mcp_servers.measures.maps import SlideMaps
from mcp_servers.measures.prepared import Prepared
from mcp_servers.slides.arrays import F64, I64, BoolArray


@dataclass(frozen=True, slots=True)
class Measured:
    """Values by patient and measurement.

    Parameters
    ----------
    patients : (p,), in name order
    area_mm2, cells : (p,) tissue area and number of cells for each patient, NaN if unknown
    slides : (p,) number of slides for each patient
    """

    patients: tuple[str, ...]
    measurements: tuple[Measurement, ...]
    values: tuple[tuple[Value, ...], ...]
    area_mm2: F64
    cells: F64
    slides: I64

    @property
    def table(self) -> F64:
        """Values with shape (p, m), NaN where undefined."""
        rows = [
            [np.nan if value.value is None else value.value for value in row] for row in self.values
        ]
        return np.array(rows, dtype=np.float64).reshape(len(self.patients), len(self.measurements))

    @property
    def valid(self) -> BoolArray:
        """Mask with shape (p, m) for values that are defined and within the card."""
        rows = [[value.valid for value in row] for row in self.values]
        return np.array(rows, dtype=bool).reshape(len(self.patients), len(self.measurements))

    def select_rows(self, rows: BoolArray) -> Measured:
        """Select the patients given by a mask."""
        places = np.flatnonzero(rows)
        return Measured(
            tuple(self.patients[place] for place in places),
            self.measurements,
            tuple(self.values[place] for place in places),
            self.area_mm2[rows],
            self.cells[rows],
            self.slides[rows],
        )


def measure_patients(measurements: Sequence[Measurement], slides: Iterable[SlideMaps]) -> Measured:
    """Compute every measurement for every patient, with one slide's maps in memory at a time.

    Slides may be in any order; a patient's slides are combined by each measurement's rule.
    """
    by_patient: dict[str, list[list[Value]]] = {}
    areas: dict[str, float] = {}
    cells: dict[str, float] = {}
    for maps in slides:
        slide = Prepared(maps)
        values = [compute(measurement, slide) for measurement in measurements]
        by_patient.setdefault(maps.patient, []).append(values)
        area = np.nan if maps.area_um2 is None else maps.area_um2 / 1e6
        count = np.nan if maps.cells is None else float(len(maps.cells))
        areas[maps.patient] = areas.get(maps.patient, 0.0) + area
        cells[maps.patient] = cells.get(maps.patient, 0.0) + count
    patients = tuple(sorted(by_patient))
    return Measured(
        patients=patients,
        measurements=tuple(measurements),
        values=tuple(
            tuple(
                of_patient(measurement, [slide[place] for slide in by_patient[patient]])
                for place, measurement in enumerate(measurements)
            )
            for patient in patients
        ),
        area_mm2=np.array([areas[patient] for patient in patients], dtype=np.float64),
        cells=np.array([cells[patient] for patient in patients], dtype=np.float64),
        slides=np.array([len(by_patient[patient]) for patient in patients], dtype=np.int64),
    )


TABLE = "measured.csv"
KnownAt = Literal["baseline", "unknown"]


def describe_variable(measurement: Measurement) -> dict[str, object]:
    """Return the label, unit, note and synonyms of a measurement's variable.

    Measures of the location of cells or objects are also searchable as their spatial
    arrangement.
    """
    return {
        "label": measurement.label,
        "unit": measurement.unit,
        "note": f"{measurement.sentence} Formula: {measurement.formula}"[:2000],
        "synonyms": [f"spatial arrangement of {what}" for what in measurement.arranged],
    }


def declaration(measurements: Sequence[Measurement], known_at: KnownAt | None) -> str:
    """Write the table and variables as lines for a `cohort.toml` next to `measured.csv`."""
    lines = [
        "# For cohort.toml: copy these lines; `file` is relative to the cohort's root.",
        "[tables.measured]",
        f'file = "{TABLE}"',
        'key = "patient"',
    ]
    if known_at is not None:
        lines.append(f'known_at = "{known_at}"')
    for measurement in measurements:
        fields = {
            "table": "measured",
            "column": measurement.name,
            "kind": "continuous",
            "modality": "imaging",
            **describe_variable(measurement),
        }
        lines += ["", f"[variables.{measurement.name}]"]
        lines += [f"{key} = {json.dumps(v, ensure_ascii=False)}" for key, v in fields.items()]
    return "\n".join(lines) + "\n"
