"""Conversion of bytes to a table of strings, with evidence for encoding, delimiter, and header."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from sage_import.intake.guesses import Guess, Loss, make_guess
from sage_import.intake.names import stem
from sage_import.intake.values import WORDS, looks_like_date

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = {"\t": "tab", ",": ",", ";": ";", "|": "|"}
MOST_COLUMNS = 20_000
LONGEST_FIELD = 131_072
MOST_ROWS = 500_000
LOOKED_AT = 200
"""Number of lines used to detect the delimiter and header."""
NUMBER = re.compile(r"^[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?$")
SUMMARY = re.compile(
    r"(?:(?:grand|sub|over)[ -]?)?(?:totals?|sum|means?|averages?|medians?|s\.?d\.?|std|"
    r"min(?:imum)?|max(?:imum)?|range|count|n|all|gesamt|summe|mittelwert|mittel|moyenne|somme|"
    r"m[ée]diane|anzahl|ensemble|[ée]cart[- ]type)\b",
    re.IGNORECASE,
)
"""Words that begin a row of sums or means."""
PATIENTS = re.compile(r"^(tcga[-.]\w\w[-.]\w{4}\b.*|gsm\d+)$", re.IGNORECASE)
"""Patient or sample names which, in a header, indicate a transposed table."""
FEWEST_TURNED = 3
LONGEST_SUMMARY = 40
LONGEST_UNIT = 16
"""Maximum length of a cell in a line of units; longer cells are labels."""


@dataclass
class RawTable:
    """Strings from a file or sheet, trimmed but not yet interpreted.

    `lines` gives the line (or sheet row) of each row; `labels` gives the column descriptions
    from the file's own comment lines.
    """

    name: str
    origin: str
    rows: pd.DataFrame
    lines: list[int]
    guesses: list[Guess] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    sha256: str = ""
    losses: list[Loss] = field(default_factory=list)

    def keep_rows(self, keep: pd.Series) -> None:
        """Keep only the rows selected by a mask."""
        self.rows = self.rows[keep].reset_index(drop=True)
        self.lines = [line for line, kept in zip(self.lines, keep, strict=True) if kept]


def decode(data: bytes, origin: str, given: str | None) -> tuple[str, Guess]:
    """Decode a file, and report the encoding and its evidence.

    Raises `InputError` with the line number if bytes match no encoding or there is a NUL
    byte.
    """
    if given:
        try:
            text = data.decode(given)
        except (LookupError, UnicodeDecodeError) as error:
            raise InputError(
                f"{origin}: not valid {given} ({error}); try another encoding"
            ) from None
        return _plain(text, origin), _encoding(given, "as set", "given")
    for mark, name in (
        (b"\xef\xbb\xbf", "utf-8-sig"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if data.startswith(mark):
            return _decoded_as(data, origin, name, "by its byte order mark", "sure")
    head = data[:4096]
    pairs = max(len(head) // 2, 1)
    for name, offset in (("utf-16-le", 1), ("utf-16-be", 0)):
        if head[offset::2].count(0) > 0.3 * pairs and head[1 - offset :: 2].count(0) < 0.1 * pairs:
            return _decoded_as(data, origin, name, "every second byte is zero", "likely")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        try:
            text, name = data.decode("cp1252"), "cp1252"
        except UnicodeDecodeError:
            text, name = data.decode("latin-1"), "latin-1"
        shown = next((word for word in re.findall(r"\S*[^\x00-\x7f]\S*", text)), "")[:24]
        evidence = f"not UTF-8 at line {line}; decoded this way, it reads “{shown}”"
        return _plain(text, origin), _encoding(name, evidence, "likely")
    foreign = sum(not line.isascii() for line in text.splitlines())
    evidence = (
        f"{foreign} lines with non-ASCII characters are valid in it" if foreign else "plain ASCII"
    )
    return _plain(text, origin), _encoding("utf-8", evidence, "sure")


def _decoded_as(
    data: bytes, origin: str, name: str, evidence: str, confidence: str
) -> tuple[str, Guess]:
    """Decode text in the encoding that the bytes themselves declare."""
    try:
        text = data.decode(name)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{origin}: the first bytes indicate {name}, but byte {error.start} is invalid; save "
            "the file again as UTF-8"
        ) from None
    return _plain(text.removeprefix("\ufeff"), origin), _encoding(name, evidence, confidence)


def _plain(text: str, origin: str) -> str:
    at = text.find("\0")
    if at >= 0:
        line = text.count("\n", 0, at) + 1
        raise InputError(
            f"{origin}, line {line}: contains a NUL byte. If the file is binary or truncated, "
            "export it again; otherwise set encoding=utf-16"
        )
    return text


def _encoding(name: str, evidence: str, confidence: str) -> Guess:
    return make_guess(
        "encoding",
        "encoding",
        name,
        evidence,
        confidence,
        choices=("utf-8", "utf-16", "cp1252", "latin-1"),
    )


def detect_delimiter(text: str, origin: str, given: str | None) -> tuple[str, Guess]:
    """Detect the delimiter that splits most lines into as many fields as the header.

    Raises `InputError` if no character splits the lines consistently.
    """
    names = {name: sign for sign, name in DELIMITERS.items()}
    if given:
        return names[given], _delimiter(given, "as set", "given")
    lines = [line for line in text[: 1 << 22].splitlines() if line.strip()]
    lines = [line for line in lines[:LOOKED_AT] if not line.startswith("#")]
    if not lines:
        raise InputError(f"{origin}: the file is empty; export the table again, with its header")
    scores = []
    for sign in DELIMITERS:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=sign) if row]
        except csv.Error:  # an unterminated field, reported with its line when the table is read
            counts = [line.count(sign) + 1 for line in lines]
        usual, times = Counter(counts).most_common(1)[0] if counts else (1, 0)
        header = max(counts[:3], default=1)
        if usual > 1 and abs(header - usual) <= 1:
            scores.append((round(times / len(counts), 1), usual, sign, times, len(counts)))
    if not scores:
        if lines and not any(sign in lines[0] for sign in DELIMITERS):
            raise InputError(
                f"{origin}: only one column. A cohort requires an identifier and an outcome or a "
                "variable; if fields are delimited differently, set delimiter"
            )
        raise InputError(
            f"{origin}: no delimiter (tab , ; |) splits the lines into equal numbers of fields; "
            "set delimiter, or export the file again"
        )
    _, usual, sign, times, looked = max(scores)
    evidence = f"{times} of {looked} lines have {usual} fields"
    return sign, _delimiter(DELIMITERS[sign], evidence, "sure" if times == looked else "likely")


def _delimiter(name: str, evidence: str, confidence: str) -> Guess:
    return make_guess(
        "delimiter", "delimiter", name, evidence, confidence, choices=tuple(DELIMITERS.values())
    )


def parse_table(
    text: str, name: str, origin: str, delimiter: str, columns: str | None = None
) -> RawTable:
    """Parse the table in a text.

    Raises `InputError`, which names the line, for unterminated fields, lines with too many
    fields, or too many columns.
    """
    comments: list[list[str]] = []
    rows: list[tuple[int, list[str]]] = []
    csv.field_size_limit(LONGEST_FIELD)  # of the whole process: others may have raised it
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if len(fields) > MOST_COLUMNS:
                raise InputError(
                    f"{origin}, line {reader.line_num}: {len(fields):,} columns; a patient "
                    f"table may have at most {MOST_COLUMNS:,}"
                )
            if (
                fields
                and fields[0].startswith("#")
                and len(rows) == 0
                and (len(fields) > 1 or delimiter not in fields[0])
            ):
                comments.append([fields[0].lstrip("#"), *fields[1:]])
            elif any(cell.strip() for cell in fields):
                rows.append((reader.line_num, [cell.strip() for cell in fields]))
            if len(rows) > MOST_ROWS:
                raise InputError(
                    f"{origin}: more than {MOST_ROWS:,} rows; a cohort has one row per"
                    " patient, sample or visit"
                )
    except csv.Error as error:
        raise InputError(
            f"{origin}, line {reader.line_num}: a field is unterminated or longer than "
            f"{LONGEST_FIELD:,} characters ({error}); look for an unclosed quotation mark"
        ) from None
    names = [cell.strip() for cell in columns.split(",")] if columns else None
    return build_table(rows, name, origin, names, comments)


def build_table(
    rows: list[tuple[int, list[str]]],
    name: str,
    origin: str,
    columns: list[str] | None = None,
    comments: list[list[str]] | None = None,
) -> RawTable:
    """Build a table from numbered rows of cells, finding the header and rejecting mismatches.

    Raises `InputError` if there are no rows below a header, or if rows are longer than the header.
    """
    import pandas as pd

    guesses: list[Guess] = []
    if len(rows) < 2:
        raise InputError(f"{origin}: no rows below a header line; export the table with its rows")
    if columns is None:
        rows = _turn_upright(rows, guesses)
    usual = Counter(len(cells) for _, cells in rows[:LOOKED_AT]).most_common(1)[0][0]
    losses: list[Loss] = []
    labels: list[str] = []
    if columns is None:
        skipped = _preamble(rows, usual)
        if skipped:
            _note(
                guesses,
                f"line {rows[skipped][0]}",
                f"the {skipped} lines above it have hardly any fields",
            )
        header = rows[skipped][1]
        body = rows[skipped + 1 :]
        header, body, labels = _join_header(header, body, guesses)
        _require_names(header, origin)
        if len(header) == usual - 1:
            header = ["row_name", *header]
            _note(
                guesses,
                "row_name added",
                "lines have one field more than the header, as when R writes row names",
            )
    else:
        header, body = columns, rows
        if len(header) != usual:
            raise InputError(
                f"{origin}: columns lists {len(header)} names, but lines have {usual} fields"
            )
    body, losses = _keep_patients(header, body, origin)
    while header and not header[-1] and all(not any(row[len(header) - 1 :]) for _, row in body):
        header = header[:-1]
    names = _unique(header, guesses)
    width, short = len(names), 0
    cells: list[list[str]] = []
    for line, row in body:
        if len(row) > width and any(row[width:]):
            raise InputError(
                f"{origin}, line {line}: {len(row)} fields, but {width} column names; quote the "
                "field that contains the delimiter"
            )
        short += len(row) < width
        cells.append((row + [""] * (width - len(row)))[:width])
    if short:
        _note(
            guesses,
            f"{short} short lines filled up",
            f"they have fewer than {width} fields; the others count as missing",
        )
    if not cells:
        raise InputError(f"{origin}: no rows below the header; export the table with its rows")
    return RawTable(
        name=name,
        origin=origin,
        rows=pd.DataFrame(cells, columns=names, dtype=object),
        lines=[line for line, _ in body],
        guesses=guesses,
        labels=_labels(names, [*(comments or []), labels]),
        losses=losses,
    )


def _turn_upright(
    rows: list[tuple[int, list[str]]], guesses: list[Guess]
) -> list[tuple[int, list[str]]]:
    """Transpose a table whose rows are variables and whose columns are patients.

    Its first line names patients by barcodes or accessions or, if there are few rows, by a
    single pattern.
    """
    header = rows[0][1]
    named = [cell for cell in header[1:] if cell]
    sampled = sum(bool(PATIENTS.match(cell)) for cell in named)
    firsts = [cells[0] for _, cells in rows if cells]
    if len(named) < FEWEST_TURNED or sampled < 0.9 * len(named) or len(set(firsts)) < len(firsts):
        return rows
    width = max(len(cells) for _, cells in rows)
    filled = [cells + [""] * (width - len(cells)) for _, cells in rows]
    filled[0][0] = filled[0][0] if "patient" in filled[0][0].casefold() else "patient_id"
    _note(guesses, "turned", f"its columns are {len(named)} patients, such as {named[0]}")
    return [(place, list(cells)) for place, cells in enumerate(zip(*filled, strict=True), start=1)]


def _join_header(
    header: list[str], body: list[tuple[int, list[str]]], guesses: list[Guess]
) -> tuple[list[str], list[tuple[int, list[str]]], list[str]]:
    """Join multiple header lines into one, and take labels and types from the lines below it.

    A line below the first belongs to the header if it fills gaps (as left by merged cells),
    repeats the header, or has no number in any column whose other cells are numbers or dates.
    """
    labels: list[str] = []
    joined = 0
    while len(body) > 1 and joined < 5:
        line = body[0][1]
        if _repeats(header, line):
            body, joined = body[1:], joined + 1
            continue
        rest = [cells for _, cells in body[1:LOOKED_AT]]
        measured = [place for place in range(len(line)) if _is_measured(place, rest)]
        named = [p for p in measured if line[p] and line[p].casefold() not in WORDS]
        patient = Counter(_find_shape(_cell_at(cells, 0)) for cells in rest).most_common(1)[0][0]
        if (
            not named
            or any(map(_is_value, map(line.__getitem__, named)))
            or ("0" in patient and patient == _find_shape(line[0]))
        ):
            break
        gaps = [place for place, cell in enumerate(line) if cell and not _cell_at(header, place)]
        if gaps:
            header = _merge(header, line)
        elif len(named) >= min(2, len(measured)):
            if all(len(cell) <= LONGEST_UNIT for cell in line):
                both = enumerate(_pair_lines(header, line))
                header = [
                    f"{name} {cell}".strip() if place in measured and cell else name
                    for place, (name, cell) in both
                ]
            else:
                labels = [cell for _, cell in _pair_lines(header, line)]
        else:
            break
        body, joined = body[1:], joined + 1
    if joined:
        _note(guesses, f"{joined + 1} lines", "the lines below the first name, repeat or "
                             "describe columns; patients begin below them")  # fmt: skip
    return header, body, labels


def _merge(upper: list[str], lower: list[str]) -> list[str]:
    """Join two header lines, where a merged cell in the upper line names the columns to its right.

    The upper name is kept where the lower is not unique, or where it names an outcome.
    """
    twice = {name for name, times in Counter(lower).items() if times > 1}
    names, group = [], ""
    for above, below in _pair_lines(upper, lower):
        group = above or (group if below else "")
        keep = not below or below in twice or (stem(group) and not stem(below))
        names.append(f"{group} {below}".strip() if keep else below)
    return names


def _pair_lines(upper: list[str], lower: list[str]) -> list[tuple[str, str]]:
    return list(zip_longest(upper, lower, fillvalue=""))


def _cell_at(cells: list[str], place: int) -> str:
    return cells[place] if place < len(cells) else ""


def _is_value(cell: str) -> bool:
    return bool(NUMBER.match(cell) or looks_like_date(cell) or cell.endswith("%"))


def _is_measured(place: int, rows: list[list[str]]) -> bool:
    cells = [cell for row in rows if (cell := _cell_at(row, place))]
    return len(cells) > 2 and sum(map(_is_value, cells)) > 0.8 * len(cells)


def _keep_patients(
    header: list[str], body: list[tuple[int, list[str]]], origin: str
) -> tuple[list[tuple[int, list[str]]], list[Loss]]:
    """Omit rows that are not patients: sums and means, notes, headings, and repeated headers."""
    kept: list[tuple[int, list[str]]] = []
    firsts = [next((cell for cell in cells if cell), "") for _, cells in body]
    often = Counter(firsts)
    usual = Counter(sum(map(bool, cells)) for _, cells in body).most_common(1)[0][0]
    shapes = Counter(_find_shape(cells[0]) for _, cells in body if cells and cells[0])
    usual_shape = max(shapes.values(), default=0)
    found: dict[str, list[str]] = {}
    for (line, cells), first in zip(body, firsts, strict=True):
        filled = sum(map(bool, cells))
        own = bool(cells and cells[0]) and shapes[_find_shape(cells[0])] > 0.3 * usual_shape
        why = ""
        if SUMMARY.match(first) and len(first) <= LONGEST_SUMMARY and often[first] == 1 and not own:
            why = "a sum or mean of the others"
        elif usual > 2 and filled == 1 and not own:
            why = "a note or heading: only one cell is filled"
        elif len(header) > 2 and _repeats_names(header, cells):
            why = "repeats the header"
        if why:
            found.setdefault(why, []).append(f"line {line} ({first[:40]})")
        else:
            kept.append((line, cells))
    return kept, [
        Loss(what=f"{origin}: rows", count=len(lines), reason=f"{why}: {', '.join(lines[:5])}",
             remedy="if these are patients, remove the words from the first cell")
        for why, lines in found.items()
    ]  # fmt: skip


def _find_shape(cell: str) -> str:
    """Return an identifier's pattern, with letters as a, digits as 0, and runs collapsed."""
    return re.sub(r"\d+", "0", re.sub(r"[^\W\d_]+", "a", cell))


