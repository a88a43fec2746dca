"""Interpretation of a column's cells: missing values, numbers, dates, and levels."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING

from sage_import.intake.names import word_set
from validation.cohort.tables import MISSING

if TYPE_CHECKING:
    import pandas as pd

WORDS = (
    frozenset(word.casefold() for word in MISSING)
    | word_set("- – — --- ? na. n.a. n/a. nd n.d. unk unknown missing inconnu unbekannt k.a.")
    | word_set("(null) <na> #value! #ref! #div/0! #name? #num!")
    | {f"not {word}" for word in word_set("available applicable evaluated assessed done known")}
    | {"not specified", "not recorded", "no data", "keine angabe", "non renseigné"}
)
"""Words that mean a missing value, in any case."""
SENTINELS = ("9999", "999", "99", "8888", "888", "777", "-1", "-9", "-99", "-999", "-9999")
PLAIN = re.compile(r"^[+-]?\d+$")
POINT = re.compile(r"^[+-]?\d*\.\d+([eE][+-]?\d+)?$|^[+-]?\d+[eE][+-]?\d+$|^[+-]?\d+\.$")
COMMA = re.compile(r"^[+-]?\d*,\d+([eE][+-]?\d+)?$")
THREE_COMMA = re.compile(r"^[+-]?[1-9]\d{0,2}(,\d{3})+$")
THREE_POINT = re.compile(r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$")
GROUPED_POINT = re.compile(r"^[+-]?[1-9]\d{0,2}(,\d{3})+\.\d+$")
GROUPED_COMMA = re.compile(r"^[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+$|^[+-]?[1-9]\d{0,2}(\.\d{3}){2,}$")
SPACED = re.compile(r"^[+-]?\d{1,3}([ \u00a0\u202f'’]\d{3})+([.,]\d+)?$")
YMD = re.compile(r"^(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?$")
XXY = re.compile(r"^(\d{1,2})([-/.])(\d{1,2})\2(\d{4})(?: \d{1,2}:\d{2}(?::\d{2})?)?$")
SHORT_YEAR = re.compile(r"^\d{1,2}([-/.])\d{1,2}\1\d{2}$")
NAMED = re.compile(r"^(\d{1,2})[-/. ]([A-Za-zä]{3,9})\.?[-/. ](\d{4})$")
MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar",
            "feb february februar",
            "mar march märz mrz",
            "apr april",
            "may mai",
            "jun june juni",
            "jul july juli",
            "aug august",
            "sep sept september",
            "oct october okt oktober",
            "nov november",
            "dec december dez dezember",
        ),
        start=1,
    )
    for name in names.split()
}
FEWEST_NUMBERS = 0.9
"""Minimum share of numbers among a column's known cells for a numeric column."""


@dataclass
class Column:
    """A column of strings with its interpretation."""

    table: str
    name: str
    cells: pd.Series
    place: int
    further: frozenset[str] = frozenset()
    decimal: str = "."
    order: str = ""
    label: str = ""
    sentinels: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

    @cached_property
    def absent(self) -> pd.Series:
        """Mask of cells that contain a missing-value code."""
        folded = self.cells.str.casefold()
        found = folded.isin(WORDS) | self.cells.isin(self.further | set(self.sentinels))
        return found | folded.str.match(r"^\[(not|unknown|discrepancy|completed|pending)[^\]]*\]$")

    @cached_property
    def present(self) -> pd.Series:
        """Cells that contain a value."""
        return self.cells[~self.absent]

    @cached_property
    def counts(self) -> Counter[str]:
        """Count of each known value."""
        return Counter(self.present)

    @cached_property
    def missing_codes(self) -> Counter[str]:
        """Counts of missing-value codes, except the empty cell."""
        return Counter(cell for cell in self.cells[self.absent] if cell)

    @cached_property
    def percent(self) -> bool:
        """True if the numbers are percentages: some have the sign, and no others are fractions."""
        signed = self.present.str.endswith("%")
        if not signed.any():
            return False
        rest = self.present[~signed].map(lambda cell: parse_number(cell, self.decimal)).dropna()
        return bool(rest.empty or rest.max() > 1)

    @cached_property
    def numbers(self) -> pd.Series:
        """Known cells as numbers, percentages without their sign; NaN for other cells."""
        known = self.present.str.removesuffix("%").str.strip() if self.percent else self.present
        return known.map(lambda cell: parse_number(cell, self.decimal)).astype(float)

    @cached_property
    def numeric(self) -> bool:
        """True if nearly all known cells are numbers."""
        return bool(len(self.present)) and self.numbers.notna().mean() >= FEWEST_NUMBERS

    @cached_property
    def odd(self) -> list[str]:
        """Non-numeric values among the numbers."""
        return sorted(set(self.present[self.numbers.isna()])) if self.numeric else []

    @cached_property
    def is_date(self) -> bool:
        """True if all known cells look like dates."""
        return bool(len(self.present)) and all(looks_like_date(cell) for cell in self.counts)

    @cached_property
    def short_years(self) -> bool:
        """True if the dates have two-digit years, whose century is unknown."""
        return bool(len(self.present)) and all(SHORT_YEAR.match(cell) for cell in self.counts)

    def dates(self) -> pd.Series:
        """Return the cells as days since 1970; NaN if missing or not a calendar date."""

        def days(cell: str) -> float:
            found = parse_date(cell, self.order)
            return float("nan") if found is None else float((found - date(1970, 1, 1)).days)

        return self.cells.where(~self.absent, "").map(days).astype(float)

    def line_of(self, cell: str, lines: list[int]) -> int:
        """Return the line of the file on which a value first appears."""
        return lines[int((self.cells == cell).to_numpy().argmax())]


