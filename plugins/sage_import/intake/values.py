"""Interpretation of a column's cells: missing values, numbers, dates, and levels.

Everything is decided from the column's own cells and name.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from sage.core import clock
from sage_import.intake.names import BIRTH, DEATH, LAST, START, TIME, tokens, word_set, words
from validation.cohort.tables import MISSING

if TYPE_CHECKING:
    import pandas as pd

WORDS = (
    frozenset(word.casefold() for word in MISSING)
    | word_set("--- ? na. n.a. n/a. nd n.d. unk unknown missing inconnu unbekannt k.a.")
    | word_set("(null) <na> #value! #ref! #div/0! #name? #num!")
    | {f"not {word}" for word in word_set("available applicable evaluated assessed done known")}
    | {"not specified", "not recorded", "no data", "keine angabe", "non renseigné"}
)
"""Words that mean a missing value, in any letter case."""
DASHES = frozenset("-–—−")
"""Marks that mean missing, or negative if the column's other levels are signs or grades."""
BRACKETED = re.compile(r"^\[(not|unknown|discrepancy|completed|pending)[^\]]*\]$")
SIGN = re.compile(r"^\(?\+{1,4}\)?$|^[+-]/[+-]$|^\+-$|^±$|^[1-4]\+$")
SENTINELS = ("9999", "999", "99", "9", "8888", "888", "88", "777", "-1", "-9", "-99", "-999",
             "-9999")  # fmt: skip
