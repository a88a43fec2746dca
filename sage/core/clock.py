"""The clock that supplies timestamps for files and measures waiting times and ages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime


class Clock:
    """The machine's clock, which tests replace with `using`."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the time in seconds of a clock that never runs backward."""
        return time.monotonic()


_clock = Clock()


@contextmanager
def using(clock: Clock) -> Iterator[None]:
    """Use `clock` in every thread within the block."""
    global _clock
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before


def now() -> datetime:
    """Return the current time in UTC."""
    return _clock.now()


def seconds() -> float:
    """Return the current time as seconds since 1970, like the timestamps of files."""
    return now().timestamp()


def monotonic() -> float:
    """Return the time in seconds of a clock that never runs backward."""
    return _clock.monotonic()


def stamp() -> str:
    """Return the current time in UTC as an ISO 8601 string with millisecond precision."""
    return now().isoformat(timespec="milliseconds")
