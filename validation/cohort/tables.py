"""Reading of a cohort's files as text, converting only values that fit their declared type."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.printable import LONGEST_NAME, ForeignText
from validation.cohort.ids import patient_of, sample_type_of
from validation.cohort.model import Cell, TableSpec
from validation.core.dictionary import JoinReport

if TYPE_CHECKING:
    import pandas as pd

MISSING = (
    frozenset({"", "NA", "N/A", "NaN", "nan", "#N/A", "NULL", "null", ".", "--", "'--"})
    | {"Not Reported", "not reported", "Unknown", "[Unknown]", "[Discrepancy]", "[Completed]"}
    | {f"[Not {word}]" for word in ("Available", "Applicable", "Evaluated", "Reported")}
)


def inside(root: Path, name: str, what: str) -> Path:
    """Return a cohort file's path, rejecting paths and links out of the cohort's root."""
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise InputError(
            f"{what}: {name} is outside the cohort's root {root}; copy it there, or set `root`"
        )
    if not path.is_file():
        near: list[str] = []
        if path.parent.is_dir():
            near = sorted(item.name for item in path.parent.iterdir())[:12]
        has = f" The folder has: {', '.join(near)}." if near else ""
        raise InputError(f"{what}: file {path} does not exist.{has}")
    return path


def read_text_table(
    path: Path,
    *,
    separator: str | None = None,
    header_rows: int = 1,
    comment: str | None = None,
    columns: tuple[str, ...] = (),
) -> pd.DataFrame:
    """Read a file as a table of strings, without interpreting them.

    `header_rows` above 1 drops the repeated headers below the first (TCGA biotab has three).

    Parameters
    ----------
    separator : None to choose a tab or a comma based on the file suffix

    Raises
    ------
    InputError
        If the file cannot be read as a table.
    """
    import pandas as pd

    suffixes = [suffix.lower() for suffix in path.suffixes]
    try:
        if ".parquet" in suffixes:
            return _as_text(pd.read_parquet(path))
        if ".feather" in suffixes:
            require_extra("slides", "a Feather table")
            return _as_text(pd.read_feather(path))
        if separator is None:
            separator = "\t" if {".tsv", ".txt", ".tab"} & set(suffixes) else ","
        table = pd.read_csv(
            path,
            sep=separator,
            dtype=str,
            keep_default_na=False,
            comment=comment,
            encoding="utf-8-sig",
            header=None if columns else 0,
            names=list(columns) or None,
            skip_blank_lines=True,
        )
    except (ValueError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: not a readable table: {error}") from None
    table.columns = [str(name).strip() for name in table.columns]
    return table.iloc[header_rows - 1 :].reset_index(drop=True)


def _as_text(table: pd.DataFrame) -> pd.DataFrame:
    text = table.astype(object).where(table.notna(), "").map(str)
    text.columns = [str(name) for name in text.columns]
    return text.reset_index(drop=True)


@dataclass
class Loaded:
    """A filtered table: rows of strings, the `patient` for each, and reports of losses."""

    name: str
    path: Path
    spec: TableSpec
    rows: pd.DataFrame
    patient: pd.Series
    reports: tuple[JoinReport, ...]
    missing: frozenset[str]

    def column(self, name: str, where: str) -> pd.Series:
        """Return a column; the error for an unknown name lists existing columns."""
        if name not in self.rows.columns:
            raise InputError(_no_column(where, name, self.path, list(self.rows.columns)))
        return self.rows[name].str.strip()


def _no_column(where: str, name: str, path: Path, has: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, has, n=4, cutoff=0.4)
    folded = {text.casefold().replace("_", ".").replace(" ", "."): text for text in has}
    same = folded.get(name.casefold().replace("_", ".").replace(" ", "."))
    shown = list(dict.fromkeys([*([same] if same else []), *near, *has[:8]]))[:8]
    text = f'cohort.toml: {where} refers to column "{name}", which {path.name} does not have. '
    text += f"Columns: {', '.join(shown)}{(', …' if len(has) > len(shown) else '')}."
    if same or near:
        text += f' Did you mean "{same or near[0]}"?'
    return text


def load_table(name: str, spec: TableSpec, root: Path, ids: str) -> Loaded:
    """Read a table, apply its filters and sample rule, and identify each row's patient.

    Raises `InputError` naming file and column if either is missing or a filter keeps no rows.
    """
    path = inside(root, spec.file, f"cohort.toml: tables.{name}")
    rows = read_text_table(
        path,
        separator=spec.separator,
        header_rows=spec.header_rows,
        comment=spec.comment,
        columns=spec.columns,
    )
    if spec.key not in rows.columns:
        raise InputError(_no_column(f"tables.{name}.key", spec.key, path, list(rows.columns)))
    reports: list[JoinReport] = []

    def keep(mask: pd.Series, step: str, reason: str) -> None:
        nonlocal rows
        kept = rows[mask].reset_index(drop=True)
        if len(kept) != len(rows):
            reports.append(JoinReport(step=step, before=len(rows), after=len(kept), reason=reason))
        rows = kept

    for column, wanted in spec.where.items():
        if column not in rows.columns:
            raise InputError(_no_column(f"tables.{name}.where", column, path, list(rows.columns)))
        values = wanted if isinstance(wanted, tuple) else (wanted,)
        keep(
            rows[column].str.strip().isin([text_of(value) for value in values]),
            f"{name}: rows",
            f"kept rows with {column} = {' or '.join(text_of(value) for value in values)}",
        )
    if spec.sample_types:
        types = rows[spec.key].map(sample_type_of)
        keep(
            types.isin(spec.sample_types),
            f"{name}: samples",
            f"kept sample types {', '.join(spec.sample_types)}",
        )
    patient = rows[spec.key].map(lambda item: patient_of(item, ids))
    if patient.isna().any():
        blank = rows[spec.key].str.strip().eq("")
        unread = int((patient.isna() & ~blank).sum())
        if unread and unread == len(rows):
            example = rows.loc[~blank, spec.key].iloc[0]
            raise InputError(
                f'cohort.toml: tables.{name}.key "{spec.key}" has no patient identifier that '
                f'matches rule "{ids}" (first: {example[:24]!r}). Four-character IDs cannot be '
                "joined to barcodes safely; use a column with the full barcode"
            )
        keep(
            patient.notna(),
            f"{name}: identifiers",
            f"{int(blank.sum())} rows without an identifier, {unread} with an unreadable "
            "identifier",
        )
        patient = patient.dropna().reset_index(drop=True)
    return Loaded(
        name=name,
        path=path,
        spec=spec,
        rows=rows,
        patient=patient,
        reports=tuple(reports),
        missing=MISSING | set(spec.missing),
    )


def text_of(value: Cell) -> str:
    """Render a TOML value as in a text table, where 1.0 and 1 are the same code."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def codes(column: pd.Series) -> pd.Series:
    """Normalize codes: `1.0` becomes `1`, and booleans become lowercase."""
    text = column.str.strip()
    text = text.str.replace(r"^(-?\d+)\.0+$", r"\1", regex=True)
    folded = text.str.lower()
    return text.mask(folded.isin(["true", "false"]), folded)


