"""On-disk cache of vectors keyed by content, so that each text is embedded only once."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sage.core.errors import FaultError

_VARIABLES = 500  # under SQLite's oldest limit on bound variables


class VectorCache:
    """SQLite file that maps the SHA-256 of model name and text to a float32 vector.

    One file serves several models. SQLite serializes writers; a killed writer loses at most
    its last batch.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                connection = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS vectors"
                    " (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"
                )
            except (OSError, sqlite3.DatabaseError) as error:
                raise FaultError(
                    f"{self.path}: cannot be used as an embedding cache ({error}); delete it, "
                    "or choose another path."
                ) from error
            self._connection = connection
        return self._connection

    def load(
        self, model: str, dimension: int, texts: Sequence[str]
    ) -> dict[str, NDArray[np.float32]]:
        """Load the vectors of texts; a vector of the wrong length counts as missing."""
        keys = {_key(model, text): text for text in set(texts)}
        found: dict[str, NDArray[np.float32]] = {}
        connection = self._open()
        wanted = sorted(keys)
        for start in range(0, len(wanted), _VARIABLES):
            some = wanted[start : start + _VARIABLES]
            marks = ",".join("?" * len(some))
            query = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"  # noqa: S608
            for key, blob in connection.execute(query, some):
                if len(blob) == 4 * dimension:
                    found[keys[key]] = np.frombuffer(blob, dtype=np.float32)
        return found

    def save(self, model: str, vectors: dict[str, NDArray[np.float32]]) -> None:
        """Save vectors, replacing any that are already stored."""
        rows = [
            (_key(model, text), np.ascontiguousarray(vector, dtype=np.float32).tobytes())
            for text, vector in vectors.items()
        ]
        connection = self._open()
        with connection:
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _key(model: str, text: str) -> bytes:
    return hashlib.sha256(f"{model}\0{text}".encode()).digest()
