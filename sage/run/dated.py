"""What of a file was known by a day: rows, entries and objects that are dated later are cut away.

Days are read as 2024-06-01, 01.06.2024, 01.06.24, 1/6/2024 and 1 June 2024. One that can be read in
two ways counts as the later of the two, a month alone (June 2024, 06/2024, 2024-06) as its first
day; a year alone counts as no day.
"""

from __future__ import annotations

import csv
import io
import re
from bisect import bisect_left
from datetime import date

from sage_tumor_board.board.rules.blood import delimiter_of

_YEAR = r"(?:19|20)\d\d"
_MONTHS = {"jan": 1, "feb": 2, "mar": 3, "mär": 3, "mae": 3, "apr": 4, "may": 5, "mai": 5, "jun": 6,
           "jul": 7, "aug": 8, "sep": 9, "oct": 10, "okt": 10, "nov": 11, "dec": 12,
           "dez": 12}  # fmt: skip
_MONTH = rf"(?:{'|'.join(_MONTHS)})[^\W\d_]{{0,6}}\.?"
_APART = (
    rf"(?P<y>{_YEAR})[-./](?P<m>\d\d?)[-./](?P<d>\d\d?)(?!\d)"
    rf"|(?P<p>\d\d?)(?P<by>[-./])(?P<q>\d\d?)(?P=by)(?P<v>{_YEAR})(?!\d)"
    r"|(?P<sp>\d\d?)(?P<sby>[./])(?P<sq>\d\d?)(?P=sby)(?P<sv>\d\d)(?!\.?\d)"
    rf"|(?P<e>\d\d?)(?:st|nd|rd|th|\.)?(?: of)?[ -]?(?P<n>{_MONTH}),?[ -]?(?P<w>{_YEAR})(?!\d)"
    rf"|(?P<o>{_MONTH})[ -](?P<f>\d\d?)(?:st|nd|rd|th)?,?[ -](?P<x>{_YEAR})(?!\d)"
    rf"|(?<!\w)(?P<mn>{_MONTH}),?[ -]?(?:of )?(?P<mv>{_YEAR})(?!\d)"
    r"|(?<![\w/-])(?P<nm>0?[1-9]|1[0-2])/(?P<nv>20\d\d)(?![\d/])"
    r"|(?<![\w-])(?P<iv>20\d\d)-(?P<im>0[1-9]|1[0-2])(?![\w-])"
)
_CLOSE = rf"(?P<cy>{_YEAR})_?(?P<cm>0[1-9]|1[0-2])_?(?P<cd>[0-2]\d|3[01])(?!\d)"
_SAID = re.compile(rf"(?<![\d.])(?:{_APART})", re.IGNORECASE)
_ANYWHERE = re.compile(rf"(?<![\d.])(?:{_APART}|{_CLOSE})", re.IGNORECASE)
_ENTRY = re.compile(rf"\W{{0,8}}(?:dat(?:e|um)\W{{0,3}})?(?:{_APART})", re.IGNORECASE)
_HEADS = re.compile(r"\s*(?:[]:;,|)\t–-]|\Z)")
"""What follows the day of an entry; in a sentence that was broken into lines it is a word."""
_SENTENCE = re.compile(r"[.!?;]\s+(?=[A-ZÄÖÜ0-9\"“(\[])")
_ITEM = re.compile(r"\s*(?:[-*•|>#]|\d+[.)]\s)")
_WRAPPED = 50
"""A line at least so long, without an end of a sentence, goes on in the next."""
_NEXT_CENTURY = 30
"""01.06.31 is a day of 1931."""
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_TOKEN = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_VALUE = re.compile(rf"\s*+:\s*+({_STRING}|[^\s,{{}}\[\]\"]+)?", re.DOTALL)


def days_in(text: str) -> list[date]:
    """Every day that a text names."""
    return [day for found in _ANYWHERE.finditer(text) if (day := _day(found)) is not None]


def _day(found: re.Match[str]) -> date | None:
    """The day of a match, the later one where it can be read in two ways."""
    part = found.groupdict()
    if by := part["by"] or part["sby"]:
        year = part["v"] or part["sv"]
        if len(year) == 2:
            year = f"{20 if int(year) <= _NEXT_CENTURY else 19}{year}"
        first, second = (part["p"], part["q"]) if part["by"] else (part["sp"], part["sq"])
        ways = [(year, second, first)]
        if by != ".":
            ways.append((year, first, second))
    elif name := part["n"] or part["o"] or part["mn"]:
        ways = [(part["w"] or part["x"] or part["mv"], str(_MONTHS[name[:3].lower()]),
                 part["e"] or part["f"] or "1")]  # fmt: skip
    elif month := part["nm"] or part["im"]:
        ways = [(part["nv"] or part["iv"], month, "1")]
    else:
        ways = [
            (part["y"] or part.get("cy"), part["m"] or part.get("cm"), part["d"] or part.get("cd"))
        ]
    return max((day for way in ways if (day := _date(*way)) is not None), default=None)