SPACES = " \u00a0\u202f'’"
NUMBER = {
    sign: re.compile(
        rf"[+-]?(?=\{sign}?\d)(?:\d*(?:\{sign}\d*)?(?:[eE][+-]?\d+)?|"
        rf"(?:[1-9]\d{{0,2}}(?:\{other}\d{{3}})+|\d{{1,3}}(?:[{SPACES}]\d{{3}})+)(?:\{sign}\d+)?)"
    )
    for sign, other in (".,", ",.")
}
"""Number patterns by decimal separator.

The other separator, spaces and apostrophes may group thousands.
"""
SUFFIX = re.compile(r"^([+-]?[\d.,]+)\s*(%|[^\W\d_]{1,8}\.?(?:/[^\W\d_]{1,4}\d?)?)$")
BOUNDED = re.compile(
    r"^(?:(?P<sign>[<>≤≥]|[<>]=|=[<>])\s*(?P<number>\d[\d.,]*)|"
    r"(?P<least>\d[\d.,]*)\s*(?:\+|and over|or (?:older|more|above|over)|und älter))"
    r"(?:\s*(?:years?|yrs?|y|jahre?|ans))?$",
    re.IGNORECASE,
)
NO_DATE = TIME | {"number", "no", "age", "id", "count"}
TIME_OF_DAY = r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
YMD = re.compile(rf"^(\d{{4}})([-/.])(\d{{1,2}})\2(\d{{1,2}}){TIME_OF_DAY}$")
XXY = re.compile(rf"^(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}|\d{{2}}){TIME_OF_DAY}$")
NAMED = re.compile(r"^(\d{1,2})\.?[-/. ]*([^\W\d_]{3,9})\.?[-/., ]*(\d{4}|\d{2})$")
MONTH_FIRST = re.compile(r"^([^\W\d_]{3,9})\.? (\d{1,2}),? (\d{4})$")
COMPACT = re.compile(r"^(19|20)\d{2}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])$")
SERIAL = re.compile(r"^([1-6]\d{4})(\.\d+)?$")
EPOCH = date(1899, 12, 30)
"""Day zero of spreadsheet serial dates."""
FIRST_SERIAL = 29_000
"""Minimum serial date in a column of only numbers (1979), above day numbers from R and SAS."""
YOUNGEST = 15
"""Minimum age assumed when a two-digit birth year is assigned to a century."""
MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar janv janvier",
            "feb february februar févr fevr février",
            "mar march märz mrz mars",
            "apr april avr avril",
            "may mai",
            "jun june juni juin",
            "jul july juli juil juillet",
            "aug august août aout",
            "sep sept september septembre",
            "oct october okt oktober octobre",
            "nov november novembre",
            "dec december dez dezember déc décembre",
        ),
        start=1,
    )
    for name in names.split()
}
COUNTED = word_set("count number nodes node size n age weight height dose")
"""Words in names of columns whose whole numbers are counts or measurements, not codes."""
FEWEST_NUMBERS = 0.9
"""Minimum fraction of known cells that are numbers (or dates) for a column of that kind."""
MOST_TRIED = 50
"""Number of distinct cells that are tested before a column without dates is ruled out."""
FEWEST_VALUES = 7
"""Minimum number of distinct numbers for `90+` to be a bound rather than a level."""


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
    latest: int = 0
    """Latest year for two-digit years in dates; 0 means this year."""
    kept: frozenset[str] = frozenset()
    """Codes that the user set as levels, not as missing."""

    @cached_property
    def coded(self) -> pd.Series:
        """Mask of cells that contain a code for missing.

        A code is a level if it belongs to the scale of the column's other values: a dash beside
        signs or grades, or the negation of the only other value ("D" and "ND").
        """
        distinct = set(self.cells)
        codes = {cell for cell in distinct if cell in DASHES or is_missing(cell)}
        others = {cell.casefold() for cell in distinct - codes}
        levels = set(self.kept)
        if any(SIGN.match(other) for other in others) and "0" not in others:
            levels |= DASHES
        if len(others) == 1:
            denied = {f"{no}{other}" for other in others for no in ("not ", "n") if other}
            levels |= {cell for cell in codes if cell.casefold() in denied}
        return self.cells.isin((codes - levels) | (self.further - self.kept))

    @cached_property
    def suffix(self) -> str:
        """Unit written after the numbers, as in `45 %`; empty if there is none or for fractions."""
        known = self.cells[~self.coded]
        found = Counter(match[2] for cell in known if (match := SUFFIX.match(cell)))
        if len(found) != 1:
            return ""
        (unit,) = found
        if unit != "%" and known.nunique() < FEWEST_VALUES:
            return ""  # levels such as 1a and 2a
        rest = known[~known.str.endswith(unit)].map(lambda cell: parse_number(cell, self.decimal))
        if unit == "%":
            return unit if rest.dropna().empty or rest.max() > 1 else ""
        return unit if len(rest) == 0 or (len(rest) < 0.1 * len(known)) else ""

    @cached_property
    def bounded(self) -> Counter[str]:
        """Counts of cells such as `>89` or `90+` that bound a number."""
        known = Counter(self.cells[~self.coded])
        found = Counter({cell: times for cell, times in known.items() if BOUNDED.match(cell)})
        plain = {parse_number(cell, self.decimal) for cell in known} if found else set()
        return found if sum(value == value for value in plain) >= FEWEST_VALUES else Counter()

    @cached_property
    def _values(self) -> pd.Series:
        """Cells as numbers, or dates as days; NaN for other cells and missing-value codes."""
        known = self.cells[~self.coded]
        if self.is_date:
            return known.map({cell: self._day(cell) for cell in set(known)}).astype(float)
        text = known.str.removesuffix(self.suffix).str.strip() if self.suffix else known
        numbers = {cell: parse_number(cell, self.decimal) for cell in set(text)}
        found = text.map(numbers).astype(float)
        if self.bounded:
            whole = bool((found.dropna() % 1 == 0).all())
            at = known.isin(self.bounded)
            found[at] = known[at].map(lambda cell: parse_bound(cell, self.decimal, whole))
        return found

    @cached_property
    def numeric(self) -> bool:
        """True if all known cells are numbers, or nearly all are and many are distinct."""
        read = self._values
        if self.is_date or read.empty or read.isna().all():
            return False
        return bool(
            read.notna().all()
            or (read.notna().mean() >= FEWEST_NUMBERS and read.nunique() >= FEWEST_VALUES)
        )

    @cached_property
    def is_date(self) -> bool:
        """True if nearly all known cells are dates, or serial dates from a spreadsheet."""
        known = Counter(self.cells[~self.coded])
        first = list(known)[:MOST_TRIED]
        if not self._named_date and not any(map(looks_like_date, first)):
            return False
        total = sum(known.values())
        dates = sum(times for cell, times in known.items() if looks_like_date(cell))
        if dates >= 0.5 * total or self._named_date:
            least = 0 if dates or BIRTH.search(words(self.name)) else FIRST_SERIAL
            serial = {cell: int(match[1]) for cell in known if (match := SERIAL.match(cell))}
            dates += sum(known[cell] for cell, day in serial.items() if day >= least)
            dates += sum(n for cell, n in known.items() if COMPACT.match(cell))
        return total > 0 and dates >= FEWEST_NUMBERS * total

    @property
    def _named_date(self) -> bool:
        text = words(self.name)
        dated = any(kind.search(text) for kind in (START, LAST, DEATH, BIRTH))
        named = set(tokens(self.name))
        return ("date" in named or dated) and not named & NO_DATE

    @cached_property
    def sentinels(self) -> dict[str, str]:
        """Numbers that mean missing, with the evidence for each."""
        birth = "birth" in tokens(self.name) and min(self._values, default=0) < 0
        return {} if birth or not self.numeric else find_sentinels(self)

    @cached_property
    def absent(self) -> pd.Series:
        """Mask of cells without a value: codes for missing, and text among numbers or dates."""
        found = self.coded | self.cells.isin(set(self.sentinels) - self.kept)
        if self.numeric or self.is_date:
            found |= ~self.cells.index.isin(self._values.dropna().index)
        return found

    @cached_property
    def present(self) -> pd.Series:
        """Cells with a value."""
        return self.cells[~self.absent]

    @cached_property
    def counts(self) -> Counter[str]:
        """Number of cells with each known value."""
        return Counter(self.present)

    @cached_property
    def missing_codes(self) -> Counter[str]:
        """Counts of values read as missing, except the empty cell."""
        return Counter(cell for cell in self.cells[self.absent] if cell)

    @cached_property
    def numbers(self) -> pd.Series:
        """Known cells as numbers without their unit; NaN for other cells."""
        return self._values.reindex(self.present.index)

    def values(self) -> pd.Series:
        """Return a number per row: the number itself, or the day since 1970 of a date."""
        return self._values.reindex(self.cells.index).where(~self.absent).astype(float)

    @cached_property
    def short_years(self) -> bool:
        """True if dates have two-digit years."""
        found = (XXY.match(cell) or NAMED.match(cell) for cell in self.cells[~self.coded])
        return self.is_date and any(match and len(match[match.re.groups]) == 2 for match in found)

    def _day(self, cell: str) -> float:
        found = self.date_of(cell)
        return float("nan") if found is None else float((found - date(1970, 1, 1)).days)

    def date_of(self, cell: str) -> date | None:
        """Parse a cell as a date in this column's date order; None if it is not a date."""
        return parse_date(cell, self.order, self.latest)

    def line_of(self, cell: str, lines: list[int]) -> int:
        """Return the line in the file on which a value first appears."""
        return lines[int((self.cells == cell).to_numpy().argmax())]


