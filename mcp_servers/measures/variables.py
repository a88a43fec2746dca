"""Measurements as cohort variables: a table, and lines for cohort.toml."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from mcp_servers.measures.language import Measurement

TABLE = "measured.csv"
KnownAt = Literal["baseline", "unknown"]


def describe_variable(measurement: Measurement) -> dict[str, object]:
    """Return the label, unit, note and synonyms of a measurement's variable.

    Measures of the location of cells or objects can also be found as their spatial arrangement.
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
