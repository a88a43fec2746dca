"""Schema of the store's database, and a function that opens it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sage.core.errors import InputError

SCHEMA_VERSION = 3
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    sha256 TEXT NOT NULL, reader TEXT NOT NULL, status TEXT NOT NULL, reason TEXT,
    pages INTEGER, tier TEXT, quality REAL, notes TEXT NOT NULL,
    unread INTEGER NOT NULL,
    PRIMARY KEY (sha256, reader)
);
CREATE TABLE IF NOT EXISTS file_documents (
    sha256 TEXT NOT NULL, reader TEXT NOT NULL, ordinal INTEGER NOT NULL, doc_id TEXT NOT NULL,
    PRIMARY KEY (sha256, reader, ordinal)
);
CREATE TABLE IF NOT EXISTS documents (
    reader TEXT NOT NULL, id TEXT NOT NULL, fields TEXT NOT NULL, text BLOB NOT NULL,
    PRIMARY KEY (reader, id)
);
CREATE TABLE IF NOT EXISTS chunks (
    id TEXT NOT NULL, reader TEXT NOT NULL, doc_id TEXT NOT NULL, hash TEXT NOT NULL,
    section TEXT NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, tokens INTEGER NOT NULL,
    cut TEXT NOT NULL,
    PRIMARY KEY (reader, cut, id)
);
CREATE INDEX IF NOT EXISTS chunks_by_document ON chunks (reader, cut, doc_id);
CREATE TABLE IF NOT EXISTS extractions (
    hash TEXT NOT NULL, extractor TEXT NOT NULL, dropped TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    PRIMARY KEY (hash, extractor)
);
CREATE TABLE IF NOT EXISTS failures (
    hash TEXT NOT NULL, extractor TEXT NOT NULL, error TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS statements (
    hash TEXT NOT NULL, extractor TEXT NOT NULL, ordinal INTEGER NOT NULL, statement TEXT NOT NULL,
    PRIMARY KEY (hash, extractor, ordinal)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS mentions (
    hash TEXT NOT NULL, extractor TEXT NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
    name TEXT NOT NULL, type TEXT NOT NULL, entity_id TEXT,
    PRIMARY KEY (hash, extractor, start, end)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS corpus (
    doc_id TEXT PRIMARY KEY, path TEXT NOT NULL, included INTEGER NOT NULL, reason TEXT,
    score REAL, parts TEXT, overrides TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS stamps (
    path TEXT PRIMARY KEY, stamp TEXT NOT NULL, sha256 TEXT NOT NULL
);
"""
_APPEND_ONLY = ("documents", "extractions", "statements", "mentions", "failures")


def open_database(path: Path) -> sqlite3.Connection:
    """Open the store's database at `path`; create it and its folder if missing.

    Raises
    ------
    InputError
        If the file is not a store or was written by another version.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        db = sqlite3.connect(path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.executescript(_SCHEMA)
        for table in _APPEND_ONLY:
            for action in ("UPDATE", "DELETE"):
                db.execute(
                    f"CREATE TRIGGER IF NOT EXISTS {table}_{action.lower()} BEFORE {action} "
                    f"ON {table} BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
                )
        version = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{path}: not a SAGE store ({error}); choose another output folder"
        ) from None
    if version is None:
        db.execute("INSERT OR REPLACE INTO meta VALUES ('version', ?)", (str(SCHEMA_VERSION),))
        db.commit()
    elif version[0] != str(SCHEMA_VERSION):
        raise InputError(
            f"{path}: store version {version[0]}, but this SAGE version writes "
            f"{SCHEMA_VERSION}; build into a new folder"
        )
    return db
