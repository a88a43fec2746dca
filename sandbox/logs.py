"""Tails of a run's output streams, limited in size while the run prints."""

from __future__ import annotations

import os
import threading
import unicodedata
from collections.abc import Callable

TAIL_BYTES = 16 * 1024
_UNSEEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


class Log:
    """Both streams of a run: keeps their tails, counts all bytes, and calls `full` past a limit.

    Only the tails are kept, so endless output does not exhaust the host's memory.
    """

    def __init__(self, limit_kb: int, full: Callable[[], None]) -> None:
        self._limit = limit_kb * 1024
        self._full = full
        self._tails = {"stdout": bytearray(), "stderr": bytearray()}
        self._seen = 0
        self._lock = threading.Lock()
        self.over = False

    def add(self, stream: str, chunk: bytes) -> None:
        """Add a chunk of `stream` ("stdout" or "stderr")."""
        with self._lock:
            self._seen += len(chunk)
            tail = self._tails[stream]
            tail += chunk[-TAIL_BYTES:]
            del tail[:-TAIL_BYTES]
            first = self._seen > self._limit and not self.over
            self.over = self.over or first
        if first:
            self._full()

    def pump(self, descriptor: int, stream: str) -> threading.Thread:
        """Read `descriptor` to its end in a thread, then close it."""

        def work() -> None:
            try:
                while chunk := os.read(descriptor, 65536):
                    self.add(stream, chunk)
            finally:
                os.close(descriptor)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        return thread

    def tail(self, stream: str) -> str:
        """Return the end of `stream` as printable text (see `printable`)."""
        with self._lock:
            text = bytes(self._tails[stream]).decode("utf-8", "replace")
        return printable(text)


def printable(text: str) -> str:
    """Strip terminal escapes, writing-direction marks and invisible characters from `text`.

    Line feeds and tabs are the only control characters that remain.
    """
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _UNSEEN)
