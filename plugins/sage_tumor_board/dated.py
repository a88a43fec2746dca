"""Truncation of text, tables, and JSON at a day, removing content with a later date.

Days are read as 2024-06-01, 01.06.2024, 01.06.24, 1/6/2024 and 1 June 2024. An ambiguous
day counts as the later reading, and a month (June 2024, 06/2024, 2024-06) as its first
day; a year without a month is ignored.
"""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import date
from typing import Any

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
_COMPACT = rf"(?P<cy>{_YEAR})_?(?P<cm>0[1-9]|1[0-2])_?(?P<cd>[0-2]\d|3[01])(?!\d)"
_IN_TEXT = re.compile(rf"(?<![\d.])(?:{_APART})", re.IGNORECASE)
_ANYWHERE = re.compile(rf"(?<![\d.])(?:{_APART}|{_COMPACT})", re.IGNORECASE)
_HEADING = re.compile(rf"\W{{0,8}}(?:dat(?:e|um)\W{{0,3}})?(?:{_APART})", re.IGNORECASE)
_AFTER_HEADING = re.compile(r"\s*(?:[]:;,|)\t–-]|\Z)")
_SENTENCE = re.compile(r"[.!?;]\s+(?=[A-ZÄÖÜ0-9\"“(\[])|\n[ \t]*\n")
_WRAPPED = 50
"""Minimum length of a line without a sentence end for it to continue on the next line."""
_NEXT_CENTURY = 30
"""Largest two-digit year in the 2000s; larger years are in the 1900s.

For example, 01.06.31 is a day in 1931.
"""


def find_days(text: str) -> list[date]:
    """Return all days mentioned in a text."""
    return [day for found in _ANYWHERE.finditer(text) if (day := _parse_day(found)) is not None]


def _parse_day(found: re.Match[str]) -> date | None:
    """Return the day of a match, or the later day if it is ambiguous."""
    part = found.groupdict()
    if by := part["by"] or part["sby"]:
        year = part["v"] or part["sv"]
        if len(year) == 2:
            year = f"{20 if int(year) <= _NEXT_CENTURY else 19}{year}"
        first, second = (part["p"], part["q"]) if part["by"] else (part["sp"], part["sq"])
        readings = [(year, second, first)]
        if by != ".":
            readings.append((year, first, second))
    elif name := part["n"] or part["o"] or part["mn"]:
        readings = [(part["w"] or part["x"] or part["mv"], str(_MONTHS[name[:3].lower()]),
                     part["e"] or part["f"] or "1")]  # fmt: skip
    elif month := part["nm"] or part["im"]:
        readings = [(part["nv"] or part["iv"], month, "1")]
    else:
        readings = [
            (part["y"] or part.get("cy"), part["m"] or part.get("cm"), part["d"] or part.get("cd"))
        ]
    return max((day for item in readings if (day := _make_date(*item))), default=None)


def _make_date(year: str, month: str, day: str) -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None


def cut_at_day(text: str, name: str, as_of: date, *, within: bool = True) -> tuple[str, int]:
    """Remove rows, entries, and objects dated later; return the text and the number removed.

    Parameters
    ----------
    name : file name; its suffix selects table, JSON or text
    within : whether to cut also at a later day inside a sentence, with the rest of the entry
    """
    suffix = name.lower().rpartition(".")[2]
    if suffix in ("csv", "tsv"):
        return _cut_rows(text, suffix, as_of, within=within)
    if suffix == "json":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return _cut_entries(text, as_of, within=within)
        cut = _Cut(as_of, within)
        known = cut.prune(value)
        return (json.dumps(known, ensure_ascii=False) if cut.count else text), cut.count
    return _cut_entries(text, as_of, within=within)


