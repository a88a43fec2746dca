"""Reduce GDC clinical exports, with a row per diagnosis and treatment, to a row per patient.

Missing values are `'--`. Columns are `case_submitter_id` in older exports and
`cases.submitter_id` in newer exports.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sage.core.errors import InputError
from validation.cohort.model import CohortSpec
from validation.cohort.tables import MISSING, read_text_table

KEYS = ("cases.submitter_id", "case_submitter_id", "submitter_id")


def clinical_file(folder: Path) -> Path | None:
    """The clinical table of a GDC export in `folder`, if any."""
    if not folder.is_dir():
        return None
    for path in sorted(folder.glob("*clinical*.tsv")):
        with path.open(encoding="utf-8-sig", errors="replace") as handle:
            header = handle.readline().rstrip("\n").split("\t")
        if set(KEYS) & set(header):
            return path
    return None


def describe(folder: Path) -> CohortSpec:
    """The cohort description of a GDC export: clinical variables and overall survival."""
    path = clinical_file(folder)
    if path is None:
        raise InputError(f"{folder}: no GDC clinical export in it")
    table = read_text_table(path, separator="\t")
    key = next(key for key in KEYS if key in table.columns)
    prefixed = {column.split(".")[-1]: column for column in table.columns}

    def name(short: str) -> str | None:
        return short if short in table.columns else prefixed.get(short)

    status, death = name("vital_status"), name("days_to_death")
    last = name("days_to_last_follow_up")
    variables: dict[str, Any] = {}
    for label, kind, unit in (
        ("age_at_index", "continuous", "years"),
        ("gender", "categorical", None),
        ("race", "categorical", None),
        ("ajcc_pathologic_stage", "categorical", None),
        ("ajcc_pathologic_n", "categorical", None),
        ("ajcc_pathologic_t", "categorical", None),
        ("tumor_grade", "categorical", None),
    ):
        column = name(label)
        if column is not None and not table[column].str.strip().isin(MISSING).all():
            variables[label] = {
                "table": "clinical",
                "column": column,
                "kind": kind,
                "unit": unit,
                "label": label.replace("_", " "),
                "collapse": "first",
            }
    endpoints: dict[str, Any] = {}
    if status and death and last:
        endpoints["OS"] = {
            "kind": "survival",
            "table": "outcome",
            "time": death,
            "time_censored": last,
            "time_unit": "days",
            "event": status,
            "event_values": ["Dead"],
            "censored_values": ["Alive"],
            "label": "Overall survival",
            "note": "days_to_death for the dead, else the latest days_to_last_follow_up",
        }
    return CohortSpec.model_validate(
        {
            "id": folder.name.lower().replace(" ", "-"),
            "title": f"GDC clinical export {path.name}",
            "license": "GDC open access",
            "patient": {"table": "clinical"},
            "tables": {
                "clinical": {
                    "file": path.name,
                    "key": key,
                    "separator": "\t",
                    "rows_per_patient": "identical",
                    "known_at": "baseline",
                },
                "outcome": {
                    "file": path.name,
                    "key": key,
                    "separator": "\t",
                    "rows_per_patient": "last",
                },
            },
            "variables": variables,
            "endpoints": endpoints,
        }
    )
