"""Pages of lines to running text with sections: headers and footers off, references cut."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

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
_ENTRY = re.compile(r"^\s*(?:\[?\d{1,3}[\].)]|[A-Z][\w'-]+,? [A-Z]{1,3}[.,])")


def _key(line: str) -> str:
    return re.sub(r"\d+", "#", " ".join(line.lower().split()))


def _edge(page: Sequence[str]) -> int:
    """Lines at either end that may be header or footer: fewer on a short page."""
    return min(_EDGE, len(page) // 4)


def strip_running(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """Pages without running headers and footers and without bare page numbers.

    A line is a running line if, digits aside, it stands among the first or last lines of at least
    three pages and of a third of the pages (of odd or even pages, whose headers differ).
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
    """Text and sections of a document from the raw text of its pages."""
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
    """Everything before the reference list: its heading in the second half, then entries."""
    for position in range(len(lines) - 1, -1, -1):
        heading = _HEADING.match(lines[position]) if len(lines[position]) < 40 else None
        if heading and _REFERENCES.match(heading.group(1)) and position > len(lines) * 0.3:
            following = lines[position + 1 : position + 40]
            entries = sum(1 for line in following if _ENTRY.match(line))
            years = sum(1 for line in following if re.search(r"\b(?:19|20)\d\d\b", line))
            if entries + years >= max(2, len(following) // 8):
                return lines[:position]
    return lines