def _repeats_names(header: list[str], cells: list[str]) -> bool:
    pairs = [(name, cell) for name, cell in zip(header, cells, strict=False) if cell]
    return len(pairs) > 1 and all(_plainly(name) == _plainly(cell) for name, cell in pairs)


def _preamble(rows: list[tuple[int, list[str]]], usual: int) -> int:
    """Count title lines above the header, which fill fewer fields than the rows below."""
    skipped = 0
    for (_, cells), (_, below) in pairwise(rows[:21]):
        filled = sum(bool(cell) for cell in cells)
        names = filled > 1 and any(
            cell and not _cell_at(below, at) for at, cell in enumerate(cells)
        )
        if usual > 2 and filled <= max(1, 0.3 * usual) and skipped < len(rows) - 2 and not names:
            skipped += 1
        else:
            break
    return skipped if skipped < min(20, len(rows)) else 0


def _require_names(header: list[str], origin: str) -> None:
    filled = [cell for cell in header if cell]
    numbers = [cell for cell in filled if NUMBER.match(cell)]
    barcodes = [cell for cell in filled if re.match(r"^TCGA-\w\w-\w{4}", cell)]
    if filled and (len(numbers) > len(filled) / 2 or (numbers and barcodes)):
        raise InputError(
            f"{origin}: the first line contains values ({', '.join(filled[:4])}) instead of "
            "names; add a header line, or set columns=NAME,NAME,…"
        )