def is_missing(cell: str) -> bool:
    """Return True for a word or code that means a missing value."""
    text = cell.casefold()
    return text in WORDS or BRACKETED.match(text) is not None


def parse_number(cell: str, decimal: str) -> float:
    """Parse a cell as a number with the given decimal separator; NaN if it is not a number."""
    text = cell.replace("\u2212", "-")
    if not NUMBER[decimal].fullmatch(text):
        return float("nan")
    kept = (char for char in text if char.isdigit() or char in f"+-eE{decimal}")
    return float("".join(kept).replace(decimal, "."))


def parse_bound(cell: str, decimal: str, whole: bool) -> float:
    """Parse `>89`, `≥90` or `90+` as the nearest number that it allows.

    With `whole`, the column consists of whole numbers.
    """
    match = BOUNDED.match(cell)
    if match is None:
        return float("nan")
    number = parse_number(match["number"] or match["least"], decimal)
    strict = {">": 1, "<": -1}.get(match["sign"] or "", 0)
    return number + (strict if whole else 0)


def decimal_votes(cells: Counter[str]) -> tuple[int, int, int]:
    """Count cells readable only with a decimal comma, only with a point, and with either."""
    votes: Counter[str] = Counter()
    for signed, times in cells.items():
        match = SUFFIX.match(signed)
        cell = match[1] if match else signed
        read = {sign: parse_number(cell, sign) for sign in NUMBER}
        signs = [sign for sign, number in read.items() if number == number]
        if len(signs) == 1 or ("," in cell and len(set(read.values())) == len(signs)):
            votes["".join(signs)] += times
    return votes[","], votes["."], votes[".,"]


