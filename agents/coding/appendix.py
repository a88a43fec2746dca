"""Appendix of a program's results beyond the contract: untrusted, typed and bounded.

The appendix consists only of numeric tables and raster images. A label is either a
variable name or a short sequence of lower-case words that occurs as a string literal in
the program's text, which was written before the data were seen, so that a name cannot
leak a value. Counts below the minimum are suppressed, together with the estimates in the
same row; values shared by fewer patients than the minimum in a table column are withheld,
and numbers keep three significant digits. Images are decoded within limits and redrawn,
so that only their pixels remain.

The appendix is shown in the report under its own heading. It is not used in any summary
or verdict; its tables, but not its images, are used in exploration prompts.
"""

from __future__ import annotations

import ast
import io
import math
import re
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError

from agents.core.base import View
from sage.core.errors import InputError
from sage.core.log import logger
from validation.disclosure import round_count
from validation.reproduction.strictjson import read_bounded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logger(__name__)

TITLE = "Exploratory, written by a model, not prespecified, not checked by SAGE"
FILE = "exploratory.json"
LARGEST_FILE = 64 * 1024
MOST_TABLES, MOST_COLUMNS, MOST_ROWS, MOST_IMAGES = 6, 8, 20, 4
LARGEST_IMAGE = 2 * 1024 * 1024
MOST_PIXELS = 4_000_000
WIDEST = 900
_LABEL = re.compile(r"[a-z]{1,16}([_ ][a-z]{1,16}){0,2}")
_CUT = re.compile(r" ?(?:>=|<=|[<>≥≤=]) ?\d{1,3}(?:\.\d)?")
_CLAIMS = re.compile(
    r"support|signific|valid|replic|confirm|reproduc|proven|verdict|independen|novel|approved"
)
"""Pattern for words that express a judgment, which only the verdict may make."""

Label = Annotated[str, Field(min_length=1, max_length=50)]
Cell = Annotated[float, Field(allow_inf_nan=False, ge=-1e9, le=1e9)]


class _Strict(View):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class GivenColumn(_Strict):
    """A column of an exploratory table, as declared by the program."""

    name: Label
    kind: Literal["count", "estimate", "p"]


class GivenRow(_Strict):
    """A row of an exploratory table: a label and a number for each column."""

    name: Label
    values: list[Cell | None] = Field(min_length=1, max_length=MOST_COLUMNS)


class GivenTable(_Strict):
    """An exploratory table as written by the program."""

    name: Label
    columns: list[GivenColumn] = Field(min_length=1, max_length=MOST_COLUMNS)
    rows: list[GivenRow] = Field(min_length=1, max_length=MOST_ROWS)


class Given(_Strict):
    """Content of `exploratory.json`, as written by the program."""

    tables: list[GivenTable] = Field(default_factory=list, max_length=MOST_TABLES)


class Table(View):
    """An exploratory table as displayed: every cell is a printed number, `<5`, or `–`."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Appendix(View):
    """Everything a program added beyond the contract. `images` are files in the appendix folder."""

    part: str
    program_sha256: str
    tables: tuple[Table, ...] = ()
    images: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Read:
    """An appendix with its images as PNG bytes, sorted by name."""

    tables: tuple[Table, ...]
    images: tuple[bytes, ...]
    refused: tuple[str, ...]


def read_appendix(
    out: Path,
    code: str,
    table: Path | NDArray[np.float64],
    minimum: int,
    names: Collection[str] = (),
    *,
    for_model: bool = False,
) -> Read:
    """Read the results that a program left beyond the registered numbers.

    Parameters
    ----------
    code : the program's text; labels must occur in it
    table : the Parquet table that the program read, or its numbers (patients, columns)
    minimum : smallest count of patients that may be shown
    names : variable names, which may be used as labels without occurring in the program
    for_model : round counts to multiples of the minimum, so that subtracting two counts
        cannot reveal a smaller count, and omit tables of estimates without counts
    """
    refused: list[str] = []
    tables: tuple[Table, ...] = ()
    if (out / FILE).exists() or (out / FILE).is_symlink():
        try:
            numbers = numbers_of(table) if isinstance(table, Path) else table
            tables = _tables(out / FILE, code, numbers, minimum, frozenset(names), for_model)
        except InputError as error:
            refused.append(str(error))
    images: list[bytes] = []
    found = sorted(path for path in out.glob("*.png") if path.is_file() and not path.is_symlink())
    for path in found[:MOST_IMAGES]:
        drawn = redraw(path)
        if drawn is None:
            refused.append("an image that is too large, or not a PNG")
        else:
            images.append(drawn)
    if len(found) > MOST_IMAGES:
        refused.append(f"more than {MOST_IMAGES} images")
    return Read(tables, tuple(images), tuple(dict.fromkeys(refused)))


def _tables(
    path: Path,
    code: str,
    numbers: NDArray[np.float64],
    minimum: int,
    names: frozenset[str],
    for_model: bool,
) -> tuple[Table, ...]:
    try:
        given = Given.model_validate(read_bounded(path, LARGEST_FILE))
    except ValidationError:
        raise InputError(
            f"{FILE} must consist of small tables with named columns and rows of numbers"
        ) from None
    known = _literals(code)
    values = [v for item in given.tables for row in item.rows for v in row.values if v is not None]
    rules = _Rules(
        rare=_rare(values, numbers, minimum),
        minimum=minimum,
        patients=len(numbers),
        step=minimum if for_model else 1,
    )
    shown = []
    for item in given.tables:
        labels = [item.name, *(column.name for column in item.columns)]
        labels += [row.name for row in item.rows]
        if not all(name in names or (name in known and may_label(name, names)) for name in labels):
            raise InputError(
                f"{FILE} contains an invalid label; a label has at most three lowercase words, "
                "appears in the program, and expresses no judgment"
            )
        if any(len(row.values) != len(item.columns) for row in item.rows):
            raise InputError(f"{FILE} has a row with the wrong number of values")
        if for_model and all(column.kind != "count" for column in item.columns):
            raise InputError(f"{FILE} has a table without a column of counts")
        shown.append(
            Table(
                name=item.name,
                columns=tuple(column.name for column in item.columns),
                rows=tuple(_row(row, item.columns, rules) for row in item.rows),
            )
        )
    return tuple(shown)


def may_label(text: str, names: Collection[str] = ()) -> bool:
    """Check whether a label is plain: up to three lower-case words that express no judgment.

    A variable name is also accepted and may be followed by a cut-point ("age≥65").
    """
    cut = _CUT.search(text)
    base = text[: cut.start()] if cut and cut.end() == len(text) else text
    return (base in names or _LABEL.fullmatch(base) is not None) and not judges(text)


def judges(text: str) -> str:
    """Return the first word in a text that expresses a judgment; empty if there is none."""
    found = _CLAIMS.search(text.lower())
    return found[0] if found else ""


def _literals(code: str) -> set[str]:
    """Collect the string literals in a program."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def numbers_of(table: Path) -> NDArray[np.float64]:
    """Read a Parquet table as numbers (patients, columns), with text as missing values."""
    import pandas as pd

    frame = pd.read_parquet(table).apply(pd.to_numeric, errors="coerce")
    numbers: NDArray[np.float64] = frame.to_numpy(dtype=float, na_value=math.nan)
    return numbers


