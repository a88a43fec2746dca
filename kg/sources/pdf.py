"""PDF reader with three tiers, tried per page depending on measured text quality.

pypdfium2 preserves the order of columns and is fastest; a page with poor text quality is
read again with pypdf, then with pdfplumber, and the best result is kept.
"""

from __future__ import annotations

import io
import logging
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kg.corpus.textnorm import clean, dehyphenate
from kg.sources.base import ReadOptions, SourceError, SourceReport, SourceResult, sha256_bytes
from kg.sources.identifiers import clean_doi, clean_year
from kg.sources.pdf_blocks import PageLines, Parts, in_rows, parts
from kg.sources.pdf_layout import assemble
from kg.sources.pdf_lines import page_lines, page_text
from kg.sources.pdf_quality import BAD, GOOD, Quality, measure
from kg.types import Document, Section
from sage.core.log import logger

log = logger(__name__)

_DPI = 200
_TIERS = ("pypdfium2", "pypdf", "pdfplumber")

_BAD_TITLE = re.compile(r"untitled|microsoft|\.(?:docx?|indd|qxd|tex|pdf|dvi)\b|^\W*$|^doi:", re.I)
_YEAR = re.compile(
    r"(?:©|\(c\)|copyright|published|accepted|received|vol(?:ume)?\.?)[^\n]{0,60}?"
    r"\b((?:19|20)\d\d)\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Page:
    """The selected text of a page, with its tier and quality."""

    text: str
    tier: str
    quality: Quality


def read_pdf(path: Path, data: bytes, options: ReadOptions) -> SourceResult:
    """Read a document from a PDF; report tiers and quality.

    Raises
    ------
    SourceError
        If the file is encrypted, malformed, or has no text layer; the message gives the
        reason.
    """
    if b"%PDF-" not in data[:1024]:
        raise SourceError("not a PDF (no %PDF header)")
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    logging.getLogger("pdfminer").setLevel(logging.CRITICAL)
    notes: list[str] = []
    metadata: dict[str, str] = {}
    readers = _Readers(data)
    try:
        count, metadata = readers.open()
        if count > options.max_pages:
            raise SourceError(f"{count} pages, more than the limit of {options.max_pages}")
        pages = [_read_page(readers, number) for number in range(count)]
        empty = [number for number, page in enumerate(pages) if page.quality.words < 3]
        if empty and options.ocr:
            notes += _ocr(readers, pages, empty)
            empty = [number for number in empty if pages[number].quality.words < 3]
        if len(empty) == len(pages):
            reason = "no text layer (scanned, or drawn as outlines)"
            if not options.ocr:
                reason += "; try the OCR option"
            elif notes:
                reason += f"; {notes[0]}"
            raise SourceError(reason)
        if empty:
            notes.append(f"{len(empty)} of {len(pages)} pages have no text")
        placed = _place_lines(readers, pages)
    finally:
        readers.close()
    texts = placed.pages or [page.text for page in pages]
    text, sections = assemble(texts)
    asides = [("Figure or table caption", caption) for caption in placed.captions]
    asides += [("Footnote", note) for note in placed.notes]
    for name, lines in asides:
        aside = " ".join(dehyphenate(lines).split())
        start = len(text) + 2
        text += "\n\n" + aside
        sections = (*sections, Section(title=name, start=start, end=len(text)))
    if not text.strip():
        raise SourceError("no text left after removing headers, footers and references")
    first = clean(pages[0].text)
    title = _title(metadata.get("Title", ""), first)
    tiers = {page.tier for page in pages if page.quality.words >= 3}
    scores = [page.quality.score for page in pages if page.quality.words >= 3]
    poor = sum(1 for score in scores if score < GOOD)
    if poor:
        notes.append(f"{poor} of {len(pages)} pages read poorly (quality below {GOOD})")
    unread = sum(page.quality.unread for page in pages)
    if unread:
        notes.append(
            f"{unread} characters could not be read, because their font does not say what they are"
        )
    document = Document(
        id=sha256_bytes(data),
        path=str(path),
        title=title or path.stem,
        text=text,
        sections=sections,
        year=_year(first, metadata),
        doi=clean_doi(first[:6000]) or clean_doi(metadata.get("Subject")),
        pages=len(pages),
        tier="+".join(sorted(tiers)),
        retracted=title.upper().startswith("RETRACTED") or "RETRACTED ARTICLE" in first[:400],
    )
    report = SourceReport(
        path=str(path),
        status="read",
        pages=len(pages),
        tier=document.tier,
        quality=round(sum(scores) / len(scores), 3),
        unread=unread,
        notes=tuple(notes),
    )
    return SourceResult(report, [document])


class _Readers:
    """The three PDF libraries for one file, each opened on first use."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pdfium: Any = None
        self._pypdf: Any = None
        self._plumber: Any = None
        self._pages: dict[int, tuple[str, PageLines]] = {}

    def open(self) -> tuple[int, dict[str, str]]:
        """Return page count and metadata from the first library that can open the file."""
        import pypdfium2 as pdfium

        reasons = []
        try:
            self._pdfium = pdfium.PdfDocument(self._data)
            count = len(self._pdfium)
            if count:
                return count, {k: str(v) for k, v in self._pdfium.get_metadata_dict().items()}
            reasons.append("no pages")
        except pdfium.PdfiumError as error:
            if "password" in str(error).lower():
                raise SourceError("encrypted: a password is required to open it") from None
            reasons.append(str(error))
        try:
            reader = self._pypdf_reader()
            count = len(reader.pages)
            if count:
                return count, {}
        except SourceError:
            raise
        except Exception as error:  # noqa: BLE001 - any failure of the second opinion is the answer
            reasons.append(str(error)[:80] or "its structure cannot be parsed")
        raise SourceError(f"malformed PDF ({'; '.join(reasons)[:200]})")

    def _pypdf_reader(self) -> Any:
        if self._pypdf is None:
            from pypdf import PdfReader

            reader = PdfReader(io.BytesIO(self._data), strict=False)
            if reader.is_encrypted and not reader.decrypt(""):
                raise SourceError("encrypted: a password is required to open it")
            self._pypdf = reader
        return self._pypdf

    def text(self, tier: str, number: int) -> str:
        """Extract a page's raw text with a given library, passing on its exceptions."""
        if tier == "pypdfium2":
            if self._pdfium is None:
                return ""
            text = self._read(number)[0]
            # pdfium marks a word broken at a line end by U+FFFE.
            return _mark_unmapped(re.sub(r"\ufffe(?:\r?\n)?", "", text))
        if tier == "pypdf":
            return _mark_unmapped(self._pypdf_reader().pages[number].extract_text() or "")
        if self._plumber is None:
            import pdfplumber

            self._plumber = pdfplumber.open(io.BytesIO(self._data))
        page = self._plumber.pages[number]
        text = page.extract_text() or ""
        page.close()
        return _mark_unmapped(text)

    def lines(self, number: int) -> PageLines:
        """Return a page's lines with their boxes, as read by pdfium."""
        return self._read(number)[1]

    def _read(self, number: int) -> tuple[str, PageLines]:
        """Read a page's text and lines; pdfium opens the page only once."""
        if number in self._pages:
            return self._pages[number]
        page = self._pdfium[number]
        textpage = page.get_textpage()
        try:
            width, height = page.get_size()
            whole = page_text(textpage)
            text = whole if "\ufffd" in whole else str(textpage.get_text_bounded())
            found = tuple(page_lines(textpage, whole))
            left, bottom = page.get_cropbox()[:2]
        finally:
            textpage.close()
            page.close()
        inside = [
            line for line in found
            if -1 <= (line.left + line.right) / 2 - left <= width + 1
            and -1 <= line.baseline - bottom <= height + 1
        ]  # fmt: skip
        self._pages[number] = text, PageLines(tuple(inside), width, height)
        return self._pages[number]

    def image(self, number: int) -> bytes:
        """Render a page as PNG."""
        page = self._pdfium[number]
        buffer = io.BytesIO()
        page.render(scale=_DPI / 72).to_pil().save(buffer, format="PNG")
        return buffer.getvalue()

    def close(self) -> None:
        """Close the libraries that were opened."""
        for handle in (self._pdfium, self._plumber):
            if handle is not None:
                handle.close()


def _mark_unmapped(text: str) -> str:
    """Replace characters that a font does not map with U+FFFD."""
    return re.sub(r"[\x00\x01\x03-\x08\x0e-\x1f]|\(cid:\d+\)", "\ufffd", text)


def _read_page(readers: _Readers, number: int) -> Page:
    """Read a page with each tier in turn until the text is good; else keep the best text."""
    best = Page("", _TIERS[0], measure(""))
    for tier in _TIERS:
        if tier == "pdfplumber" and best.quality.score >= BAD:
            break  # a table or a form: the slow tier reads those no better
        try:
            text = readers.text(tier, number)
        except Exception as error:  # noqa: BLE001 - a tier that fails is what the next tier is for
            log.failed("PDF text unreadable", error, tier=tier, page=number + 1)
            continue
        quality = measure(text)
        if quality.words >= 3 and quality.score >= GOOD:
            return Page(text, tier, quality)
        better = (quality.score, quality.words) > (best.quality.score, best.quality.words)
        if better or not best.text:
            best = Page(text, tier, quality)
        if tier == "pypdf" and quality.words < 3 and best.quality.words < 3:
            break  # two libraries see no text: the third, slow library will not either
    return best


def _place_lines(readers: _Readers, pages: Sequence[Page]) -> Parts:
    """Order pages' text by line position; pages not read by pdfium keep their text."""
    known = {n for n, page in enumerate(pages) if page.tier == "pypdfium2"}
    nothing = PageLines((), 0.0, 0.0)
    try:
        lined = [readers.lines(n) if n in known else nothing for n in range(len(pages))]
        if not in_rows(lined):
            return Parts()
        found = parts(lined)
    except Exception as error:  # noqa: BLE001 - without places the text in the file's order stays
        log.failed("PDF layout unreadable", error)
        return Parts()
    found.pages = [
        text if number in known else pages[number].text for number, text in enumerate(found.pages)
    ]
    return found


def _ocr(readers: _Readers, pages: list[Page], empty: list[int]) -> Iterator[str]:
    """Fill pages without text using tesseract, and yield notes."""
    program = shutil.which("tesseract")
    if program is None:
        yield "OCR was requested, but tesseract is not installed"
        return
    done = 0
    for number in empty:
        try:
            result = subprocess.run(
                [program, "stdin", "stdout"],
                input=readers.image(number),
                capture_output=True,
                timeout=120,
                check=True,
            )
        except subprocess.TimeoutExpired:
            yield f"OCR of page {number + 1} took more than two minutes and was stopped"
            continue
        except (subprocess.SubprocessError, OSError):
            yield f"OCR of page {number + 1} failed"
            continue
        text = result.stdout.decode("utf-8", errors="replace")
        pages[number] = Page(text, "ocr", measure(text))
        done += 1
    yield f"{done} pages read by OCR"


def _title(metadata: str, first: str) -> str:
    title = " ".join(clean(metadata).split())
    if 15 <= len(title) <= 300 and not _BAD_TITLE.search(title):
        return title
    lines = [line.strip() for line in first.splitlines()[:40]]
    block: list[str] = []
    for line in lines:
        wordy = len(re.findall(r"[A-Za-z]{3,}", line)) >= 3
        masthead = re.search(
            r"doi|http|www\.|©|vol\.|issn|open access|received|journal|publishing"
            r"|additional information|declarations",
            line,
            re.I,
        )
        if wordy and not masthead:
            block.append(line)
            if sum(map(len, block)) > 160 or line.endswith("."):
                break
        elif block:
            break
    return " ".join(block)[:300]


def _year(first: str, metadata: dict[str, str]) -> int | None:
    match = _YEAR.search(first[:8000])
    if match:
        return int(match.group(1))
    return clean_year((metadata.get("CreationDate") or "")[2:6])