def looks_like_date(cell: str) -> bool:
    """Return True if a cell is written as a date."""
    named = NAMED.match(cell)
    first = MONTH_FIRST.match(cell)
    return bool(
        YMD.match(cell)
        or XXY.match(cell)
        or (named and named[2].casefold() in MONTHS)
        or (first and first[1].casefold() in MONTHS)
    )


def date_votes(cells: Counter[str]) -> tuple[int, int, int]:
    """Count dates that fit only day before month, only month before day, and both."""
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


def parse_date(cell: str, order: str, latest: int = 0) -> date | None:
    """Parse a cell as a date; None if it is not a date.

    Parameters
    ----------
    order : "dmy" or "mdy", for dates that end with the year
    latest : last year that a two-digit year may mean; 0 for this year
    """
    try:
        if match := YMD.match(cell):
            return date(int(match[1]), int(match[3]), int(match[4]))
        if match := NAMED.match(cell):
            year = _whole_year(match[3], latest)
            return date(year, MONTHS[match[2].casefold()], int(match[1]))
        if match := MONTH_FIRST.match(cell):
            return date(int(match[3]), MONTHS[match[1].casefold()], int(match[2]))
        if COMPACT.match(cell):
            return date(int(cell[:4]), int(cell[4:6]), int(cell[6:]))
        if match := SERIAL.match(cell):
            return EPOCH + timedelta(days=int(match[1]))
        if (match := XXY.match(cell)) and order:
            left, right = int(match[1]), int(match[3])
            day, month = (left, right) if order == "dmy" else (right, left)
            return date(_whole_year(match[4], latest), month, day)
    except (ValueError, KeyError):
        return None
    return None


def this_year() -> int:
    """Return the current year."""
    return date.fromtimestamp(clock.seconds()).year


def _whole_year(text: str, latest: int) -> int:
    if len(text) == 4:
        return int(text)
    latest = latest or this_year()
    year = latest - latest % 100 + int(text)
    return year if year <= latest else year - 100


def find_sentinels(column: Column) -> dict[str, str]:
    """Find numbers entered as codes for missing values, with evidence for each."""
    cells, read = column.cells[~column.coded], column._values
    if len(read) < 10:
        return {}
    known = Counter(cells)
    present = {code: known[code] for code in SENTINELS if code in known}
    if not present:
        return {}
    rest = read[~cells.isin(list(present))].dropna()
    if rest.empty:
        return {}
    low, high = float(rest.min()), float(rest.max())
    shown = {}
    codes = len(set(rest)) <= 6 and high <= 5 and bool((rest % 1 == 0).all())
    for code, times in present.items():
        value = float(code)
        if value < 0 <= low:
            shown[code] = f"{code} in {times} rows, all others from {low:g} on"
        elif (
            value > 0
            and high > 0
            and len(set(rest)) > 1
            and (
                (value > 5 * high and value > 9)
                or (times >= 2 and value > 1.2 * high and value > 500)
                or (times >= 2 and value > 3 * high and value > 9)
                or (value >= high + 4 and codes and not COUNTED & set(tokens(column.name)))
            )
        ):
            shown[code] = f"{code} in {times} rows, the next highest is {high:g}"
    return shown


def format_number(value: float) -> str:
    """Format a number as in the tables of a `cohort.toml`."""
    return format(value, ".15g")
