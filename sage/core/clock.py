"""Clock that supplies timestamps for files and measures waiting times and ages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


class Clock:
    """The machine's clock, which tests can replace with `using`."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the time in seconds from a clock that never runs backward."""
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
    """Return the time in seconds from a clock that never runs backward."""
    return _clock.monotonic()


def stamp() -> str:
    """Return the current time in UTC as an ISO 8601 string with millisecond precision."""
    return now().isoformat(timespec="milliseconds")


def parse_retry_after(value: str) -> float | None:
    """Parse either form of `Retry-After` as seconds (RFC 9110, 10.2.3)."""
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - now()).total_seconds())
    except (TypeError, ValueError):
        return None
