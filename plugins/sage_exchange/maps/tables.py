"""Cells from tables of QuPath, inForm, and steinbock, or from any table through a mapping."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from mcp_servers.measures.maps import CellMap, Column, Name, SlideMaps
from mcp_servers.slides.arrays import F64
from mcp_servers.workers.cohort import parse_patient
from sage.core.errors import InputError, explain_validation
from sage.core.models import Strict
from sage_exchange.maps.names import TYPES, match_name, slug
from sage_exchange.maps.window import Window, window_of

if TYPE_CHECKING:
    import pandas as pd

Unit = Literal["px", "um"]
PIXEL_UNITS = {"px": "µm", "px^2": "µm²", "pixels": "µm²"}
MICRON_UNITS = {
    "µm^2": "µm²",
    "um^2": "µm²",
    "µm²": "µm²",
    "square microns": "µm²",
    "µm": "µm",
    "um": "µm",
    "microns": "µm",
}
CODES = "\0codes"
"""Name of an internal column, which cannot occur in a table."""


class Measured(Strict):
    """A numeric column to keep and its unit; px and px^2 are converted to µm and µm²."""

    column: str
    unit: str = "1"


class TableMapping(Strict):
    """Roles of a table's columns; `unit` applies to x and y.

    `markers` are columns that indicate whether each marker is present ("CD8+", "Other-"); the
    positive markers together form the type if `type` is not set.
    """

    x: str
    y: str
    unit: Unit
    slide: str | None = None
    patient: str | None = None
    type: str | None = None
    markers: tuple[str, ...] = ()
    columns: dict[Name, Measured] = Field(default_factory=dict)
    separator: Literal[",", "\t", ";"] | None = None


def read_mapping(path: Path) -> TableMapping:
    """Read a mapping from a TOML file; raises `InputError` if it is invalid."""
    try:
        return TableMapping.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain_validation(error)}") from None


def read_rows(
    path: Path, where: Mapping[str, str], needed: Sequence[str], separator: str | None = None
) -> pd.DataFrame:
    """Read a table's rows as text, keeping those that match `where`.

    Parameters
    ----------
    where : maps columns to the text that rows must contain in them
    needed : columns that must exist
    separator : None for the most frequent of tab, comma, and semicolon in the first line

    Raises
    ------
    InputError
        If the file is not a table, or a column is missing.
    """
    import pandas as pd

    separator = separator or _separator(path)
    try:
        rows = pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8")
    except (ValueError, UnicodeDecodeError) as error:  # pandas' ParserError is a ValueError
        raise InputError(f"{path}: not a table: {error}") from None
    for column in (*needed, *where):
        if column not in rows.columns:
            held = ", ".join(rows.columns[:15])
            raise InputError(f'{path}: unknown column "{column}"; available columns: {held}')
    for column, value in where.items():
        rows = rows[rows[column].str.strip() == value]
    if rows.empty:
        raise InputError(f"{path}: no rows" + (" left" if where else ""))
    return rows


def _separator(path: Path) -> str:
    import gzip

    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        head = stream.readline(1 << 16).decode("utf-8", "replace")
    return max("\t,;", key=head.count)


def column_of(title: str, mpp: float | None) -> tuple[str, str, float]:
    """Parse a title such as "Area µm^2" into a column name, a unit, and a conversion factor.

    Pixel units become µm if the pixel size is known, and a pure number otherwise.
    """
    text = re.sub(r"\((.*?)\)\s*$", r" \1", title).strip()
    for units, is_px in ((MICRON_UNITS, False), (PIXEL_UNITS, True)):
        for ending, unit in units.items():
            if text.endswith(f" {ending}"):
                base = slug(text.removesuffix(ending)) or "value"
                base = re.sub(r"_um2?$", "", base)  # "area_um2 µm^2", as exports write it
                if is_px and mpp is None:
                    return f"{base}_px"[:60], "1", 1.0
                power = 2 if unit == "µm²" else 1
                factor = (mpp or 1.0) ** power if is_px else 1.0
                suffix = "um2" if power == 2 else "um"
                return _column_name(f"{base}_{suffix}"), unit, factor
    return _column_name(slug(text)), "1", 1.0


def _column_name(text: str) -> str:
    return (text if text[:1].isalpha() else f"c_{text}")[:60]


def preset(name: str, path: Path) -> TableMapping:
    """Return the mapping for a program's table, based on the column titles.

    Raises
    ------
    InputError
        If the table lacks that program's columns.
    """
    import pandas as pd

    titles = list(pd.read_csv(path, sep=_separator(path), nrows=0, encoding="utf-8").columns)
    makers = {"qupath": _qupath, "inform": _inform, "steinbock": _steinbock}
    found = makers[name](titles)
    if found is None:
        raise InputError(
            f"{path}: not a {name} table. Columns: {', '.join(titles[:15])}. Describe the "
            "columns in a mapping (--mapping FILE)"
        )
    return found


def _qupath(titles: Sequence[str]) -> TableMapping | None:
    for unit, word in (("um", "µm"), ("px", "px")):
        x, y = f"Centroid X {word}", f"Centroid Y {word}"
        if x in titles and y in titles:
            kind = next((title for title in ("Classification", "Class") if title in titles), None)
            given = {"x": x, "y": y, "unit": unit, "type": kind}
            given["slide"] = "Image" if "Image" in titles else None
            own = [title for title in titles if ":" in title or title.startswith("Area")]
            return TableMapping.model_validate(given | {"columns": find_measurements(own)})
    return None


def _inform(titles: Sequence[str]) -> TableMapping | None:
    x, y = "Cell X Position", "Cell Y Position"
    if x not in titles or y not in titles:
        return None
    microns = any("square microns" in title for title in titles)
    pixels = any(title.endswith("(pixels)") for title in titles)
    if microns == pixels:
        raise InputError(
            "inForm: the area column titles do not indicate whether the table is in pixels "
            "or microns; specify its columns and their unit in a mapping (--mapping FILE)"
        )
    markers = tuple(title for title in titles if title.startswith("Phenotype "))
    areas = [title for title in titles if re.search(r" Area \((pixels|square microns)\)$", title)]
    given = {
        "x": x,
        "y": y,
        "unit": "um" if microns else "px",
        "slide": "Sample Name" if "Sample Name" in titles else None,
        "type": "Phenotype" if "Phenotype" in titles else None,
        "markers": markers,
        "columns": find_measurements(areas),
    }
    return TableMapping.model_validate(given)


def _steinbock(titles: Sequence[str]) -> TableMapping | None:
    if not {"centroid-0", "centroid-1"} <= set(titles):
        return None
    left_out = {"Image", "Object", "centroid-0", "centroid-1"}
    lengths = {"area": "px^2", "major_axis_length": "px", "minor_axis_length": "px"}
    columns = {
        column_of(f"{title} {lengths[title]}" if title in lengths else title, 1.0)[0]: Measured(
            column=title, unit=lengths.get(title, "1")
        )
        for title in titles
        if title not in left_out
    }
    return TableMapping(
        x="centroid-1",
        y="centroid-0",
        unit="px",
        slide="Image" if "Image" in titles else None,
        columns=columns,
    )


def find_measurements(titles: Sequence[str]) -> dict[str, Measured]:
    """Find the measurements named by column titles, keyed by title."""
    found: dict[str, Measured] = {}
    for title in titles:
        name, unit, _ = column_of(title, 1.0)
        text = re.sub(r"\((.*?)\)\s*$", r" \1", title).strip()
        is_px = any(text.endswith(f" {ending}") for ending in PIXEL_UNITS)
        own = {"µm": "px", "µm²": "px^2"}[unit] if is_px else unit
        found.setdefault(name, Measured(column=title, unit=own))
    return found


def read_table(
    path: Path,
    mapping: TableMapping,
    *,
    mpp: float | None = None,
    slide: str | None = None,
    patient: str | None = None,
    types: Mapping[str, str] | None = None,
    where: Mapping[str, str] | None = None,
    window: Window = "none",
) -> Iterator[SlideMaps]:
    """Yield a table's cells, one slide at a time, sorted by slide name.

    A type that occurs on any slide counts as analyzed on all of them.

    Parameters
    ----------
    mpp : µm per pixel; required if the table is in pixels, refused otherwise
    slide, patient : used for all rows if the mapping has no column for them
    where : column values of the rows to keep
    window : shape to assume for the analyzed tissue, which tables do not record

    Raises
    ------
    InputError
        If the units or a column do not fit, or a row has no position.
    """
    in_pixels = mapping.unit == "px"
    if in_pixels and mpp is None:
        raise InputError(f"{path}: x and y are in pixels; give the pixel size in µm (mpp)")
    if not in_pixels and mpp is not None:
        raise InputError(f"{path}: x and y are already in µm; omit mpp")
    measured = [column.column for column in mapping.columns.values()]
    named_columns = [mapping.slide, mapping.patient, mapping.type]
    needed = [mapping.x, mapping.y, *mapping.markers, *measured]
    needed += [column for column in named_columns if column is not None]
    rows = read_rows(path, where or {}, needed, mapping.separator)
    stem = slide or path.name.split(".")[0]
    names = _types(rows, mapping, types or {})
    known = tuple(sorted({kind for kind in names if kind is not None}))
    rows = rows.assign(**{CODES: [-1 if kind is None else known.index(kind) for kind in names]})
    slides = rows[mapping.slide].str.strip() if mapping.slide else [stem] * len(rows)
    for name, own in rows.groupby(np.asarray(slides), sort=True):
        cells = _cells(path, own, mapping, mpp, known)
        area, how = window_of(window, cells.points)
        held = _patient_of_rows(path, str(name), own, mapping) or patient
        yield SlideMaps(
            slide=str(name),
            patient=held or parse_patient(Path(str(name))),
            window=area,
            cells=cells,
            mpp=mpp,
            provenance={"cells": f"table {path.name}", **how},
        )


def _patient_of_rows(path: Path, slide: str, rows: Any, mapping: TableMapping) -> str | None:
    """Return the patient ID in a slide's rows, or None if there is no patient column."""
    if mapping.patient is None:
        return None
    patients = sorted(set(rows[mapping.patient].str.strip()))
    if len(patients) > 1:
        raise InputError(
            f'{path}: the rows for "{slide}" ({mapping.slide or "the whole table"}) belong to '
            f"{len(patients)} patients; specify the column that identifies slides"
        )
    return str(patients[0])


