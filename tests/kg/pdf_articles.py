"""Articles of twenty pages in four publishers' layouts, with the truth of every block.

Each word that matters carries a marker: `BD0012x` for running text in reading order, and others for
what must stay apart (heads, watermarks, margin notes, captions, tables, notes, references).
"""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from reportlab.lib.pagesizes import A4
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

PAGES = 20
WIDTH, HEIGHT = A4
SERIF, BOLD, ITALIC = "Times-Roman", "Times-Bold", "Times-Italic"
_TEXT = (
    "the expression of this gene was associated with survival in patients while tumor cells of "
    "the cohort showed higher levels than normal tissue and a signature of immune infiltration "
    "predicted response to treatment in multivariable analysis"
)
_WORDS = _TEXT.split()
_SURNAMES = ("Smith", "Garcia-Lopez", "van der Berg", "Müller", "O'Neill", "Tanaka", "Rossi", "Li")
_LONG = {"multivariable": "multi-variable", "infiltration": "infil-tration",
         "association": "associ-ation", "treatment": "treat-ment"}  # fmt: skip


@dataclass
class Article:
    """The file, and the markers of each kind in the order of reading."""

    data: bytes = b""
    truth: dict[str, list[str]] = field(default_factory=dict)


class Writer:
    """Draws text on pages and keeps the markers of what it drew."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.buffer = io.BytesIO()
        self.canvas = Canvas(self.buffer, pagesize=A4, invariant=1)
        self.truth: dict[str, list[str]] = {}

    def mark(self, kind: str) -> str:
        """A new marker of a kind."""
        known = self.truth.setdefault(kind, [])
        known.append(f"{kind}{len(known):04d}x")
        return known[-1]

    def sentence(self, kind: str) -> str:
        """About twenty words with a marker among them."""
        words = self.random.choices(_WORDS, k=self.random.randint(12, 24))
        words.insert(self.random.randrange(1, len(words)), self.mark(kind))
        return " ".join(words).capitalize().replace(kind.lower(), kind) + "."

    def reference(self, number: int | None) -> str:
        """An entry of a reference list, numbered or by author and year."""
        r = self.random
        name = f"{r.choice(_SURNAMES)} {r.choice('ABCDEF')}{r.choice('GHJK')}"
        other = f"{r.choice(_SURNAMES)} {r.choice('LMNP')}"
        title = f"{self.mark('RF')} promotes bladder cancer and inhibits {r.choice(_WORDS)}"
        year = r.randint(1990, 2022)
        place = f"J Pathol {r.randint(10, 300)}:{r.randint(100, 900)}-{r.randint(901, 999)}"
        if number is None:
            return f"{name}, {other} ({year}) {title}. {place}."
        return f"{number}. {name}, {other}, et al. {title}. {place}, {year}."

    def draw(self, x: float, y: float, text: str, size: float, font: str = SERIF) -> None:
        """One line at its baseline."""
        self.canvas.setFont(font, size)
        self.canvas.drawString(x, y, text)

    def wrap(self, text: str, width: float, size: float, hyphens: bool = False) -> Iterator[str]:
        """Lines no wider than `width`; with `hyphens`, long words are broken at line ends."""
        line = ""
        for word in text.split():
            longer = f"{line} {word}".strip()
            if stringWidth(longer, SERIF, size) <= width:
                line = longer
                continue
            first, _, rest = _LONG.get(word, "").partition("-")
            broken = f"{line} {first}-"
            if hyphens and rest and stringWidth(broken, SERIF, size) <= width:
                yield broken
                line = rest
                continue
            yield line
            line = word
        if line:
            yield line

    def done(self) -> Article:
        """The finished file."""
        self.canvas.save()
        return Article(self.buffer.getvalue(), self.truth)


@dataclass
class Column:
    """A place where text flows: upper left corner, width, and the lowest baseline."""

    x: float
    top: float
    width: float
    bottom: float


def fill(
    w: Writer, column: Column, size: float, *, kind: str = "BD", hyphens: bool = False,
    keep: list[tuple[float, float, str]] | None = None, lead: float = 1.2,
) -> float:  # fmt: skip
    """Fill a column with paragraphs; with `keep`, lines are collected and not drawn."""
    y = column.top
    lines: list[str] = []
    room = int((column.top - column.bottom) / (size * lead))
    while len(lines) < room:
        paragraph = " ".join(w.sentence(kind) for _ in range(4))
        wrapped = list(w.wrap(paragraph, column.width, size, hyphens))
        if len(lines) + len(wrapped) > room:
            for _ in range(paragraph.count(kind)):
                w.truth[kind].pop()  # it does not fit: it was never said
            break
        lines += wrapped
    for line in lines:
        if keep is None:
            w.draw(column.x, y, line, size)
        else:
            keep.append((column.x, y, line))
        y -= size * lead
    return y


def references(w: Writer, columns: list[Column], size: float, numbered: bool, first: int) -> int:
    """Fill columns with a reference list from entry `first`; returns the next number."""
    number = first
    for column in columns:
        y = column.top
        while y > column.bottom + 4 * size:
            entry = w.reference(number if numbered else None)
            for line in w.wrap(entry, column.width, size):
                w.draw(column.x, y, line, size)
                y -= size * 1.15
            number += 1
    return number


def table(w: Writer, x: float, y: float, width: float, rows: int, size: float) -> float:
    """A table with its caption; returns where it ends."""
    caption = f"Table {w.random.randint(1, 9)}. {w.sentence('CP')}"
    for line in w.wrap(caption, width, size):
        w.draw(x, y, line, size, BOLD)
        y -= size * 1.2
    y -= 3
    for row in range(rows):
        for cell in range(4):
            text = w.mark("TB") if cell == 0 else f"{w.random.random():.3f}"
            w.draw(x + cell * width / 4, y, text if row else f"Head{cell}", size)
            if cell == 0 and not row:
                w.truth["TB"].pop()
        y -= size * 1.3
    return y - 8


def figure(w: Writer, x: float, y: float, width: float, size: float, height: float = 70) -> float:
    """A drawing with labels inside and a caption under it; returns where it ends."""
    w.canvas.rect(x, y - height, width, height)
    for k in range(4):
        w.draw(x + 8 + k * width / 5, y - height + 5, w.mark("LB"), size * 0.8)
    y -= height + size * 1.4
    caption = f"Figure {w.random.randint(1, 9)}. {w.sentence('CP')} {w.sentence('CP')}"
    for line in w.wrap(caption, width, size):
        w.draw(x, y, line, size)
        y -= size * 1.15
    return y - 8


def margin(seed: int) -> Article:
    """One column beside margin notes on every page, headings, author-year references."""
    w = Writer(seed)
    for page in range(1, PAGES + 1):
        w.draw(170, HEIGHT - 40, f"Cancers 2021, 13, {page} of 20 HD0001x", 8, ITALIC)
        w.draw(170, 30, "https://doi.org/10.0000/cancers HD0003x", 8)
        y = HEIGHT - 120
        for line in ("Citation: Smith, J.", w.mark("MN"), "Received: 3 May", w.mark("MN")):
            w.draw(40, y, line, 7)
            y -= 9
        column = Column(170, HEIGHT - 75, 380, 60)
        if page <= 18:
            if page in (1, 5, 12):
                title = {1: "1. Introduction", 5: "3. Results", 12: "4. Discussion"}[page]
                w.draw(170, column.top, title, 12, BOLD)
                column.top -= 20
            if page % 5 == 0:
                column.top = table(w, 170, column.top, 380, 8, 8.5)
            if page % 5 == 3:
                column.top = figure(w, 170, column.top, 380, 8.5, 120)
            fill(w, column, 10, hyphens=True)
        else:
            if page == 19:
                w.draw(170, column.top, "References", 12, BOLD)
                column.top -= 18
            references(w, [column], 9, False, 1)
        w.canvas.showPage()
    return w.done()


def weekly(seed: int) -> Article:
    """Two columns under full-width figures, references in the middle, small methods after."""
    w, last = Writer(seed), 1
    for page in range(1, PAGES + 1):
        w.draw(50, HEIGHT - 30, "Article HD0001x", 9, BOLD)
        w.draw(50, 28, f"{page} | Weekly | Vol 500 | HD0002x", 7)
        columns = [Column(50, HEIGHT - 60, 240, 50), Column(307, HEIGHT - 60, 240, 50)]
        if page <= 14:
            if page % 3 == 1:
                top = figure(w, 50, HEIGHT - 60, 497, 7.5, 140)
                for column in columns:
                    column.top = top
            if page % 3 == 2:  # in the middle: text above, table, text below
                for column in columns:
                    column.bottom = 480
                    fill(w, column, 9.5)
                top = table(w, 50, 455, 497, 6, 7.5)
                columns = [Column(50, top, 240, 50), Column(307, top, 240, 50)]
            for column in columns:
                fill(w, column, 9.5)
        elif page <= 16:
            if page == 15:
                w.draw(50, HEIGHT - 60, "References", 11, BOLD)
                columns[0].top -= 16
            last = references(w, columns, 7.5, True, last)
        else:
            if page == 17:
                w.draw(50, HEIGHT - 60, "Methods", 11, BOLD)
                columns[0].top -= 16
            for column in columns:
                fill(w, column, 8.5)
        w.canvas.showPage()
    return w.done()


def download(seed: int) -> Article:
    """Two columns with a rotated download notice, a watermark, footnotes and broken words."""
    w = Writer(seed)
    for page in range(1, PAGES + 1):
        w.draw(200, HEIGHT - 30, "Annals of Cohorts HD0001x", 9, ITALIC)
        w.draw(290, 25, str(page), 9)
        notice = "Downloaded from https://academic.example.org/ by guest on 12 March 2021 WM0001x"
        w.canvas.saveState()
        w.canvas.translate(WIDTH - 15, 200)
        w.canvas.rotate(90)
        w.draw(0, 0, notice, 8)
        w.canvas.restoreState()
        w.canvas.saveState()
        w.canvas.translate(120, 250)
        w.canvas.rotate(50)
        w.canvas.setFillGray(0.85)
        w.draw(0, 0, "ACCEPTED MANUSCRIPT WM0002x", 34, BOLD)
        w.canvas.restoreState()
        columns = [Column(55, HEIGHT - 60, 230, 100), Column(310, HEIGHT - 60, 230, 100)]
        if page <= 18:
            for column in columns:
                fill(w, column, 10, hyphens=True)
            y = 80
            w.canvas.line(55, 90, 120, 90)
            for line in w.wrap(f"* {w.sentence('FN')}", 230, 7.5):
                w.draw(55, y, line, 7.5)
                y -= 9
        else:
            if page == 19:
                w.draw(55, HEIGHT - 60, "LITERATURE CITED", 10, BOLD)
                columns[0].top -= 16
            references(w, columns, 9, False, 1)
        w.canvas.showPage()
    return w.done()


def letter(seed: int) -> Article:
    """Three columns, drawn row by row across the page, and references without a heading."""
    w, last = Writer(seed), 1
    for page in range(1, PAGES + 1):
        w.draw(40, HEIGHT - 28, "LETTERS HD0001x", 9, BOLD)
        w.draw(480, HEIGHT - 28, f"Science {page} HD0002x", 8)
        columns = [Column(40 + k * 178, HEIGHT - 55, 160, 50) for k in range(3)]
        if page <= 18:
            kept: list[tuple[float, float, str]] = []
            if page % 6 == 4:
                top = figure(w, 40, HEIGHT - 55, 516, 8, 110)
                for column in columns:
                    column.top = top
            for column in columns:
                fill(w, column, 9, keep=kept)
            for x, y, line in sorted(kept, key=lambda row: (-row[1], row[0])):
                w.draw(x, y, line, 9)
        else:
            last = references(w, columns, 7.5, True, last)
        w.canvas.showPage()
    return w.done()


LAYOUTS: dict[str, Callable[[int], Article]] = {
    "margin": margin,
    "weekly": weekly,
    "download": download,
    "letter": letter,
}
