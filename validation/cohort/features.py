"""Features that tools computed on slides, as variables of a cohort."""

from __future__ import annotations

import re
from pathlib import Path

from sage.core.errors import InputError
from validation.cohort.model import CohortSpec, TableSpec, VariableSpec
from validation.cohort.tables import MISSING, inside, read_text_table
from validation.dictionary import Modality

NOT_FEATURES = {"slide", "status", "file", "path", "error", "version", "tool"}


def feature_table(
    path: Path, key: str, modality: Modality, source: str, spec: CohortSpec
) -> tuple[str, TableSpec, dict[str, VariableSpec]]:
    """Name, table and variables of a feature file; columns that are not numbers are left out."""
    import pandas as pd

    where = inside(path.resolve().parent, path.name, "features")
    rows = read_text_table(where)
    if key not in rows.columns:
        raise InputError(f'{path}: no column "{key}"; it has {", ".join(rows.columns[:8])}')
    name = re.sub(r"[^A-Za-z0-9_]+", "_", path.stem).strip("_")
    if name in spec.tables:
        name = f"{name}_features"
    if name in spec.tables:
        raise InputError(f'{path}: the cohort has a table "{name}" already; rename the file')
    if "status" in rows.columns:
        rows = rows[rows["status"].str.strip() == "ok"]
    variables: dict[str, VariableSpec] = {}
    for column in rows.columns:
        if column == key or column in NOT_FEATURES:
            continue
        known = rows[column].str.strip()
        known = known[~known.isin(MISSING)]
        if known.empty or pd.to_numeric(known, errors="coerce").isna().any():
            continue
        short = re.sub(r"[^A-Za-z0-9_.+-]+", "_", column).strip("_")
        variables[f"{name}_{short}"] = VariableSpec(
            table=name,
            column=column,
            kind="continuous",
            label=f"{column.replace('_', ' ')} ({path.stem})",
            modality=modality,
            note=source,
        )
    if not variables:
        raise InputError(f"{path}: no column of numbers in rows that ended well")
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
