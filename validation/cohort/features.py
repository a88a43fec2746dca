"""Features computed on slides by tools, as cohort variables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from sage.core.errors import InputError
from sage.core.models import Name, Passage
from validation.cohort.model import CohortSpec, TableSpec, VariableSpec
from validation.cohort.tables import MISSING, inside, read_text_table
from validation.core.dictionary import Modality

NOT_FEATURES = {"slide", "status", "file", "path", "error", "version", "tool"}


class ColumnAbout(BaseModel):
    """Description of a column from `TABLE.columns.json` in the table's folder."""

    model_config = ConfigDict(extra="ignore")

    label: Name = ""
    unit: Name | None = None
    note: Passage = ""
    synonyms: tuple[Name, ...] = Field(default=(), max_length=20)
    known_at: Literal["baseline", "unknown"] | None = None


def columns_about(path: Path) -> dict[str, ColumnAbout]:
    """Load the column descriptions stored next to a feature file; empty if there are none.

    Raises `InputError` if their file has another format.
    """
    beside = path.with_name(f"{path.stem}.columns.json")
    if not beside.is_file():
        return {}
    try:
        return TypeAdapter(dict[str, ColumnAbout]).validate_json(beside.read_bytes())
    except ValueError as error:
        raise InputError(f"{beside}: not a valid column description: {error}") from error


def feature_table(
    path: Path, key: str, modality: Modality, source: str, spec: CohortSpec
) -> tuple[str, TableSpec, dict[str, VariableSpec]]:
    """Return a feature file's name, table and variables, leaving out non-numeric columns.

    Parameters
    ----------
    path : text table with a row per patient
    """
    where = inside(path.resolve().parent, path.name, "features")
    rows = read_text_table(where)
    if key not in rows.columns:
        raise InputError(
            f'{path}: column "{key}" not found. Columns: {", ".join(rows.columns[:8])}'
        )
    name = re.sub(r"[^A-Za-z0-9_]+", "_", path.stem).strip("_")
    if name in spec.tables:
        name = f"{name}_features"
    if name in spec.tables:
        raise InputError(f'{path}: the cohort already has a table "{name}"; rename the file')
    if "status" in rows.columns:
        rows = rows[rows["status"].str.strip() == "ok"]
    about = columns_about(path)
    variables: dict[str, VariableSpec] = {}
    for column in rows.columns:
        if column == key or column in NOT_FEATURES:
            continue
        known = rows[column].str.strip()
        known = known[~known.isin(MISSING)]
        if known.empty or pd.to_numeric(known, errors="coerce").isna().any():
            continue
        short = re.sub(r"[^A-Za-z0-9_.+-]+", "_", column).strip("_")
        said = about.get(column, ColumnAbout())
        variables[f"{name}_{short}"] = VariableSpec(
            table=name,
            column=column,
            kind="continuous",
            label=said.label or f"{column.replace('_', ' ')} ({path.stem})",
            unit=said.unit,
            modality=modality,
            note=said.note or source,
            synonyms=said.synonyms,
            known_at=said.known_at,
        )
    if not variables:
        raise InputError(f"{path}: no numeric columns in the successful rows")
    filters = {"status": ("ok",)} if "status" in rows.columns else {}
    table = TableSpec.model_validate(
        {
            "file": path.name,
            "key": key,
            "rows_per_patient": "mean",
            "where": filters,
            "source": source or "computed on slides",
            "known_at": None if spec.slides is None else spec.slides.known_at,
        }
    )
    return name, table, variables