def _repeats(header: list[str], cells: list[str]) -> bool:
    pairs = [(name, cell) for name, cell in zip(header, cells, strict=False) if cell]
    same = sum(_plainly(name) == _plainly(cell) for name, cell in pairs)
    codes = sum(cell.startswith("CDE_ID:") for _, cell in pairs)
    return bool(pairs) and (same > 0.5 * len(pairs) or codes > 0.3 * len(pairs))


def _plainly(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.casefold())


def _unique(header: list[str], guesses: list[Guess]) -> list[str]:
    names: list[str] = []
    seen: dict[str, int] = {}
    for place, cell in enumerate(header, start=1):
        name = re.sub(r"[\x00-\x1f\x7f]+", " ", cell).strip()[:200] or f"column_{place}"
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            while (again := f"{name}.{seen[name]}") in header or again in names:
                seen[name] += 1
            _note(guesses, again, f'a second column is named "{name}"')
            name = again
        names.append(name)
    return names


def _note(guesses: list[Guess], value: str, evidence: str) -> None:
    guesses.append(make_guess("header", "header", value, evidence))


def _labels(names: list[str], comments: list[list[str]]) -> dict[str, str]:
    """Read cBioPortal's first comment line, with display names in column order."""
    first = comments[0] if comments else []
    if len(first) != len(names):
        return {}
    return {name: label.strip()[:200] for name, label in zip(names, first, strict=True) if label}
