"""What of a file was known by a day: rows, entries and objects that are dated later are cut away.

Days are read as 2024-06-01, 01.06.2024, 1/6/2024 and 1 June 2024. One that can be read in two ways
counts as the later of the two; a month or a year alone counts as no day.
"""

from __future__ import annotations

import csv
import io
import re
from datetime import date

from agents.tumor_board.rules.blood import delimiter_of

_YEAR = r"(?:19|20)\d\d"
_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "mär": 3, "apr": 4, "may": 5, "mai": 5, "jun": 6, "jul": 7,
           "aug": 8, "sep": 9, "oct": 10, "okt": 10, "nov": 11, "dec": 12, "dez": 12}  # fmt: skip
_MONTH = rf"(?:{'|'.join(_MONTHS)})[^\W\d_]{{0,6}}\.?"
_APART = (
    rf"(?P<y>{_YEAR})[-./](?P<m>\d\d?)[-./](?P<d>\d\d?)(?!\d)"
    rf"|(?P<p>\d\d?)(?P<by>[-./])(?P<q>\d\d?)(?P=by)(?P<v>{_YEAR})(?!\d)"
    rf"|(?P<e>\d\d?)(?:st|nd|rd|th|\.)?[ -]?(?P<n>{_MONTH}),?[ -]?(?P<w>{_YEAR})(?!\d)"
    rf"|(?P<o>{_MONTH})[ -](?P<f>\d\d?)(?:st|nd|rd|th)?,?[ -](?P<x>{_YEAR})(?!\d)"
)
_CLOSE = rf"(?P<cy>{_YEAR})_?(?P<cm>0[1-9]|1[0-2])_?(?P<cd>[0-2]\d|3[01])(?!\d)"
_ANYWHERE = re.compile(rf"(?<![\d.])(?:{_APART}|{_CLOSE})", re.IGNORECASE)
_ENTRY = re.compile(rf"\W{{0,8}}(?:dat(?:e|um)\W{{0,3}})?(?:{_APART})", re.IGNORECASE)
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_TOKEN = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_VALUE = re.compile(rf"\s*+:\s*+({_STRING}|[^\s,{{}}\[\]\"]+)?", re.DOTALL)


def days_in(text: str) -> list[date]:
    """Every day that a text names."""
    return [day for found in _ANYWHERE.finditer(text) if (day := _day(found)) is not None]


def _day(found: re.Match[str]) -> date | None:
    """The day of a match, the later one where it can be read in two ways."""
    part = found.groupdict()
    if part["by"]:
        year, first, second = part["v"], part["p"], part["q"]
        ways = [(year, second, first)]
        if part["by"] != ".":
            ways.append((year, first, second))
    elif name := part["n"] or part["o"]:
        ways = [(part["w"] or part["x"], str(_MONTHS[name[:3].lower()]), part["e"] or part["f"])]
    else:
        ways = [(part["y"] or part["cy"], part["m"] or part["cm"], part["d"] or part["cd"])]
    return max((day for way in ways if (day := _date(*way)) is not None), default=None)


def _date(year: str, month: str, day: str) -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None


def until_day(text: str, name: str, as_of: date) -> tuple[str, int]:
    """The text without rows, entries and objects that are dated later, and how many those are.

    Parameters
    ----------
    text : of the file
    name : its ending says whether it is a table, JSON or a text
    as_of : what is dated later is cut away
    """
    ending = name.lower().rpartition(".")[2]
    if ending in ("csv", "tsv"):
        return _rows(text, delimiter_of(name, text), as_of)
    if ending == "json":
        return _objects(text, as_of)
    kept: list[str] = []
    hidden, late = 0, False
    for line in text.split("\n"):
        day = _begins_with(line)
        late = day > as_of if day is not None else late
        hidden += late and bool(line.strip())
        if not late:
            kept.append(line)
    return "\n".join(kept), hidden


def _begins_with(text: str) -> date | None:
    found = _ENTRY.match(text)
    return _day(found) if found is not None else None


def _later(text: str, *, dated: bool, as_of: date) -> bool:
    """Whether a cell or value is later: by any day in one called a date, else by its beginning."""
    days = days_in(text) if dated else [_begins_with(text)]
    return any(day is not None and day > as_of for day in days)


def _names_a_date(name: str) -> bool:
    return "date" in name.casefold() or "datum" in name.casefold()


def _rows(text: str, delimiter: str, as_of: date) -> tuple[str, int]:
    """A table's rows, of a cell in any column that is a day: a header may stand below a title."""
    lines = text.splitlines(keepends=True)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    kept: list[str] = []
    hidden = before = 0
    dated: list[bool] = []
    try:
        for row in reader:
            whole = lines[before : reader.line_num]
            before = reader.line_num
            if any(map(_names_a_date, row)) and not any(dated):
                dated = [_names_a_date(cell) for cell in row]
            late = any(
                _later(cell, dated=at < len(dated) and dated[at], as_of=as_of)
                for at, cell in enumerate(row)
            )
            hidden += late
            kept += [] if late else whole
    except csv.Error:  # what cannot be parted into cells is held to every day that it names
        rest = lines[before:]
        known = [line for line in rest if not _later(line, dated=True, as_of=as_of)]
        return "".join(kept + known), hidden + len(rest) - len(known)
    return "".join(kept), hidden


def _objects(text: str, as_of: date) -> tuple[str, int]:
    """A JSON text with an empty object in place of each that a field of its own dates later.

    A key that is a day dates its value. Parted by brackets, so that a text that is no whole JSON is
    cut as well.
    """
    spans: list[tuple[int, int]] = []
    open_: list[tuple[int, bool]] = []
    end = 0
    late_next = False
    for token in _TOKEN.finditer(text):
        if token.start() < end:
            continue
        mark = token[0]
        if mark in "{[":
            open_.append((token.start(), late_next))
            late_next = False
        elif mark in "}]":
            if open_ and (closed := open_.pop())[1]:
                spans.append((closed[0], token.end()))
        elif value := _VALUE.match(text, token.end()):
            key, said = mark[1:-1], value[1]
            late_next = _later(key, dated=False, as_of=as_of)
            if said is not None:
                end = value.end()
                plain = said.strip('"')
                late = late_next or _later(plain, dated=_names_a_date(key), as_of=as_of)
                late_next = False
                if late and open_:
                    open_[-1] = (open_[-1][0], True)
        elif open_ and _later(mark[1:-1], dated=False, as_of=as_of):
            spans.append(token.span())
    spans += [(start, len(text)) for start, late in open_ if late]
    kept: list[str] = []
    end = hidden = 0
    for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= end:
            kept += [text[end:start], "{}"]
            end, hidden = stop, hidden + 1
    return "".join([*kept, text[end:]]), hidden
