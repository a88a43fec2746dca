"""Layout analysis that separates the running text, in reading order, from all other text.

Lines are given with their boxes. Columns are found from gutters common to the document's
pages; lines that cross a gutter divide a page into bands, and each band is read column by
column. The following are separated from the running text: lines repeated on many pages
(running heads, watermarks), rotated text, line and page numbers, margin notes, footnotes,
captions, tables, and text inside figures.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

from kg.sources.pdf_layout import bibliographic

_CAPTION = re.compile(
    r"^(?:(?:Supplementary|Supplemental|Extended Data|Online)\s+)?"
    r"(Fig(?:ure)?s?\.?|Table|Scheme|Box|Chart|Plate|FIG(?:URE)?\.?|TABLE)\s*"
    r"(?:S?\d+[A-Za-z]?|[IVX]+)(?=\s|[.:|,)(]|$)"
)
_NUMBER = re.compile(r"^\W*(?:page\s*)?\d{1,5}(?:\s*(?:of|/)\s*\d{1,4})?\W*$", re.IGNORECASE)
_LEFTWARD = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")  # Hebrew, Arabic, Syriac
_BAND = 0.09  # share of a page's height at top and bottom that may contain running heads
#: A space wider than this many sizes of the font divides a line.
GAP = 1.1
_SPAN = 3.0  # points by which a line must pass a gutter to cross it


@dataclass(frozen=True, slots=True)
class Line:
    """A piece of text on a baseline without wide gaps; in points, with heights growing upward.

    `size` is the font size as drawn; `angle` is in degrees.
    """

    text: str
    left: float
    right: float
    baseline: float
    size: float
    angle: int = 0


@dataclass(frozen=True, slots=True)
class PageLines:
    """The lines of a page in file order, and the page's size in points."""

    lines: tuple[Line, ...]
    width: float
    height: float


@dataclass(slots=True)
class Row:
    """All text in a column on the same baseline; several cells form a table row."""

    cells: list[Line]

    @property
    def text(self) -> str:
        """The cells from left to right."""
        return " ".join(cell.text for cell in self.cells)

    @property
    def size(self) -> float:
        """Font size of the longest cell."""
        return max(self.cells, key=lambda cell: len(cell.text)).size

    @property
    def baseline(self) -> float:
        """Height of the baseline."""
        return self.cells[0].baseline


@dataclass(slots=True)
class Parts:
    """A document's running text by page, and its captions and notes; other text is dropped."""

    pages: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def in_rows(pages: Sequence[PageLines]) -> bool:
    """Check whether a document is set upright and from left to right, as `parts` requires."""
    sizes = [(len(line.text), line) for page in pages for line in page.lines]
    total = sum(size for size, _ in sizes)
    upright = sum(size for size, line in sizes if line.angle == 0)
    leftward = sum(len(_LEFTWARD.findall(line.text)) for _, line in sizes)
    return upright >= 0.5 * total and leftward < 0.1 * total


def parts(pages: Sequence[PageLines]) -> Parts:
    """Extract each page's running text in reading order, and all captions and footnotes."""
    upright = [_whole([line for line in page.lines if line.angle == 0]) for page in pages]
    body = _body_size(line for lines in upright for line in lines)
    kept = [
        _without_line_numbers([
            line for line in lines if not _is_folio(line, page) and line.size < 4 * body
        ])
        for lines, page in zip(_without_repeated(upright, pages), pages, strict=True)
    ]  # fmt: skip
    gutters = []
    for parity in (0, 1):  # margins of odd and even pages are often mirrored
        kept[parity::2] = _without_margin_notes(kept[parity::2], body)
        gutters.append(_gutters([line for lines in kept[parity::2] for line in lines], body))
    found = Parts()
    for number, lines in enumerate(kept):
        text: list[str] = []
        for column in _columns(lines, gutters[number % 2]):
            _read_column(column, body, pages[number].height, text, found)
        found.pages.append("\n".join(text))
    return found


