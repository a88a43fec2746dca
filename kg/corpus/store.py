"""Append-only store of documents, chunks, and each extractor's results for each chunk.

The store is a single SQLite file. Extractions are keyed by the chunk's content hash and
the extractor's key and never change. The graph is derived from them, so that fusion can
be replayed and undone. Failures have rows of their own: a failed chunk is retried in the
next build and is never mistaken for an empty result.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from kg.corpus.chunks import Chunk
from kg.corpus.store_schema import open_database
from kg.extract.base import Extraction, Mention, Statement
from kg.extract.study import parse_size, parse_study
from kg.types import Document, EntityType, Evidence, Section, Triple

_BATCH = 200
"""Number of extractions per transaction."""


class Store:
    """A corpus and its evidence on disk, usable as a context manager.

    Raises
    ------
    InputError
        If the file is not a store or was written by another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._batch = 0
        self._pending = 0
        self._db = open_database(self.path)
        self._documents: dict[tuple[str, str], Document] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Commit and close."""
        self._db.commit()
        self._db.close()

    def commit(self) -> None:
        """Make everything written so far durable."""
        self._db.commit()

    def meta(self, key: str) -> str:
        """Return a metadata value saved by the last build."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else ""

    def set_meta(self, key: str, value: str) -> None:
        """Save a metadata value for the next build."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
        self._db.commit()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Group added extractions into transactions; on an error, keep those already added."""
        self._batch, self._pending = _BATCH, 0
        try:
            yield
        finally:
            self._batch = 0
            self._db.commit()

    def _settle(self) -> None:
        self._pending += 1
        if self._pending >= self._batch:
            self._pending = 0
            self._db.commit()

    def stamps(self) -> dict[str, tuple[str, str]]:
        """Map each path to the file's size and modification time at hashing, and to its hash."""
        rows = self._db.execute("SELECT path, stamp, sha256 FROM stamps")
        return {path: (stamp, sha256) for path, stamp, sha256 in rows}

    def set_stamp(self, path: str, stamp: str, sha256: str) -> None:
        """Save a file's hash with its stamp."""
        self._db.execute("INSERT OR REPLACE INTO stamps VALUES (?, ?, ?)", (path, stamp, sha256))

    # -- files and documents -------------------------------------------------------------------

    def files(self, reader: str) -> dict[str, dict[str, Any]]:
        """Load the reports of files that this reader has read before, keyed by content hash."""
        found = {
            sha256: {
                "status": status,
                "reason": reason,
                "pages": pages,
                "tier": tier,
                "quality": quality,
                "notes": tuple(json.loads(notes)),
                "unread": unread,
                "documents": [],
            }
            for sha256, status, reason, pages, tier, quality, notes, unread in self._db.execute(
                "SELECT sha256, status, reason, pages, tier, quality, notes, unread "
                "FROM files "
                "WHERE reader = ?",
                (reader,),
            )
        }
        for sha256, doc_id in self._db.execute(
            "SELECT sha256, doc_id FROM file_documents WHERE reader = ? ORDER BY sha256, ordinal",
            (reader,),
        ):
            if sha256 in found:
                found[sha256]["documents"].append(doc_id)
        return found

    def add_file(
        self,
        sha256: str,
        reader: str,
        report: dict[str, Any],
        documents: Iterable[Document],
    ) -> None:
        """Record a file and its documents in a single transaction.

        Parameters
        ----------
        report : fields of a `SourceReport`: `status` is required; `reason`, `pages`, `tier`,
            `quality`, `notes` and `unread` may be missing
        """
        with self._db:
            for ordinal, document in enumerate(documents):
                fields = document.model_dump(mode="json", exclude={"text"})
                self._db.execute(
                    "INSERT OR IGNORE INTO documents VALUES (?, ?, ?, ?)",
                    (
                        reader,
                        document.id,
                        json.dumps(fields, sort_keys=True),
                        zlib.compress(document.text.encode("utf-8"), 3),
                    ),
                )
                self._db.execute(
                    "INSERT OR REPLACE INTO file_documents VALUES (?, ?, ?, ?)",
                    (sha256, reader, ordinal, document.id),
                )
            self._db.execute(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    sha256,
                    reader,
                    report["status"],
                    report.get("reason"),
                    report.get("pages"),
                    report.get("tier"),
                    report.get("quality"),
                    json.dumps(list(report.get("notes", ()))),
                    report.get("unread", 0),
                ),
            )

    def document(self, doc_id: str, reader: str | None = None) -> Document | None:
        """Load a document by its id."""
        reader = reader or self.meta("reader")
        known = self._documents.get((reader, doc_id))
        if known is not None:
            return known
        row = self._db.execute(
            "SELECT fields, text FROM documents WHERE reader = ? AND id = ?",
            (reader, doc_id),
        ).fetchone()
        if row is None:
            return None
        fields = json.loads(row[0])
        fields["sections"] = tuple(Section(**section) for section in fields["sections"])
        fields["topics"] = tuple(fields.get("topics", ()))
        document = Document(**fields, text=zlib.decompress(row[1]).decode("utf-8"))
        self._documents[reader, doc_id] = document
        return document

    def set_corpus(self, rows: Sequence[dict[str, Any]]) -> None:
        """Replace the list of documents from which the graph is derived."""
        with self._db:
            self._db.execute("DELETE FROM corpus")
            self._db.executemany(
                "INSERT INTO corpus VALUES "
                "(:doc_id, :path, :included, :reason, :score, :parts, :overrides)",
                rows,
            )

    def documents(self) -> Iterator[Document]:
        """Load the documents of the last build, ordered by id."""
        reader = self.meta("reader")
        for doc_id, path, overrides in self._db.execute(
            "SELECT doc_id, path, overrides FROM corpus WHERE included = 1 ORDER BY doc_id"
        ).fetchall():
            document = self.document(doc_id, reader)
            if document is not None:
                known = json.loads(overrides) if overrides != "{}" else {}
                yield document.model_copy(update={"path": path, **known})

    # -- chunks and extractions ----------------------------------------------------------------

    def load_chunk_hashes(self, doc_id: str, reader: str, cut: str) -> list[tuple[str, str]]:
        """Load a document's chunk ids and hashes if it was already split by the rule `cut`."""
        return self._db.execute(
            "SELECT id, hash FROM chunks WHERE reader = ? AND cut = ? AND doc_id = ? "
            "ORDER BY start, end",
            (reader, cut, doc_id),
        ).fetchall()

    def add_chunks(self, chunks: Iterable[Chunk], reader: str, cut: str) -> None:
        """Record the positions of chunks in their documents."""
        with self._db:
            self._db.executemany(
                "INSERT OR IGNORE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (c.id, reader, c.doc_id, c.hash, c.section, c.start, c.end, c.tokens, cut)
                    for c in chunks
                ],
            )

    def list_extracted(self, extractor: str) -> set[str]:
        """List the hashes of the chunks that this extractor has read successfully."""
        rows = self._db.execute("SELECT hash FROM extractions WHERE extractor = ?", (extractor,))
        return {row[0] for row in rows}

    def add_extraction(self, chunk_hash: str, extractor: str, result: Extraction) -> None:
        """Append an extractor's result for a chunk, or its failure."""
        if result.error is not None:
            self._db.execute(
                "INSERT INTO failures VALUES (?, ?, ?)", (chunk_hash, extractor, result.error)
            )
            self._settle()
            return
        inserted = self._db.execute(
            "INSERT OR IGNORE INTO extractions VALUES (?, ?, ?, ?, ?)",
            (
                chunk_hash,
                extractor,
                json.dumps(result.dropped, sort_keys=True),
                result.prompt_tokens,
                result.completion_tokens,
            ),
        )
        if inserted.rowcount:
            self._db.executemany(
                "INSERT INTO statements VALUES (?, ?, ?, ?)",
                [
                    (chunk_hash, extractor, ordinal, statement.model_dump_json())
                    for ordinal, statement in enumerate(result.statements)
                ],
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO mentions VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (chunk_hash, extractor, m.start, m.end, m.name, m.type.value, m.entity_id)
                    for m in result.mentions
                ],
            )
        self._settle()

    def failures(self, extractor: str, hashes: Iterable[str]) -> dict[str, str]:
        """Return the last error of each of the given chunks that still has no result."""
        wanted = set(hashes) - self.list_extracted(extractor)
        rows = self._db.execute(
            "SELECT hash, error FROM failures WHERE extractor = ? ORDER BY rowid", (extractor,)
        )
        return {row[0]: row[1] for row in rows if row[0] in wanted}

    def count_dropped(self, extractor: str, hashes: Iterable[str]) -> dict[str, int]:
        """Count the statements dropped from the given chunks, by reason."""
        wanted = set(hashes)
        total: dict[str, int] = {}
        for chunk_hash, text in self._db.execute(
            "SELECT hash, dropped FROM extractions WHERE extractor = ?", (extractor,)
        ):
            if chunk_hash in wanted:
                for reason, count in json.loads(text).items():
                    total[reason] = total.get(reason, 0) + count
        return dict(sorted(total.items()))

    def triples(
        self, as_of: int | None = None, include_retracted: bool = False
    ) -> Iterator[Triple]:
        """Iterate over the triples in the last build's corpus, in an order set only by content.

        Parameters
        ----------
        as_of : use only documents published up to this year; those without a year are omitted
        include_retracted : also use documents flagged as retracted
        """
        extractor, reader, cut = self.meta("extractor"), self.meta("reader"), self.meta("cut")
        label = extractor.split("-", 1)[0]
        for document in self.documents():
            if document.retracted and not include_retracted:
                continue
            if as_of is not None and (document.year is None or document.year > as_of):
                continue
            seen: set[tuple[object, ...]] = set()
            rows = self._db.execute(
                "SELECT c.id, c.section, c.start, s.statement FROM chunks c JOIN statements s "
                "ON s.hash = c.hash AND s.extractor = ? WHERE c.reader = ? AND c.cut = ? "
                "AND c.doc_id = ? ORDER BY c.start, c.end, s.ordinal",
                (extractor, reader, cut, document.id),
            ).fetchall()
            if not rows:
                continue
            study = parse_study(document.text)
            for chunk_id, section, offset, text in rows:
                statement = Statement.model_validate_json(text)
                start, end = offset + statement.start, offset + statement.end
                key = (start, end, statement.head, statement.relation, statement.tail)
                if key in seen:  # read again in the overlap of two chunks
                    continue
                seen.add(key)
                sentence = document.text[start:end]
                yield Triple(
                    **statement.model_dump(exclude={"start", "end"}),
                    extractor=label,
                    evidence=Evidence(
                        doc_id=document.id,
                        chunk_id=chunk_id,
                        section=section,
                        start=start,
                        end=end,
                        text=sentence,
                        title=document.title,
                        year=document.year,
                        doi=document.doi,
                        pmid=document.pmid,
                        retracted=document.retracted,
                        design=study.design,
                        cohort=study.cohort,
                        n=parse_size(sentence) or study.n,
                    ),
                )

    def mentions(self, chunk_hash: str, extractor: str) -> list[Mention]:
        """Load the entities that an extractor found in a chunk, in order of position."""
        rows = self._db.execute(
            "SELECT start, end, name, type, entity_id FROM mentions "
            "WHERE hash = ? AND extractor = ? ORDER BY start, end",
            (chunk_hash, extractor),
        )
        return [Mention(r[0], r[1], r[2], EntityType(r[3]), r[4]) for r in rows]