def _date(year: str, month: str, day: str) -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None


def until_day(text: str, name: str, as_of: date, *, said: bool = True) -> tuple[str, int]:
    """The text without rows, entries and objects that are dated later, and how many those are.

    Parameters
    ----------
    text : of the file
    name : its ending says whether it is a table, JSON or a text
    as_of : what is dated later is cut away
    said : also by a later day inside a sentence, with what follows it in the entry
    """
    ending = name.lower().rpartition(".")[2]
    if ending in ("csv", "tsv"):
        return _rows(text, delimiter_of(name, text), as_of, said=said)
    if ending == "json":
        return _objects(text, as_of, said=said)
    return _entries(text, as_of, said=said)


def _entries(text: str, as_of: date, *, said: bool) -> tuple[str, int]:
    """A text up to a later day's sentence, and on from the next line that begins with a known day.

    A text that tells of a later day was written after it, and so was what follows.
    """
    flat = text.replace("\n", " ")
    later = [m.start() for m in _SAID.finditer(flat)
             if (day := _day(m)) is not None and day > as_of] if said else []  # fmt: skip
    kept: list[str] = []
    hidden = at = start = 0
    late = False
    for line in text.split("\n"):
        end = at + len(line)
        found = _ENTRY.match(line)
        day = _day(found) if found is not None else None
        known = day is not None and day <= as_of
        if late and found is not None and known and (
            _HEADS.match(line, found.end()) or not _goes_on(text, at)
        ):  # fmt: skip
            late, start = False, at
        if not late:
            first = at if day is not None and not known else None
            place = bisect_left(later, at)
            if first is None and place < len(later) and later[place] < end:
                first = later[place]
            if first is not None:
                cut = _sentence(text, first, start)
                kept.append(text[start:cut])
                hidden += text.count("\n", cut, at)
                late = True
        hidden += late and bool(line.strip())
        at = end + 1
    if not late:
        kept.append(text[start:])
    return "".join(kept), hidden


def _goes_on(text: str, start: int) -> bool:
    """Whether the line that starts here goes on with the sentence of the line before."""
    before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : start].strip()
    return (len(before) >= _WRAPPED and before[-1] not in ".!?;:"
            and _ITEM.match(text, start) is None)  # fmt: skip


def _sentence(text: str, place: int, floor: int) -> int:
    """Where the sentence begins in which a place lies; a new line begins one unless it goes on."""
    while True:
        start = max(floor, text.rfind("\n", 0, place) + 1)
        ends = [found.end() for found in _SENTENCE.finditer(text, start, place + 1)]
        if ends or start == floor or not _goes_on(text, start):
            return ends[-1] if ends else start
        place = start - 1


def _begins_with(text: str) -> date | None:
    found = _ENTRY.match(text)
    return _day(found) if found is not None else None


def _later(text: str, as_of: date, *, dated: bool = False, said: bool = False) -> bool:
    """Whether a cell or value is later: by any day in one called a date, else by its beginning.

    With `said` also by a day that stands inside it.
    """
    days = days_in(text) if dated else [_begins_with(text)]
    if said:
        days = [*days, *(_day(found) for found in _SAID.finditer(text))]
    return any(day is not None and day > as_of for day in days)


def _names_a_date(name: str) -> bool:
    return "date" in name.casefold() or "datum" in name.casefold()


def _rows(text: str, delimiter: str, as_of: date, *, said: bool) -> tuple[str, int]:
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
                _later(cell, as_of, dated=at < len(dated) and dated[at], said=said)
                for at, cell in enumerate(row)
            )
            hidden += late
            kept += [] if late else whole
    except csv.Error:  # what cannot be parted into cells is held to every day that it names
        rest = lines[before:]
        known = [line for line in rest if not _later(line, as_of, dated=True)]
        return "".join(kept + known), hidden + len(rest) - len(known)
    return "".join(kept), hidden


def _objects(text: str, as_of: date, *, said: bool) -> tuple[str, int]:
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
            key, told = mark[1:-1], value[1]
            late_next = _later(key, as_of)
            if told is not None:
                end = value.end()
                plain = told.strip('"')
                late = late_next or _later(plain, as_of, dated=_names_a_date(key))
                late_next = False
                if late and open_:
                    open_[-1] = (open_[-1][0], True)
                elif _later(plain, as_of, said=said):
                    spans.append(value.span(1))
        elif open_ and _later(mark[1:-1], as_of, said=said):
            spans.append(token.span())
    spans += [(start, len(text)) for start, late in open_ if late]
    kept: list[str] = []
    end = hidden = 0
    for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= end:
            kept += [text[end:start], "{}"]
            end, hidden = stop, hidden + 1
    return "".join([*kept, text[end:]]), hidden
