"""Disk cache for service responses, with expiry; a damaged entry counts as a miss."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from sage.core import clock
from sage.core.files import write_bytes
from sage.core.hashes import hash_text

_MAGIC = b"sage-cache-1\n"


class DiskCache:
    """A cache with one file per request, named by the request's hash and free of secrets.

    Parameters
    ----------
    folder : created on the first write
    max_age : seconds for which a response remains valid
    max_bytes : size above which the oldest entries are deleted until 90% of it remains
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_age: float = 7 * 86400.0,
        max_bytes: int = 512 * 1024 * 1024,
    ) -> None:
        self.folder = folder
        self.max_age = max_age
        self.max_bytes = max_bytes
        self._size: int | None = None

    @staticmethod
    def key(service: str, method: str, url: str, params: object, body: object) -> str:
        """Compute a request's cache key.

        Returns
        -------
        SHA-256 in hexadecimal, used as the entry's file name.
        """
        text = json.dumps([service, method, url, params, body], sort_keys=True, default=str)
        return hash_text(text)

    def get(self, key: str, max_age: float | None = None) -> bytes | None:
        """Return the stored body, or None if the entry is missing, expired or damaged."""
        try:
            raw = self._path(key).read_bytes()
        except OSError:
            return None
        if not raw.startswith(_MAGIC):
            return None
        head, newline, body = raw[len(_MAGIC) :].partition(b"\n")
        stamp, _, digest = head.partition(b" ")
        try:
            stored = float(stamp)
        except ValueError:
            return None
        age = clock.seconds() - stored
        if not newline or age < -60.0 or age > (self.max_age if max_age is None else max_age):
            return None
        return body if hashlib.sha256(body).hexdigest().encode() == digest else None

    def save(self, key: str, body: bytes) -> None:
        """Store `body` atomically: a reader sees either the whole entry or none of it."""
        head = f"{clock.seconds():.3f} {hashlib.sha256(body).hexdigest()}\n".encode()
        write_bytes(self._path(key), _MAGIC + head + body, durable=False)
        self._trim(len(body))

    def drop(self, key: str) -> None:
        """Delete an entry."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _trim(self, added: int) -> None:
        if self._size is not None and self._size + added <= self.max_bytes:
            self._size += added
            return
        entries = []
        for path in self.folder.glob("??/[0-9a-f]*"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            entries.append((stat.st_mtime, stat.st_size, path))
        self._size = sum(size for _, size, _ in entries)
        if self._size <= self.max_bytes:
            return
        for _, size, path in sorted(entries):
            path.unlink(missing_ok=True)
            self._size -= size
            if self._size <= 0.9 * self.max_bytes:
                break