def _cells(
    path: Path,
    rows: pd.DataFrame,
    mapping: TableMapping,
    mpp: float | None,
    types: tuple[str, ...],
) -> CellMap:
    factor = 1.0 if mpp is None else mpp
    x, y = (_numbers(rows[column]) * factor for column in (mapping.x, mapping.y))
    broken = np.flatnonzero(~np.isfinite(x) | ~np.isfinite(y))
    if len(broken):
        row = int(rows.index[broken[0]]) + 2
        raise InputError(f"{path}: row {row} has no number for {mapping.x} or {mapping.y}")
    columns = {}
    for name, column in mapping.columns.items():
        unit, scale = _unit(path, column, mpp)
        columns[name] = Column(_numbers(rows[column.column]) * scale, unit)
    return CellMap(x, y, types, rows[CODES].to_numpy(dtype=np.int64), None, columns)


def _unit(path: Path, column: Measured, mpp: float | None) -> tuple[str, float]:
    power = {"px": 1, "px^2": 2}.get(column.unit)
    if power is None:
        return column.unit, 1.0
    if mpp is None:
        raise InputError(f'{path}: "{column.column}" is in pixels; give the pixel size in µm')
    return ("µm", "µm²")[power - 1], mpp**power


def _types(rows: Any, mapping: TableMapping, own: Mapping[str, str]) -> list[str | None]:
    if mapping.type is not None:
        texts = [text.strip() for text in rows[mapping.type]]
    elif mapping.markers:
        held = [[text.strip() for text in rows[marker]] for marker in mapping.markers]
        joined = zip(*held, strict=True)
        texts = [" ".join(m for m in row if m.endswith("+")) or "negative" for row in joined]
    else:
        return [None] * len(rows)
    known = {text: match_name(text, TYPES, own) if text else None for text in set(texts)}
    return [known[text] for text in texts]


def _numbers(values: Any) -> F64:
    import pandas as pd

    return np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64)
