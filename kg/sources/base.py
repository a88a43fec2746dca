"""Options, errors and results for reading files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from kg.types import Document
from sage.core.models import Strict

READER_VERSION = "8"
LONGEST_TITLE = 1_000
"""Maximum characters in a document's title or journal; longer text is cut and reported."""
LONGEST_TEXT = 20_000_000
"""Maximum characters in a document's text; longer documents are omitted and reported."""
MAX_BYTES = 512 * 1024 * 1024


class SourceError(Exception):
    """Error for a file that cannot be read; its message is the reason in the file's report."""


class ReadOptions(Strict):
    """Options for reading files.

    `ocr`: send pages without text to an OCR program if installed.
    """

    ocr: bool = False
    max_pages: int = 5000

    @property
    def key(self) -> str:
        """Key of the reader's version and options."""
        return f"{READER_VERSION}:{int(self.ocr)}:{self.max_pages}"


class SourceReport(Strict):
    """Report on a file: `read`, `skipped` or `failed`, and the reason.

    `unread` counts characters that their font does not map to Unicode, such as ligatures.
    """

    path: str
    status: str
    reason: str | None = None
    pages: int | None = None
    tier: str | None = None
    quality: float | None = None
    documents: int = 0
    unread: int = 0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class SourceResult:
    """Documents in a file, with the report on it."""

    report: SourceReport
    documents: list[Document] = field(default_factory=list)
    sha256: str = ""


def sha256_bytes(data: bytes) -> str:
    """Compute the hex digest of a file's content, used as the id of a whole-file document."""
    return hashlib.sha256(data).hexdigest()


def decode(data: bytes, path: Path) -> str:
    """Decode a file's text as UTF-8, UTF-16 (if it has a byte order mark) or Windows-1252.

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