def _place(line: Line) -> tuple[str, int, int]:
    """Return the key of a repeated line: its words without digits and its approximate position."""
    key = re.sub(r"\d+", "#", " ".join(line.text.lower().split()))
    return key, 0 if len(key) > 12 else round(line.left / 12), round(line.baseline / 12)


def _without_repeated(
    pages: Sequence[Sequence[Line]], sizes: Sequence[PageLines]
) -> list[list[Line]]:
    """Remove lines repeated in place on at least three pages and at least a third of all pages.

    Away from the edges of a page, such lines are removed as watermarks only if they are few.
    """
    need = max(3, len(pages) // 3)
    counts: Counter[tuple[str, int, int]] = Counter()
    for lines in pages:
        counts.update({_place(line) for line in lines})
    out = []
    for lines, page in zip(pages, sizes, strict=True):
        alike = {
            id(line) for line in lines
            if counts[_place(line)] >= need and len(_place(line)[0]) > 1
        }  # fmt: skip
        few = len(alike) <= 0.15 * len(lines)
        out.append(
            [line for line in lines if id(line) not in alike or not (few or _at_edge(line, page))]
        )
    return out


def _at_edge(line: Line, page: PageLines) -> bool:
    """Check whether a line is in the area of running heads and footers."""
    edge = page.height * _BAND
    return line.baseline > page.height - edge or line.baseline < edge


def _is_folio(line: Line, page: PageLines) -> bool:
    """Check whether a line is a bare page number at the top or bottom."""
    return _at_edge(line, page) and bool(_NUMBER.match(line.text))


def _body_size(lines: Iterable[Line]) -> float:
    """Find the font size used for most characters."""
    counts: Counter[float] = Counter()
    for line in lines:
        counts[round(line.size * 4) / 4] += len(line.text)
    return counts.most_common(1)[0][0] if counts else 10.0


def _without_line_numbers(lines: list[Line]) -> list[Line]:
    """Remove line numbers: bare numbers that increase down the page at the same position."""
    by_place: dict[int, list[Line]] = {}
    for line in lines:
        if re.fullmatch(r"\d{1,4}", line.text):
            by_place.setdefault(round(line.right / 6), []).append(line)
    drop: set[int] = set()
    for numbers in by_place.values():
        numbers.sort(key=lambda line: -line.baseline)
        values = [int(line.text) for line in numbers]
        steps = Counter(b - a for a, b in pairwise(values))
        step, often = steps.most_common(1)[0] if steps else (0, 0)
        if len(numbers) >= 5 and step in (1, 2, 5, 10) and often >= 0.8 * (len(values) - 1):
            drop.update(map(id, numbers))
    return [line for line in lines if id(line) not in drop]


def _without_margin_notes(pages: Sequence[list[Line]], body: float) -> list[list[Line]]:
    """Remove smaller text that is entirely outside the edges of the running text."""
    sized = [
        line for lines in pages for line in lines
        if abs(line.size - body) < 0.05 * body and len(line.text) > 20
    ]  # fmt: skip
    if len(sized) < 10:
        return list(pages)
    lefts, rights = sorted(x.left for x in sized), sorted(x.right for x in sized)
    left, right = lefts[len(lefts) // 50], rights[-1 - len(rights) // 50]
    return [
        [
            line for line in lines
            if line.size > 0.97 * body or (line.right > left and line.left < right)
        ]
        for lines in pages
    ]  # fmt: skip


def _gutters(lines: Sequence[Line], body: float) -> list[tuple[float, float]]:
    """Find gutters, vertical strips crossed by almost no line, as (left, right) pairs."""
    wide = [line for line in lines if len(line.text) > 3]
    if len(wide) < 8:
        return []
    low = int(min(line.left for line in wide))
    high = int(max(line.right for line in wide)) + 1
    cover = [0] * (high - low + 1)
    for line in wide:
        for x in range(int(line.left) - low, min(int(line.right) - low, high - low) + 1):
            cover[x] += 1
    ceiling = 0.2 * median(sorted(cover)[len(cover) // 4 :])
    found: list[tuple[float, float]] = []
    start: int | None = None
    for x, count in enumerate(cover):
        if count <= ceiling and start is None:
            start = x
        elif count > ceiling and start is not None:
            if start > 0 and x - start >= 0.5 * body:
                found.append((low + start, low + x))
            start = None
    return found


def _column_of(line: Line, gutters: Sequence[tuple[float, float]]) -> int | None:
    """Find the column of a line; return None if it crosses a gutter."""
    for left, right in gutters:
        if line.left < left - _SPAN and line.right > right + _SPAN:
            return None
    middle = (line.left + line.right) / 2
    return sum(middle > (left + right) / 2 for left, right in gutters)


def _columns(lines: Sequence[Line], gutters: Sequence[tuple[float, float]]) -> list[list[Row]]:
    """Divide lines into the rows for each column in each band, in reading order.

    Lines that cross a gutter form separate bands; consecutive crossing lines without a column
    line in between form a single band.
    """
    wide = [line for line in lines if _column_of(line, gutters) is None]
    members = {id(line) for line in wide} | {id(end) for end in _short_ends(lines, wide)}
    inside = [line for line in lines if id(line) not in members]
    crossing = _rows([line for line in lines if id(line) in members])
    crossing.sort(key=lambda row: -row.baseline)
    bands: list[list[Row]] = []
    for row in crossing:
        apart = not bands or any(
            row.baseline < line.baseline < bands[-1][-1].baseline for line in inside
        )
        if apart:
            bands.append([row])
        else:
            bands[-1].append(row)
    edges = [float("inf"), *(band[-1].baseline for band in bands), float("-inf")]
    out: list[list[Row]] = []
    for number, (upper, lower) in enumerate(pairwise(edges)):
        if number:
            out.append(bands[number - 1])
        within = [line for line in inside if lower < line.baseline <= upper]
        for column in range(len(gutters) + 1):
            rows = _rows([line for line in within if _column_of(line, gutters) == column])
            if rows:
                out.append(rows)
    return out


def _short_ends(lines: Sequence[Line], wide: Sequence[Line]) -> Iterator[Line]:
    """Yield short last lines of paragraphs that cross a gutter and are alone on their baseline."""
    for line in lines:
        under = any(
            0 < other.baseline - line.baseline <= 1.75 * other.size
            and abs(other.size - line.size) < 0.05 * other.size
            and abs(other.left - line.left) < _SPAN
            for other in wide
        )
        if under and sum(abs(other.baseline - line.baseline) < 1 for other in lines) == 1:
            yield line


def _rows(lines: Sequence[Line]) -> list[Row]:
    """Join lines by baseline, in file order if that runs down the page, and sorted otherwise.

    A page may contain two overlaid copies of a paragraph, which sorting would mix.
    """
    rises = sum(b.baseline > a.baseline + a.size for a, b in pairwise(lines))
    if rises > max(2, len(lines) // 10):
        lines = sorted(lines, key=lambda line: (-round(line.baseline), line.left))
    rows: list[Row] = []
    for line in lines:
        last = rows[-1].cells[-1] if rows else None
        if last is not None and abs(last.baseline - line.baseline) < 0.35 * max(last.size, 4.0):
            rows[-1].cells.append(line)
        else:
            rows.append(Row([line]))
    return [Row(_cells(sorted(row.cells, key=lambda line: line.left))) for row in rows]


def _whole(lines: Sequence[Line]) -> list[Line]:
    """Join adjacent lines on the same baseline, because some files break lines at every word."""
    runs: list[list[Line]] = []
    for line in lines:
        last = runs[-1][-1] if runs else None
        follows = (
            last is not None
            and abs(last.baseline - line.baseline) < 0.35 * max(last.size, 4.0)
            and line.left >= last.right - 0.5 * last.size
        )
        if follows:
            runs[-1].append(line)
        else:
            runs.append([line])
    return [cell for run in runs for cell in _cells(run)]


def _cells(lines: Sequence[Line]) -> list[Line]:
    """Join the lines on a baseline, given from left to right, unless a wide gap separates them."""
    cells = [lines[0]]
    for line in lines[1:]:
        last = cells[-1]
        gap = line.left - last.right
        if gap > GAP * max(last.size, line.size):
            cells.append(line)
            continue
        space = " " if gap > 0.1 * last.size else ""
        size = last.size if len(last.text) >= len(line.text) else line.size
        text, right = f"{last.text}{space}{line.text}", max(last.right, line.right)
        cells[-1] = replace(last, text=text, right=right, size=size)
    return cells


def _read_column(
    rows: Sequence[Row], body: float, height: float, text: list[str], found: Parts
) -> None:
    """Sort a column's rows into running text, captions and notes, and drop the rest."""
    notes = _footnotes(rows, body, height)
    if notes:
        found.notes.append("\n".join(row.text for row in notes))
    dropped = set(map(id, notes))
    rows = [row for row in rows if id(row) not in dropped]
    tabular = _tabular(rows)
    at = 0
    while at < len(rows):
        row = rows[at]
        apart = not at or _is_gap(rows[at - 1], row) or abs(row.size - body) > 0.05 * body
        match = _CAPTION.match(row.text)
        if match and apart:
            end = _end_of_caption(rows, at)
            found.captions.append("\n".join(r.text for r in rows[at:end]))
            at = end
            if match.group(1).lower().startswith("table"):
                while at < len(rows) and (tabular[at] or rows[at].size < 0.95 * body):
                    at += 1
            continue
        if not tabular[at] and not _is_label(rows, at, body):
            text.append(row.text)
        at += 1


def _is_label(rows: Sequence[Row], at: int, body: float) -> bool:
    """Check whether a row is text in a figure: small, a few words, and not next to a paragraph."""
    row = rows[at]
    if row.size >= 0.88 * body or any(len(cell.text.split()) > 3 for cell in row.cells):
        return False
    return not any(
        abs(rows[k].size - row.size) < 0.05 * row.size
        and len(rows[k].text.split()) > 3
        and not _is_gap(rows[min(k, at)], rows[max(k, at)])
        for k in (at - 1, at + 1)
        if 0 <= k < len(rows)
    )


def _is_gap(before: Row, row: Row) -> bool:
    """Check whether two rows are further apart than usual, or the second is higher."""
    distance = before.baseline - row.baseline
    return distance < 0 or distance > 1.75 * max(before.size, row.size)


def _end_of_caption(rows: Sequence[Row], start: int) -> int:
    """Find the index after the last contiguous row that has the same font size as the first."""
    end = start + 1
    while end < len(rows):
        like = abs(rows[end].size - rows[start].size) <= 0.05 * rows[start].size
        if _is_gap(rows[end - 1], rows[end]) or not like or len(rows[end].cells) > 2:
            break
        end += 1
    return end


def _tabular(rows: Sequence[Row]) -> list[bool]:
    """Mark the rows of tables: three or more rows with several cells, and rows between them.

    A single row with several cells may be a justified line with a wide gap.
    """
    marks = [False] * len(rows)
    places = [k for k, row in enumerate(rows) if len(row.cells) > 1]
    start = 0
    for k in range(1, len(places) + 1):
        if k == len(places) or places[k] - places[k - 1] > 3:
            run = places[start:k]
            if len(run) >= 3 and len(run) * 2 >= run[-1] - run[0] + 1:
                marks[run[0] : run[-1] + 1] = [True] * (run[-1] - run[0] + 1)
            start = k
    return marks


def _footnotes(rows: Sequence[Row], body: float, height: float) -> list[Row]:
    """Find the rows at the bottom of a column that are smaller than the running text above."""
    falling = sorted(rows, key=lambda row: -row.baseline)
    count = 0
    while count < len(falling):
        row = falling[-1 - count]
        if row.size > 0.93 * body or row.baseline > 0.4 * height or len(row.cells) > 2:
            break
        count += 1
    notes, above = falling[len(falling) - count :], falling[: len(falling) - count]
    if not 0 < count <= 12 or not above or above[-1].size <= 0.93 * body:
        return []
    under_heading = above[-1].size > 1.05 * body
    listed = sum(bibliographic(row.text) for row in notes) > len(notes) // 3
    return [] if under_heading or listed or _CAPTION.match(notes[0].text) else notes
