"""Measurements as variables of a cohort: a table and the lines for cohort.toml."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from mcp_servers.measures.language import Measurement
from mcp_servers.measures.table import Measured
from sage.core.files import write_text

TABLE = "measured.csv"
LINES = "measured.toml"
KnownAt = Literal["baseline", "unknown"]


def write_table(measured: Measured, folder: Path, keep: Collection[str] | None = None) -> None:
    """Write measured values as `measured.csv` and `measured.toml`, known at baseline.

    Parameters
    ----------
    keep : names of the measurements to write, such as those that passed the gate; None for all.
        A value that is undefined or outside a tool's card is left empty.
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
    write_text(folder / LINES, declaration([measurement for _, measurement in chosen], "baseline"))


def describe_variable(measurement: Measurement) -> dict[str, object]:
    """Label, unit, note and synonyms of a measurement's variable.

    What says where cells or objects lie is found as their spatial arrangement, too.
    """
    return {
        "label": measurement.label[:500],
        "unit": measurement.unit,
        "note": f"{measurement.sentence} Formula: {measurement.formula}"[:2000],
        "synonyms": [f"spatial arrangement of {what}" for what in measurement.arranged],
    }


def declaration(measurements: Sequence[Measurement], known_at: KnownAt | None) -> str:
    """The table and its variables as lines for a `cohort.toml` beside `measured.csv`."""
    lines = [
        "# For cohort.toml: copy these lines, with `file` relative to the cohort's root.",
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