def _rare(values: Collection[float], table: NDArray[np.float64], minimum: int) -> set[float]:
    """Find values shared by fewer than `minimum` patients in a column, to nine digits."""
    import numpy as np

    wanted = np.unique(np.asarray(values, dtype=float))
    if not len(wanted) or not table.size:
        return set()
    places = np.searchsorted(wanted, table)
    found: set[float] = set()
    for near in (np.clip(places - 1, 0, None), np.clip(places, None, len(wanted) - 1)):
        hits = np.argwhere(np.abs(table - wanted[near]) <= 1e-8 * np.abs(table))
        which = np.column_stack([hits[:, 1], near[tuple(hits.T)]])
        pairs, counts = np.unique(which, axis=0, return_counts=True)
        found |= {float(wanted[at]) for at in pairs[counts < minimum, 1]}
    return found


@dataclass(frozen=True)
class _Rules:
    """Limits on a cell: no `rare` value, counts from `minimum` to `patients` in steps of `step`."""

    rare: set[float]
    minimum: int
    patients: int
    step: int


def _row(row: GivenRow, columns: list[GivenColumn], rules: _Rules) -> tuple[str, ...]:
    """Format a row for display; if a count is hidden, so are the estimates in the row."""
    kinds = [column.kind for column in columns]
    cells = [_cell(v, kind, rules) for v, kind in zip(row.values, kinds, strict=True)]
    if any(k == "count" and not c.isdigit() for k, c in zip(kinds, cells, strict=True)):
        cells = [
            cell if kind == "count" or cell == "–" else "withheld"
            for cell, kind in zip(cells, kinds, strict=True)
        ]
    return (row.name, *cells)


def _cell(value: float | None, kind: str, rules: _Rules) -> str:
    if value is None:
        return "–"
    if kind == "count":
        if not 0 <= value <= rules.patients or value != int(value):
            return "–"
        if 0 < value < rules.minimum:
            return f"<{rules.minimum}"
        return f"{round_count(int(value), rules.step)}"
    if kind == "p" and not 0 <= value <= 1:
        return "–"
    if value in rules.rare:
        return "withheld"
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.2e}" if decimals > 9 else f"{rounded:.{decimals}f}"


def redraw(path: Path) -> bytes | None:
    """Redraw a PNG from its pixels only; None if it is too large or cannot be read."""
    from PIL import Image

    if path.stat().st_size > LARGEST_IMAGE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Image.open(path, formats=("PNG",)) as image:
                width, height = image.size
                if width * height > MOST_PIXELS or min(width, height) < 1:
                    return None
                pixels = image.convert("RGB")
        pixels.thumbnail((WIDEST, WIDEST))
        clean = Image.new("RGB", pixels.size)
        clean.paste(pixels)
        sink = io.BytesIO()
        clean.save(sink, format="PNG")
        return sink.getvalue()
    except Exception as error:  # noqa: BLE001 - whatever a hostile image does, it is left out
        log.failed("image left out", error)
        return None
