"""Conversion of bytes to a table of strings, with evidence for encoding, delimiter, and header."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from sage_import.intake.guesses import Guess, make_guess

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = {"\t": "tab", ",": ",", ";": ";", "|": "|"}
MOST_COLUMNS = 20_000
LONGEST_FIELD = 131_072
MOST_ROWS = 500_000
LOOKED_AT = 200
"""Lines used to detect the delimiter and header."""
NUMBER = re.compile(r"^[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?$")
SUMMARY = re.compile(
    r"(?:(?:grand|sub) ?)?(?:total|sum|mean|average|median|s\.?d\.?|std|min(?:imum)?|max(?:imum)?|"
    r"range|count|n|gesamt|summe|mittelwert|mittel|moyenne|somme|m[ée]diane|ensemble|"
    r"[ée]cart[- ]type|totals|averages)(?: g[ée]n[ée]ral| ?\(sd\))?(?: ?\(?n? ?= ?\d+\)?)?\W*",
    re.IGNORECASE,
)
"""Words that begin a row of sums or means."""


@dataclass
class RawTable:
    """Strings of a file or sheet, trimmed but not yet interpreted.

    `lines` gives the line (or sheet row) of each row; `labels` gives the descriptions of columns
    from the file's own comment lines.
    """

    name: str
    origin: str
    rows: pd.DataFrame
    lines: list[int]
    guesses: list[Guess] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    sha256: str = ""


def decode(data: bytes, origin: str, given: str | None) -> tuple[str, Guess]:
    """Decode a file, and report the encoding and its evidence.

    Raises `InputError` with the line if bytes match no encoding or there is a NUL byte.
    """
    if given:
        try:
            text = data.decode(given)
        except (LookupError, UnicodeDecodeError) as error:
            raise InputError(f"{origin}: not {given} ({error}); try another encoding") from None
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
    """Decode the text in an encoding that the bytes themselves declare."""
    try:
        text = data.decode(name)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{origin}: starts as {name}, but byte {error.start} is invalid; save the file again "
            "as UTF-8"
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
    """Detect the delimiter: the character that splits most lines into as many fields as the header.

    Raises `InputError` if no character splits the lines consistently.
    """
    names = {name: sign for sign, name in DELIMITERS.items()}
    if given:
        return names[given], _delimiter(given, "as set", "given")
    lines = [line for line in text[: 1 << 22].splitlines() if line.strip()]
    lines = [line for line in lines[:LOOKED_AT] if not line.startswith("#")]
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
                f"{origin}: only one column. A cohort needs an identifier and an outcome or a "
                "variable; if fields are delimited differently, set delimiter"
            )
        raise InputError(
            f"{origin}: no delimiter (tab , ; |) splits its lines into equal numbers of fields; "
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

    Raises `InputError` that names the line for unterminated fields, lines with too many fields, or
    too many columns.
    """
    comments: list[list[str]] = []
    rows: list[tuple[int, list[str]]] = []
    csv.field_size_limit(LONGEST_FIELD)  # of the whole process: others may have raised it
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if len(fields) > MOST_COLUMNS:
                raise InputError(
                    f"{origin}, line {reader.line_num}: {len(fields):,} columns; a table of "
                    f"patients may have at most {MOST_COLUMNS:,}"
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
            f"{origin}, line {reader.line_num}: a field has no end or is longer than "
            f"{LONGEST_FIELD:,} characters ({error}); look for an unclosed quotation mark"
        ) from None
    return build_table(rows, name, origin, columns, comments)


def build_table(
    rows: list[tuple[int, list[str]]],
    name: str,
    origin: str,
    columns: str | None = None,
    comments: list[list[str]] | None = None,
) -> RawTable:
    """Build a table from numbered rows of cells, finding the header and rejecting mismatches.

    Raises `InputError` if there are no rows below a header, or if rows are longer than the header.
    """
    import pandas as pd

    guesses: list[Guess] = []
    if len(rows) < 2:
        raise InputError(f"{origin}: no rows below a header line")
    usual = Counter(len(cells) for _, cells in rows[:LOOKED_AT]).most_common(1)[0][0]
    if columns is None:
        skipped = _preamble(rows, usual)
        if skipped:
            guesses.append(
                _note(
                    f"line {rows[skipped][0]}",
                    f"the {skipped} lines above it have hardly any fields",
                )
            )
        header = rows[skipped][1]
        body = rows[skipped + 1 :]
        _require_names(header, origin)
        if len(header) == usual - 1:
            header = ["row_name", *header]
            guesses.append(
                _note(
                    "row_name added",
                    "lines have one field more than the header, as when R writes row names",
                )
            )
        repeated = 0
        while body and repeated < 5 and _repeats(header, body[0][1]):
            body, repeated = body[1:], repeated + 1
        if repeated:
            guesses.append(
                _note(
                    f"{repeated} repeated header lines omitted",
                    "they repeat the column names, or contain codes for them",
                )
            )
    else:
        header, body = [cell.strip() for cell in columns.split(",")], rows
        if len(header) != usual:
            raise InputError(
                f"{origin}: columns lists {len(header)} names, but lines have {usual} fields"
            )
    body, summaries = _without_summaries(body)
    if summaries:
        guesses.append(
            _note(
                f"{len(summaries)} summary rows omitted",
                f"the last rows begin with {', '.join(summaries)[:80]}, so they are not patients",
            )
        )
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
        guesses.append(
            _note(
                f"{short} short lines filled up",
                f"they have fewer than {width} fields; the others count as missing",
            )
        )
    if not cells:
        raise InputError(f"{origin}: no rows below the header")
    table = pd.DataFrame(cells, columns=names, dtype=object)
    return RawTable(
        name=name,
        origin=origin,
        rows=table,
        lines=[line for line, _ in body],
        guesses=guesses,
        labels=_labels(names, comments or []),
    )


def _without_summaries(
    body: list[tuple[int, list[str]]],
) -> tuple[list[tuple[int, list[str]]], list[str]]:
    """Split off trailing rows of sums and means; return the rest and the first cells of those."""
    firsts = [next((cell for cell in cells if cell), "") for _, cells in body]
    often = Counter(firsts)
    end = len(body)
    while end > 1 and SUMMARY.fullmatch(firsts[end - 1]) and often[firsts[end - 1]] == 1:
        end -= 1
    return body[:end], firsts[end:]


def _preamble(rows: list[tuple[int, list[str]]], usual: int) -> int:
    """Count the title lines above the header, which fill few of the fields below."""
    skipped = 0
    for _, cells in rows[:20]:
        filled = sum(bool(cell) for cell in cells)
        if usual > 2 and filled <= max(1, 0.3 * usual) and skipped < len(rows) - 2:
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
            f"{origin}: its first line contains values ({', '.join(filled[:4])}) instead of "
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
            guesses.append(_note(again, f'a second column is named "{name}"'))
            name = again
        names.append(name)
    return names


def _note(value: str, evidence: str) -> Guess:
    return make_guess("header", "header", value, evidence)


def _labels(names: list[str], comments: list[list[str]]) -> dict[str, str]:
    """Read cBioPortal's first comment line: display names in the order of the columns."""
    first = comments[0] if comments else []
    if len(first) != len(names):
        return {}
    return {name: label.strip()[:200] for name, label in zip(names, first, strict=True) if label}
