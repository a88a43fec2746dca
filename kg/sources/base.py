"""What every source yields: documents, and a report per file that never raises."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from kg.types import Document
from sage.core.models import Strict

READER_VERSION = "7"
LONGEST_TITLE = 1_000
"""Characters of a document's title or journal; what is longer is cut, and the report says so."""
LONGEST_TEXT = 20_000_000
"""Characters of a document's text; a longer one is left out, and the report says so."""
MAX_BYTES = 512 * 1024 * 1024


class SourceError(Exception):
    """A file that cannot be read, with the reason that goes into its report."""


class ReadOptions(Strict):
    """How files are read.

    `pdf_order`: `fast` tries pypdfium2, then pypdf, then pdfplumber; `paper` uses the order of
    SAGE, A.2 (pdfplumber first). `ocr`: hand pages without text to an OCR program if installed.
    `tables`: also read tables by pdfplumber (slow), as rows in sections of their own.
    """

    pdf_order: str = "fast"
    ocr: bool = False
    tables: bool = False
    max_pages: int = 5000

    @property
    def key(self) -> str:
        """Content key of the reader."""
        return (
            f"{READER_VERSION}:{self.pdf_order}:{int(self.ocr)}:{int(self.tables)}:{self.max_pages}"
        )


class SourceReport(Strict):
    """What became of one file: `read`, `skipped` or `failed`, and why."""

    path: str
    status: str
    reason: str | None = None
    pages: int | None = None
    tier: str | None = None
    quality: float | None = None
    documents: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class SourceResult:
    """Documents of one file with the file's report."""

    report: SourceReport
    documents: list[Document] = field(default_factory=list)
    sha256: str = ""


def sha256_bytes(data: bytes) -> str:
    """Hex digest of file content; the id of a document that is a whole file."""
    return hashlib.sha256(data).hexdigest()


def decode(data: bytes, path: Path) -> str:
    """Text of a file: UTF-8 or UTF-16 with a mark, else Windows-1252.

    Raises
    ------
    SourceError
        If the bytes are binary.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    if data.count(b"\x00") > max(4, len(data) // 100):
        raise SourceError(f"binary content ({data.count(0)} NUL bytes); not a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")