def _cut_entries(text: str, as_of: date, *, within: bool) -> tuple[str, int]:
    """Cut each entry at its first later day, starting with the sentence that contains it.

    An entry starts at a line that begins with a day. An entry that mentions a later day was
    written after it, and so was the rest of that entry.
    """
    starts, at, before = [0], 0, ""
    for line in text.split("\n"):
        heading = _HEADING.match(line)
        if at and heading and (_AFTER_HEADING.match(line, heading.end()) or not _wraps(before)):
            starts.append(at)
        at, before = at + len(line) + 1, line.strip()
    kept, hidden = [], 0
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        entry = text[start:end]
        later = [
            found.start()
            for found in (
                _IN_TEXT.finditer(entry.replace("\n", " ")) if within
                else filter(None, [_HEADING.match(entry)])
            )
            if (day := _parse_day(found)) is not None and day > as_of
        ]  # fmt: skip
        cut = len(entry)
        if later:
            ends = [found.end() for found in _SENTENCE.finditer(entry, 0, later[0] + 1)]
            cut = ends[-1] if ends and _SENTENCE.search(entry[: later[0] + 1]) else 0
        kept.append(entry[:cut])
        hidden += sum(bool(line.strip()) for line in entry[cut:].split("\n"))
    return "".join(kept), hidden


def _wraps(line: str) -> bool:
    """Return True if a line of this length and ending continues on the next line."""
    return len(line) >= _WRAPPED and line[-1] not in ".!?;:"


def _is_later(text: str, as_of: date, *, dated: bool, within: bool) -> bool:
    """Return True if a value mentions a later day.

    The day must be at the start of the value, or may be anywhere if `dated` or `within` is
    set.
    """
    if dated:
        days = find_days(text)
    elif within:
        days = [day for found in _IN_TEXT.finditer(text) if (day := _parse_day(found))]
    else:
        heading = _HEADING.match(text)
        days = [day] if heading and (day := _parse_day(heading)) else []
    return any(day > as_of for day in days)


def _names_date(name: str) -> bool:
    return "date" in name.casefold() or "datum" in name.casefold()


def _cut_rows(text: str, suffix: str, as_of: date, *, within: bool) -> tuple[str, int]:
    """Remove rows with a later day in any cell; the header may follow a title."""
    first = text.partition("\n")[0]
    mark = "\t" if suffix == "tsv" else ";" if first.count(";") > first.count(",") else ","
    lines = text.splitlines(keepends=True)
    reader = csv.reader(io.StringIO(text), delimiter=mark)
    kept: list[str] = []
    hidden = before = 0
    dated: list[bool] = []
    try:
        for row in reader:
            whole = lines[before : reader.line_num]
            before = reader.line_num
            if any(map(_names_date, row)) and not any(dated):
                dated = [_names_date(cell) for cell in row]
            late = any(
                _is_later(cell, as_of, dated=at < len(dated) and dated[at], within=within)
                for at, cell in enumerate(row)
            )
            hidden += late
            kept += [] if late else whole
    except csv.Error:  # any day counts in lines that cannot be split into cells
        rest = lines[before:]
        known = [line for line in rest if not _is_later(line, as_of, dated=True, within=True)]
        return "".join(kept + known), hidden + len(rest) - len(known)
    return "".join(kept), hidden


class _Cut:
    """Replaces objects whose own fields give a later date, and counts them."""

    def __init__(self, as_of: date, within: bool) -> None:
        self.as_of, self.within, self.count = as_of, within, 0

    def prune(self, value: Any) -> Any:
        """Return the value without later objects; a key that is a later day hides its value."""
        if isinstance(value, list):
            return [self.prune(item) for item in value]
        if isinstance(value, dict):
            plain = {key: item for key, item in value.items() if not isinstance(item, dict | list)}
            if any(
                self._later(key) or _is_later(
                    str(item), self.as_of, dated=_names_date(key), within=False
                )
                for key, item in plain.items()
            ):  # fmt: skip
                self.count += 1
                return {}
            return {key: self._hide() if self._later(key) else self.prune(item)
                    for key, item in value.items()}  # fmt: skip
        if isinstance(value, str) and _is_later(value, self.as_of, dated=False, within=self.within):
            return self._hide()
        return value

    def _later(self, key: str) -> bool:
        return _is_later(key, self.as_of, dated=False, within=False)

    def _hide(self) -> dict[str, Any]:
        self.count += 1
        return {}
