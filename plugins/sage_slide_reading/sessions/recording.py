"""Recording of a session, with batches of events appended durably to its file."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from sage.core.errors import InputError
from sage.core.files import append_line
from sage_slide_reading.sessions.format import (
    MAX_BYTES,
    MAX_EVENTS,
    SUFFIX,
    SessionHeader,
    ViewEvent,
    event_lines,
    read_session,
)

FOLDER = ".sessions"
"""Folder for recorded sessions, below the runs."""


class Recordings:
    """Sessions recorded into a folder, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[int, float]] = {}

    def path(self, name: str) -> Path:
        """Return the path of a session's file."""
        return self.folder / f"{name}{SUFFIX}"

    def begin(self, name: str, header: SessionHeader) -> None:
        """Begin a session that has no events yet."""
        append_line(self.path(name), header.model_dump_json(), durable=True)

    def append(self, name: str, first: int, events: Sequence[ViewEvent]) -> int:
        """Append events that are not stored yet, and return the session's number of events.

        If a response was lost, a batch may arrive twice or overlap with the previous batch.

        Raises `InputError` if there is no such session, events before the batch are missing, time
        runs backward, or the session is full. In these cases, nothing from the batch is stored.
        """
        path = self.path(name)
        with self._lock:
            if not path.is_file():
                raise InputError("no such session; it may have been deleted")
            if name not in self._kept:
                held = read_session(path).events
                _mend(path)
                self._kept[name] = len(held), held[-1].t if held else 0.0
            count, last = self._kept[name]
            if first > count:
                raise InputError(f"events {count} to {first - 1} are missing; send them first")
            new = events[count - first :]
            if not new:
                return count
            times = [last, *(event.t for event in new)]
            if times != sorted(times):
                raise InputError("event times in a session must not decrease")
            lines = "\n".join(event_lines(new))
            full = path.stat().st_size + len(lines) + 1 > MAX_BYTES
            if full or count + len(new) > MAX_EVENTS:
                raise InputError("the session is full; end it and start another")
            del self._kept[name]  # read again in case the disk fails in the middle
            append_line(path, lines, durable=True)
            self._kept[name] = count + len(new), new[-1].t
            return count + len(new)

    def delete(self, name: str) -> None:
        """Delete a session permanently."""
        with self._lock:
            self.path(name).unlink(missing_ok=True)
            self._kept.pop(name, None)


def _mend(path: Path) -> None:
    """Remove an incomplete last line from a session file."""
    with path.open("r+b") as stream:
        data = stream.read()
        stream.truncate(data.rfind(b"\n") + 1)
        os.fsync(stream.fileno())
