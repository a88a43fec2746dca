"""Reading of sources into a corpus, with caching, deduplication and retraction flags."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kg.corpus.store import Store
from kg.sources import ReadOptions, SourceReport, SourceResult, discover, read_file
from kg.sources.base import sha256_bytes
from kg.types import Document

Progress = Callable[[str, int, int], None]


def read_sources(
    store: Store, sources: Sequence[Path], options: ReadOptions, workers: int, progress: Progress
) -> tuple[list[SourceReport], list[tuple[str, str]], int]:
    """Read every source file, reusing the stored result if this reader has read it before.

    Parameters
    ----------
    options : how files are read; a file is read again when these or the reader's version
        change
    workers : number of processes that read PDFs; other files are read in this process

    Returns
    -------
    One report per file in order of path, the documents as (id, path) pairs in source order,
    and the number of files that came from the store. A file that appears under several names
    is read once and listed under each.

    Raises
    ------
    InputError
        If a named source does not exist.
    """
    files, reports = discover(sources)
    reader = options.key
    results: dict[Path, tuple[SourceReport, list[str]]] = {}
    pending: list[tuple[Path, str]] = []
    real: dict[Path, Path] = {}
    stamps, known = store.stamps(), store.files(reader)
    for path in files:
        digest = _digest(store, path, real, stamps)
        if digest in known:
            results[path] = _recall_report(path, known[digest])
        else:
            pending.append((path, digest or ""))
    cached = len(results)
    queued: set[str] = set()
    unique = []
    for path, digest in pending:
        if digest and digest in queued:
            continue  # the same bytes under another name are read once
        queued.add(digest)
        unique.append(path)
    for done, (path, result) in enumerate(read_all(unique, options, workers), 1):
        progress("read", done, len(unique))
        if result.sha256:
            store.add_file(result.sha256, reader, result.report.model_dump(), result.documents)
        results[path] = (result.report, [d.id for d in result.documents])
    if len(unique) < len(pending):
        known = store.files(reader)
    for path, digest in pending:
        if path not in results and digest in known:
            results[path] = _recall_report(path, known[digest])
    order = []
    for path in files:
        report, documents = results[path]
        reports.append(report)
        order += [(doc_id, str(path)) for doc_id in documents]
    reports.sort(key=lambda r: r.path)
    return reports, order, cached


def _recall_report(path: Path, known: dict[str, Any]) -> tuple[SourceReport, list[str]]:
    """Rebuild the stored report of a file with the same content, under this path."""
    documents = known["documents"]
    report = {name: value for name, value in known.items() if name != "documents"}
    return SourceReport(path=str(path), documents=len(documents), **report), documents


def _digest(
    store: Store, path: Path, real: dict[Path, Path], stamps: dict[str, tuple[str, str]]
) -> str | None:
    """Compute a file's SHA-256, or reuse it while size and modification time are unchanged.

    `real` caches the folders resolved in this call; `stamps` contains the hashes of earlier calls.
    Returns None if the file cannot be read.
    """
    try:
        stat = path.stat()
        stamp = f"{stat.st_size}:{stat.st_mtime_ns}"
        if path.parent not in real:
            real[path.parent] = path.parent.resolve()
        place = str(path.resolve() if path.is_symlink() else real[path.parent] / path.name)
        known = stamps.get(place)
        if known is not None and known[0] == stamp:
            return known[1]
        digest = sha256_bytes(path.read_bytes())
    except OSError:
        return None  # reported when it is read
    store.set_stamp(place, stamp, digest)
    return digest


def read_all(
    paths: Sequence[Path], options: ReadOptions, workers: int
) -> Iterator[tuple[Path, SourceResult]]:
    """Yield results as they arrive; PDFs go to workers, so that a crash loses only one file."""
    heavy = [path for path in paths if path.suffix.lower() == ".pdf"]
    for path in paths:
        if path.suffix.lower() != ".pdf":
            yield path, read_file(path, options)
    if not heavy:
        return
    queue = sorted(heavy, key=lambda p: (-_size(p), str(p)))  # long files first
    attempts: dict[Path, int] = {}
    while queue:
        running: dict[Future[SourceResult], Path] = {}
        with ProcessPoolExecutor(
            max_workers=min(workers, len(queue)), mp_context=get_context("forkserver")
        ) as pool:
            waiting = list(queue)
            queue = []
            broken = False
            while (waiting and not broken) or running:
                while waiting and not broken and len(running) < workers * 2:
                    path = waiting.pop(0)
                    # A file that may have killed a worker before runs alone.
                    if attempts.get(path) and running:
                        waiting.insert(0, path)
                        break
                    running[pool.submit(read_file, path, options)] = path
                    if attempts.get(path):
                        break
                finished, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    path = running.pop(future)
                    try:
                        yield path, future.result()
                    except BrokenProcessPool:
                        broken = True
                        attempts[path] = attempts.get(path, 0) + 1
                        if attempts[path] > 1:
                            yield path, _report_crash(path)
                        else:
                            queue.append(path)
            queue += waiting


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _report_crash(path: Path) -> SourceResult:
    data = path.read_bytes()
    report = SourceReport(
        path=str(path), status="failed", reason="the reader process crashed on this file"
    )
    return SourceResult(report, sha256=sha256_bytes(data))


def select(
    store: Store, order: Sequence[tuple[str, str]], options: ReadOptions
) -> tuple[list[dict[str, Any]], list[Document], list[str]]:
    """Select one document per paper; return corpus rows, the documents kept, and notes.

    Two documents are the same paper if they share a DOI, PMID or PMCID, or title and year, and none
    of their identifiers disagree. The document with the longest text is kept, and missing fields
    are filled in from its duplicates; if any copy is retracted, the paper is retracted. Documents
    whose identifiers disagree are kept separate, and a note reports the conflict.
    """
    paths: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    for doc_id, path in order:
        if doc_id not in paths:
            paths[doc_id] = path
    documents = []
    for doc_id, path in paths.items():
        document = store.document(doc_id, options.key)
        if document is not None:
            documents.append(document.model_copy(update={"path": path}))
    documents.sort(key=lambda d: (-len(d.text), d.id))
    kept: list[Document] = []
    index: dict[tuple[str, str], int] = {}
    notes: list[str] = []
    overrides: dict[str, dict[str, Any]] = {}
    for document in documents:
        twin = None
        for key in _keys(document):
            position = index.get(key)
            if position is None:
                continue
            other = kept[position]
            conflict = _conflict(document, other)
            if conflict:
                notes.append(
                    f"{document.path} and {other.path} share {key[0]} {key[1]} but disagree on "
                    f"{conflict}; both are kept, so check them"
                )
                continue
            twin = position
            break
        if twin is None:
            for key in _keys(document):
                index.setdefault(key, len(kept))
            kept.append(document)
            continue
        other = kept[twin]
        merged: dict[str, Any] = {}
        for name in ("year", "venue", "doi", "pmid", "pmcid"):
            if getattr(other, name) is None and getattr(document, name) is not None:
                merged[name] = getattr(document, name)
        if document.retracted and not other.retracted:
            merged["retracted"] = True
        if merged:
            kept[twin] = other.model_copy(update=merged)
            overrides.setdefault(other.id, {}).update(merged)
            for key in _keys(kept[twin]):
                index.setdefault(key, twin)
        rows.append(_row(document, False, f"duplicate of {other.path}"))
    for document in kept:
        row = _row(document, True, None)
        row["overrides"] = json.dumps(overrides.get(document.id, {}), sort_keys=True)
        rows.append(row)
    return rows, sorted(kept, key=lambda d: d.id), sorted(notes)


def _row(document: Document, included: bool, reason: str | None) -> dict[str, Any]:
    return {
        "doc_id": document.id,
        "path": document.path,
        "included": int(included),
        "reason": reason,
        "score": None,
        "parts": None,
        "overrides": "{}",
    }


def _keys(document: Document) -> list[tuple[str, str]]:
    keys = []
    if document.doi:
        keys.append(("DOI", document.doi.lower()))
    if document.pmid:
        keys.append(("PMID", document.pmid))
    if document.pmcid:
        keys.append(("PMCID", document.pmcid))
    title = unicodedata.normalize("NFKD", document.title).lower()
    title = re.sub(r"[^a-z0-9]+", " ", title).strip()
    if len(title) >= 40:
        keys.append(("title", title))
    return keys


def _conflict(document: Document, two: Document) -> str | None:
    """Find the identifier on which two documents disagree."""
    for name in ("doi", "pmid", "pmcid"):
        a, b = getattr(document, name), getattr(two, name)
        if a and b and a.lower() != b.lower():
            return f"{name.upper()} ({a}, {b})"
    if document.year and two.year and abs(document.year - two.year) > 1:
        return f"year ({document.year}, {two.year})"
    return None
