"""Sources of documents: a reader per format, a folder walker, and file reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kg.sources.base import (
    LONGEST_TEXT,
    LONGEST_TITLE,
    MAX_BYTES,
    ReadOptions,
    SourceError,
    SourceReport,
    SourceResult,
    sha256_bytes,
)
from kg.types import Document
from sage.core.errors import InputError
from sage.core.log import logger

__all__ = ["ReadOptions", "SourceReport", "SourceResult", "discover", "read_file"]

log = logger(__name__)

Reader = Callable[[Path, bytes, ReadOptions], SourceResult]

TEXT = frozenset({".md", ".markdown", ".txt", ".text"})
SUFFIXES = TEXT | {".pdf", ".xml", ".nxml", ".nbib", ".medline", ".bib", ".ris"}
# Files that describe the corpus and are not part of it.
_ASIDE = frozenset({"readme.md", "license", "license.txt", "license.md", "notice", "notice.md"})


def discover(sources: Sequence[Path]) -> tuple[list[Path], list[SourceReport]]:
    """Find the files to read under `sources`, sorted, and report files of unknown type.

    Raises
    ------
    InputError
        If a named source does not exist.
    """
    files: dict[Path, None] = {}
    reports = []
    for source in sources:
        if not source.exists():
            raise InputError(f"{source}: file or folder not found")
        if source.is_file():
            files[source] = None
            continue
        root = source.resolve()
        for path in sorted(source.rglob("*")):
            if any(part.startswith(".") for part in path.relative_to(source).parts):
                continue
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                reports.append(
                    SourceReport(
                        path=str(path), status="skipped", reason="link that leaves the folder"
                    )
                )
                continue
            if not path.is_file():
                continue
            name = path.name.lower()
            if name in _ASIDE or (name.startswith("source") and name.endswith(".txt")):
                reports.append(
                    SourceReport(
                        path=str(path),
                        status="skipped",
                        reason="description of the folder, not a document",
                    )
                )
            elif path.suffix.lower() in SUFFIXES:
                files[path] = None
            else:
                reports.append(
                    SourceReport(
                        path=str(path),
                        status="skipped",
                        reason=f"unsupported file type ({path.suffix or 'no suffix'})",
                    )
                )
    return list(files), reports


def read_file(path: Path, options: ReadOptions | None = None) -> SourceResult:
    """Read a file's documents and report on it; its content never causes an exception."""
    options = options or ReadOptions()
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise SourceError(f"larger than {MAX_BYTES >> 20} MiB ({size >> 20} MiB)")
        if size == 0:
            raise SourceError("empty file")
        data = path.read_bytes()
    except SourceError as error:
        return SourceResult(SourceReport(path=str(path), status="failed", reason=str(error)))
    except OSError as error:
        return SourceResult(
            SourceReport(path=str(path), status="failed", reason=error.strerror or str(error))
        )
    digest = sha256_bytes(data)
    try:
        result = _reader(path, data)(path, data, options)
    except SourceError as error:
        result = SourceResult(SourceReport(path=str(path), status="failed", reason=str(error)))
    except RecursionError:
        result = SourceResult(
            SourceReport(path=str(path), status="failed", reason="nested too deeply")
        )
    except Exception as error:  # noqa: BLE001 - a bad file must not stop a build; it is reported
        log.info("file skipped", path=str(path), reason=f"{type(error).__name__}: {error}"[:300])
        reason = "damaged, or its content does not match its suffix"
        result = SourceResult(SourceReport(path=str(path), status="failed", reason=reason))
    result.sha256 = digest
    _limit_documents(result)
    result.report = result.report.model_copy(update={"documents": len(result.documents)})
    return result


def _limit_documents(result: SourceResult) -> None:
    """Omit documents that are too long, truncate long titles, and report the counts."""
    whole = [d for d in result.documents if len(d.text) <= LONGEST_TEXT]
    long = [d for d in whole if max(len(d.title), len(d.venue or "")) > LONGEST_TITLE]
    notes = []
    if left := len(result.documents) - len(whole):
        notes.append(f"{left} documents of more than {LONGEST_TEXT:,} characters omitted")
    if long:
        notes.append(f"{len(long)} titles or journals truncated to {LONGEST_TITLE:,} characters")
        cut = {
            id(d): d.model_copy(
                update={
                    "title": d.title[:LONGEST_TITLE],
                    "venue": d.venue[:LONGEST_TITLE] if d.venue else None,
                }
            )
            for d in long
        }
        whole = [cut.get(id(d), d) for d in whole]
    if notes:
        result.documents = whole
        status = result.report.status if whole else "failed"
        more: dict[str, object] = {"status": status, "notes": (*result.report.notes, *notes)}
        result.report = result.report.model_copy(update=more | {"reason": "; ".join(notes)})


def _reader(path: Path, data: bytes) -> Reader:
    suffix = path.suffix.lower()
    if data[:1024].lstrip().startswith(b"%PDF-") or suffix == ".pdf":
        from kg.sources.pdf import read_pdf

        return read_pdf
    if suffix in {".xml", ".nxml"}:
        from kg.sources.xml import read_xml

        return _simple(read_xml)
    if suffix in {".nbib", ".medline"}:
        from kg.sources.medline import read_medline

        return _simple(read_medline)
    if suffix == ".bib":
        from kg.sources.bibtex import read_bibtex

        return _simple(read_bibtex)
    if suffix == ".ris":
        from kg.sources.ris import read_ris

        return _simple(read_ris)
    if suffix in TEXT:
        from kg.sources.plain import read_text

        return _simple(read_text)
    raise SourceError(f"unsupported file type ({suffix or 'no suffix'})")


def _simple(function: Callable[[Path, bytes], Iterable[Document]]) -> Reader:
    def run(path: Path, data: bytes, options: ReadOptions) -> SourceResult:
        documents = list(function(path, data))
        if not documents:
            raise SourceError("no record with text")
        return SourceResult(SourceReport(path=str(path), status="read"), documents)

    return run