def clean_levels(values: pd.Series, where: str) -> pd.Series:
    """Clean levels as the data dictionary and filters do, so that they match.

    Raises `InputError` if two levels in the file would become the same.
    """
    clean = {level: str(ForeignText(level, LONGEST_NAME)) for level in values.dropna().unique()}
    if len(set(clean.values())) < len(clean):
        raise InputError(
            f"{where}: levels differ only in invisible characters, in spaces, or after "
            f"{LONGEST_NAME} characters; correct them, or map them in `values`"
        )
    return values.map(clean, na_action="ignore")


def numeric(column: pd.Series, missing: frozenset[str], where: str) -> pd.Series:
    """Convert a column to floats.

    Raises `InputError` if a value is neither a number nor a declared code for missing values.
    """
    import pandas as pd

    text = column.str.strip()
    absent = text.isin(missing) | codes(column).isin(missing)
    values = pd.to_numeric(text.where(~absent), errors="coerce")
    bad = values.isna() & ~absent
    if bad.any():
        shown = sorted(set(text[bad]))[:4]
        raise InputError(
            f"{where}: {int(bad.sum())} values are not numbers ({', '.join(map(repr, shown))}). "
            "Correct them, or list them in the table's `missing`"
        )
    if np.isinf(values.to_numpy(dtype=float)).any():
        raise InputError(f"{where}: infinite values; correct them or list them as missing")
    return values.astype(float)
