"""A clock that a test sets."""

from __future__ import annotations

from datetime import UTC, datetime

from sage.core.clock import Clock


class SetClock(Clock):
    """Stands at `at` seconds until it is moved."""

    def __init__(self, at: float = 0.0) -> None:
        self.at = at

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)

    def monotonic(self) -> float:
        return self.at
