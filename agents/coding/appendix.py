"""What a program computes beyond the contract: read as hostile, typed, bounded, and set apart.

Tables of numbers and raster images, nothing else. A label is a short token of lower-case words that
stands as a string in the program's own text, which was written before the data were seen, so that
no value can travel in a name. Counts under the minimum are suppressed, values that fewer patients
than the minimum have in one of the table's columns are withheld, and numbers keep three significant
digits. Images are decoded within bounds and drawn again, so that only their pixels remain.

The appendix is shown in the report under its own heading. It enters no prompt, no summary and no
verdict.
"""

from __future__ import annotations

import ast
import io
import math
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError

from agents.base import View
from sage.core.errors import InputError
from sage.core.log import logger
from validation.reproduction.strictjson import read_bounded

log = logger(__name__)

TITLE = "Exploratory, written by a model, not registered, not checked by SAGE"
FILE = "exploratory.json"
LARGEST_FILE = 64 * 1024
MOST_TABLES, MOST_COLUMNS, MOST_ROWS, MOST_IMAGES = 6, 8, 20, 4
LARGEST_IMAGE = 2 * 1024 * 1024
MOST_PIXELS = 4_000_000
WIDEST = 900
_LABEL = re.compile(r"[a-z]{1,16}(_[a-z]{1,16}){0,2}")
_CLAIMS = re.compile(
    r"support|signific|valid|replic|confirm|reproduc|proven|verdict|independen|novel|approved"
)
"""Words of a judgment, which belongs to the verdict alone."""

Label = Annotated[str, Field(min_length=1, max_length=50)]
Cell = Annotated[float, Field(allow_inf_nan=False, ge=-1e9, le=1e9)]


class _Strict(View):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class GivenColumn(_Strict):
    """A column of an exploratory table, as the program declares it."""

    name: Label
    kind: Literal["count", "estimate", "p"]


class GivenRow(_Strict):
    """A row of an exploratory table: a label, and a number for each column."""

    name: Label
    values: list[Cell | None] = Field(min_length=1, max_length=MOST_COLUMNS)


class GivenTable(_Strict):
    """An exploratory table as the program left it."""

    name: Label
    columns: list[GivenColumn] = Field(min_length=1, max_length=MOST_COLUMNS)
    rows: list[GivenRow] = Field(min_length=1, max_length=MOST_ROWS)


class Given(_Strict):
    """`exploratory.json`."""

    tables: list[GivenTable] = Field(default_factory=list, max_length=MOST_TABLES)


class Table(View):
    """An exploratory table as it is shown: every cell a printed number, `<5`, or `–`."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Appendix(View):
    """Everything that a program added. `images` names files beside the appendix's own."""

    part: str
    program_sha256: str
    tables: tuple[Table, ...] = ()
    images: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Read:
    """An appendix with its images as PNG bytes, in the order of their names."""

    tables: tuple[Table, ...]
    images: tuple[bytes, ...]
    refused: tuple[str, ...]


def read_appendix(out: Path, code: str, table: Path, minimum: int) -> Read:
    """Read what a program left beyond the registered numbers.

    Parameters
    ----------
    out : the folder that the program wrote
    code : the program's text; labels must stand in it
    table : the Parquet table that the program read
    minimum : fewest patients that a shown count may have

    Returns
    -------
    What is shown, and in our own words what was left out.
    """
    refused: list[str] = []
    tables: tuple[Table, ...] = ()
    if (out / FILE).exists() or (out / FILE).is_symlink():
        try:
            tables = _tables(out / FILE, code, table, minimum)
        except InputError as error:
            refused.append(str(error))
    images: list[bytes] = []
    found = sorted(path for path in out.glob("*.png") if path.is_file() and not path.is_symlink())
    for path in found[:MOST_IMAGES]:
        drawn = redraw(path)
        if drawn is None:
            refused.append("an image that is too large, or no PNG")
        else:
            images.append(drawn)
    if len(found) > MOST_IMAGES:
        refused.append(f"more than {MOST_IMAGES} images")
    return Read(tables, tuple(images), tuple(dict.fromkeys(refused)))


def _tables(path: Path, code: str, table: Path, minimum: int) -> tuple[Table, ...]:
    try:
        given = Given.model_validate(read_bounded(path, LARGEST_FILE))
    except ValidationError:
        raise InputError(
            f"{FILE} has another form than small tables of named columns and rows of numbers"
        ) from None
    known = _literals(code)
    rare = _rare_values(table, minimum)
    shown = []
    for item in given.tables:
        labels = [item.name, *(column.name for column in item.columns)]
        labels += [row.name for row in item.rows]
        if not all(label in known and may_label(label) for label in labels):
            raise InputError(
                f"{FILE} has a label that is not up to three lower-case words, stands nowhere in "
                "the program, or is a word of judgment"
            )
        if any(len(row.values) != len(item.columns) for row in item.rows):
            raise InputError(f"{FILE} has a row with too few or too many numbers")
        shown.append(
            Table(
                name=item.name,
                columns=tuple(column.name for column in item.columns),
                rows=tuple(
                    (
                        row.name,
                        *(
                            _cell(value, column.kind, rare, minimum)
                            for value, column in zip(row.values, item.columns, strict=True)
                        ),
                    )
                    for row in item.rows
                ),
            )
        )
    return tuple(shown)


def may_label(text: str) -> bool:
    """Whether a text is a plain label: up to three lower-case words, none of them a judgment."""
    return _LABEL.fullmatch(text) is not None and not _CLAIMS.search(text)


def _literals(code: str) -> set[str]:
    """The strings that stand in a program's text."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _rare_values(table: Path, minimum: int) -> set[float]:
    """Numbers that fewer than `minimum` patients have in some column of the table."""
    import pandas as pd

    frame = pd.read_parquet(table)
    rare: set[float] = set()
    for name in frame.columns:
        numbers = pd.to_numeric(frame[name], errors="coerce").dropna().astype(float)
        counts = numbers.value_counts()
        rare |= {float(f"{value:.9g}") for value in counts.index[counts < minimum]}
    return rare


def _cell(value: float | None, kind: str, rare: set[float], minimum: int) -> str:
    if value is None:
        return "–"
    if kind == "count":
        if value < 0 or value != int(value):
            return "–"
        return f"<{minimum}" if 0 < value < minimum else f"{int(value)}"
    if kind == "p" and not 0 <= value <= 1:
        return "–"
    if float(f"{value:.9g}") in rare:
        return "withheld"
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    return f"{rounded:.{min(9, max(0, 2 - math.floor(math.log10(abs(rounded)))))}f}"


def redraw(path: Path) -> bytes | None:
    """A PNG drawn again from its pixels alone; None when it is too large or cannot be read."""
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