def parse_number(cell: str, decimal: str) -> float:
    """Parse a cell as a number with the given decimal sign; NaN if it is not a number.

    The other sign, spaces, and apostrophes may group thousands.
    """
    text = cell.replace("\u2212", "-")
    other = "," if decimal == "." else "."
    if SPACED.match(text):
        text = re.sub(r"[ \u00a0\u202f'’]", "", text)
    grouped = THREE_COMMA if decimal == "." else THREE_POINT
    both = GROUPED_POINT if decimal == "." else GROUPED_COMMA
    if grouped.match(text) or both.match(text):
        text = text.replace(other, "")
    elif other in text:
        return float("nan")
    if decimal == ",":
        text = text.replace(",", ".")
    if not (PLAIN.match(text) or POINT.match(text)):
        return float("nan")
    return float(text)


def decimal_votes(cells: Counter[str]) -> tuple[int, int, int]:
    """Count cells readable only with a decimal comma, only with a point, and with either."""
    comma = point = either = 0
    for signed, times in cells.items():
        cell = signed.removesuffix("%").rstrip()
        if GROUPED_COMMA.match(cell) or (COMMA.match(cell) and not THREE_COMMA.match(cell)):
            comma += times
        elif GROUPED_POINT.match(cell) or (
            POINT.match(cell) and not THREE_POINT.match(cell) and "." in cell
        ):
            point += times
        elif THREE_COMMA.match(cell):
            either += times
    return comma, point, either


def looks_like_date(cell: str) -> bool:
    """Return True if a cell is written as a date with a four-digit year."""
    return bool(YMD.match(cell) or XXY.match(cell) or NAMED.match(cell))


def date_votes(cells: Counter[str]) -> tuple[int, int, int]:
    """Count dates that only fit day before month, only month before day, and both."""
    first = second = either = 0
    for cell, times in cells.items():
        match = XXY.match(cell)
        if match is None:
            continue
        left, right = int(match[1]), int(match[3])
        if left > 12:
            first += times
        elif right > 12:
            second += times
        elif left != right:
            either += times
    return first, second, either


def parse_date(cell: str, order: str) -> date | None:
    """Parse a cell as a date; None if it is not a date.

    Parameters
    ----------
    order : "dmy" or "mdy", for dates that end with the year
    """
    try:
        if match := YMD.match(cell):
            return date(int(match[1]), int(match[3]), int(match[4]))
        if match := NAMED.match(cell):
            return date(int(match[3]), MONTHS[match[2].casefold()], int(match[1]))
        if (match := XXY.match(cell)) and order:
            left, right = int(match[1]), int(match[3])
            day, month = (left, right) if order == "dmy" else (right, left)
            return date(int(match[4]), month, day)
    except (ValueError, KeyError):
        return None
    return None


def find_sentinels(column: Column) -> list[tuple[str, str]]:
    """Find missing-value codes that were entered as numbers, with evidence for each."""
    if not column.numeric or len(column.present) < 10:
        return []
    by_text = {code: column.numbers[column.present == code] for code in SENTINELS}
    present = {code: len(found) for code, found in by_text.items() if len(found)}
    rest = column.numbers[~column.present.isin(list(present))].dropna()
    if rest.empty or not present:
        return []
    low, high = float(rest.min()), float(rest.max())
    shown = []
    for code, times in present.items():
        value = float(code)
        if value < 0 and low >= 0:
            shown.append((code, f"{code} in {times} rows, all others from {low:g} on"))
        elif (
            value > 0
            and high > 0
            and len(set(rest)) > 1
            and (
                value > 5 * high
                or (times >= 2 and value > 1.2 * high and value > 500)
                or (times >= 2 and value > 3 * high)
            )
        ):
            shown.append((code, f"{code} in {times} rows, the next highest is {high:g}"))
    return shown


def format_number(value: float) -> str:
    """Format a number as in `cohort.toml`'s tables."""
    return format(value, ".15g")
