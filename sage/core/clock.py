"""The clock: what is stamped into files, and what waits and ages are measured by."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime


class Clock:
    """The machine's clock. Tests replace it with `using`."""

    def now(self) -> datetime:
        """Return the time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never run backward."""
        return time.monotonic()


_clock = Clock()


@contextmanager
def using(clock: Clock) -> Iterator[None]:
    """Use `clock` inside the block, in every thread."""
    global _clock
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before


def now() -> datetime:
    """Return the time of day, in UTC."""
    return _clock.now()


def seconds() -> float:
    """Return the time of day as seconds since 1970, as files are stamped."""
    return now().timestamp()


def monotonic() -> float:
    """Seconds that never run backward."""
    return _clock.monotonic()


def stamp() -> str:
    """Return the time in UTC, ISO 8601 to the millisecond."""
    return now().isoformat(timespec="milliseconds")
