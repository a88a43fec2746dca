"""Assembly of pages into text with sections, without headers, footers and references."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from kg.corpus.textnorm import clean, dehyphenate
from kg.types import Section

_EDGE = 4  # lines at the top and bottom of a page that may be header or footer
_PAGE_NUMBER = re.compile(r"^\W*(?:page\s*)?\d{1,4}(?:\s*(?:of|/)\s*\d{1,4})?\W*$", re.IGNORECASE)
_HEADING = re.compile(
    r"^(?:\d{1,2}(?:\.\d{1,2})*\.?\s+|[IVX]{1,4}\.\s+)?"
    r"(abstract|summary|background|introduction|(?:materials?|patients?|subjects?"
    r"|data) and methods?"
    r"|methods? and materials?|methods?|methodology|experimental procedures?|results?"
    r"|results? and discussions?|discussions?|conclusions?|concluding remarks|limitations"
    r"|statistical analys[ei]s|acknowledge?ments?|funding|conflicts? of interests?"
    r"|competing interests?"
    r"|(?:online|star)[ *★]?methods|figure legends?|legends?(?: to figures)?|appendix(?: [A-Z0-9])?"
    r"|abbreviations|author information|extended data|supporting information"
    r"|author contributions|data availability(?: statement)?|supplementary materials?|ethics.{0,40}"
    r"|references|bibliography|literature cited|works cited)\s*[:.]?$",
    re.IGNORECASE,
)
_REFERENCES = re.compile(
    r"^(?:references|bibliography|literature cited|works cited)$", re.IGNORECASE
)
_BACK = re.compile(
    r"^(?:acknowledge?ments?|funding|conflicts? of interests?|competing interests?"
    r"|author contrib\w+"
    r"|data availability(?: statement)?|ethics.*)$",
    re.IGNORECASE,
)
_SURNAME = r"(?:(?:de|van|von|der|den|la|le|di|da|el|al)[ -])*[A-Z][\w'’-]+(?:[ -][A-Z][\w'’-]+)?"
_INITIALS = r"(?:[A-Z]\.?[ -]?){1,4}"
#: How an entry begins: `[3] A. Smith`, `3. Smith AB, et al`, `Smith, A. B.,`.
_ENTRY = re.compile(
    r"^\s*\[\d{1,3}\]\s+[A-Z]"
    rf"|^\s*\d{{1,3}}[.)]?\s+{_SURNAME},?\s+{_INITIALS}(?:[.,;:]|et al|and|&)"
    rf"|^\s*{_SURNAME},?\s+{_INITIALS}[.,;(]"
)
_CITED = re.compile(
    r"\(?\b(?:19|20)\d\d[a-z]?\b\)?[.;:,)]|\b(?:19|20)\d\d\b\s*$|\bdoi[:.]|\bet al\.?[,:]"
    r"|\b\d{1,4}\s?(?:\(\d+\))?\s?[:,]\s?e?\d+[-–]\d+"
)


def _key(line: str) -> str:
    return re.sub(r"\d+", "#", " ".join(line.lower().split()))


def _edge(page: Sequence[str]) -> int:
    """Return the number of header or footer lines possible at each end; fewer on a short page."""
    return min(_EDGE, len(page) // 4)


def strip_running(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """Remove running headers and footers and bare page numbers.

    A line is a running line if, apart from digits, it is among the first or last lines of at least
    three pages and a third of all pages (odd and even pages may have different headers).
    """
    counts: Counter[str] = Counter()
    for page in pages:
        size = _edge(page)
        edge = {_key(line) for line in (*page[:size], *page[len(page) - size :]) if line.strip()}
        counts.update(edge)
    need = max(3, len(pages) // 3)
    running = {key for key, count in counts.items() if count >= need}
    stripped = []
    for page in pages:
        size = _edge(page)
        kept = []
        for position, line in enumerate(page):
            edge_line = position < size or position >= len(page) - size
            if edge_line and (_key(line) in running or _PAGE_NUMBER.match(line)):
                continue
            kept.append(line)
        stripped.append(kept)
    return stripped


def assemble(pages: Sequence[str]) -> tuple[str, tuple[Section, ...]]:
    """Assemble a document's text and sections from the raw text of its pages."""
    lines = [[line.strip() for line in clean(page).split("\n") if line.strip()] for page in pages]
    flat = [line for page in strip_running(lines) for line in page]
    flat = _without_references(flat)
    widths = sorted(len(line) for line in flat) or [0]
    full = widths[int(len(widths) * 0.7)]
    blocks: list[tuple[str, list[str]]] = [("", [])]
    paragraph: list[str] = []

    def close() -> None:
        if paragraph:
            joined = dehyphenate("\n".join(paragraph)).replace("\n", " ")
            blocks[-1][1].append(" ".join(joined.split()))
            paragraph.clear()

    for line in flat:
        heading = _HEADING.match(line) if len(line) < 60 else None
        if heading:
            close()
            blocks.append((heading.group(1).capitalize(), []))
            continue
        paragraph.append(line)
        if line.endswith((".", "!", "?")) and len(line) < full * 0.75:
            close()
    close()
    parts: list[str] = []
    sections: list[Section] = []
    length = 0
    for title, paragraphs in blocks:
        text = "\n\n".join(paragraphs)
        if not text or _BACK.match(title):
            continue
        if parts:
            parts.append("\n\n")
            length += 2
        sections.append(Section(title=title, start=length, end=length + len(text)))
        parts.append(text)
        length += len(text)
    return "".join(parts), tuple(sections)


def _without_references(lines: list[str]) -> list[str]:
    """Remove reference lists, whether under a heading or as runs of entries without one.

    Text after a list is kept if it has another heading and does not look like entries, because
    methods and legends may be printed there.
    """
    kept: list[str] = []
    inside = False
    for position, line in enumerate(lines):
        heading = _HEADING.match(line) if len(line) < 60 else None
        if heading:
            announced = bool(_REFERENCES.match(heading.group(1)))
            ahead = lines[position + 1 : position + (41 if announced else 13)]
            share = 8 if announced else 3
            if sum(map(bibliographic, ahead)) >= max(2, len(ahead) // share):
                inside = inside or announced
            elif not announced:
                inside = False
        if not inside:
            kept.append(line)
    return _without_entries(kept)


def bibliographic(line: str) -> bool:
    """Check whether a line looks like part of a reference: an entry start, a year, or a DOI."""
    return bool(_ENTRY.match(line) or _CITED.search(line))


def _without_entries(lines: list[str]) -> list[str]:
    """Remove runs of at least six entries, each with a year, that do not follow a heading."""
    starts = [n for n, line in enumerate(lines) if _ENTRY.match(line)]
    drop: set[int] = set()
    run: list[int] = []
    for start in [*starts, len(lines) + 99]:
        if run and start - run[-1] > 6:
            ends = [*run[1:], min(len(lines), run[-1] + _longest(run))]
            dated = sum(
                any(_CITED.search(line) for line in lines[a:b])
                for a, b in zip(run, ends, strict=True)
            )
            if len(run) >= 6 and dated >= 0.8 * len(run):
                drop.update(range(run[0], ends[-1]))
            run = []
        run.append(start)
    return [line for n, line in enumerate(lines) if n not in drop]


def _longest(run: Sequence[int]) -> int:
    """Return the number of lines in the longest entry in a run."""
    return max((b - a for a, b in pairwise(run)), default=1)
