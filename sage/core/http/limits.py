"""Throttles that respect a service's published rate, and breakers that avoid failing services."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from pyrate_limiter import InMemoryBucket, Rate, RateItem

from sage.core import clock


@dataclass(frozen=True)
class Limit:
    """A limit of `requests` in any window of `per` seconds, and of `concurrency` in parallel."""

    requests: int
    per: float = 1.0
    concurrency: int = 4


class Throttle:
    """A throttle that allows at most `requests` requests in any window of `per` seconds.

    It keeps two sliding logs in milliseconds. Reservations, in order of arrival, determine
    how long a caller would wait, before it commits to waiting. The times at which requests
    were actually sent determine when the next request may be sent. The two differ if
    connecting takes time: a request that was sent late delays those behind it.
    """

    def __init__(self, limit: Limit) -> None:
        # A log includes both ends of its window, so subtracting a millisecond makes it exact.
        rate = Rate(limit.requests, max(1, math.ceil(limit.per * 1000) - 1))
        self._reserved = InMemoryBucket([rate])
        self._sent = InMemoryBucket([rate])
        self._closed_until = 0.0

    def next_slot(self) -> float:
        """Return the earliest clock time for which a slot can be reserved."""
        return _fits(self._reserved, self._next_allowed()) / 1000

    def book(self, patience: float | None = None) -> float | None:
        """Reserve a slot and return the seconds until it, or None if that exceeds `patience`."""
        slot = self.next_slot()
        wait = max(0.0, slot - clock.monotonic())
        if patience is not None and wait > patience:
            return None
        _add_entry(self._reserved, math.ceil((clock.monotonic() + wait) * 1000))
        return wait

    def still_to_wait(self) -> float:
        """Return the seconds until another request may be sent, based on those already sent."""
        return max(0.0, self._next_allowed() / 1000 - clock.monotonic())

    def sent(self) -> None:
        """Record that a request is being sent now."""
        _add_entry(self._sent, math.ceil(clock.monotonic() * 1000))

    def hold(self, seconds: float) -> None:
        """Send nothing for `seconds`, because the service asked for a pause."""
        self._closed_until = max(self._closed_until, clock.monotonic() + seconds)

    def _next_allowed(self) -> int:
        """Return the earliest millisecond at which a request may be sent."""
        now, held = math.floor(clock.monotonic() * 1000), math.ceil(self._closed_until * 1000)
        return _fits(self._sent, max(now, held))


def _fits(log: InMemoryBucket, at: int) -> int:
    """Return the earliest millisecond, not before `at`, at which the log accepts another entry."""
    rate = log.rates[0]
    newest, blocking = log.peek(0), log.peek(rate.limit - 1)
    after = [newest.timestamp] if newest else []
    if blocking:
        after.append(blocking.timestamp + int(rate.interval) + 1)
    return max([at, *after])


def _add_entry(log: InMemoryBucket, at: int) -> None:
    log.leak(at)
    log.put(RateItem("request", _fits(log, at)))


class Breaker:
    """A circuit breaker that opens after `threshold` failures in a row.

    After `cool_off` seconds it lets a single call through as a probe.
    """

    def __init__(
        self,
        threshold: int = 5,
        cool_off: float = 60.0,
    ) -> None:
        self.threshold = threshold
        self.cool_off = cool_off
        self._failures = 0
        self._open_until: float | None = None
        self._probing = False

    def refuses(self) -> float | None:
        """Return the seconds until the next probe if open; None if a call may proceed."""
        if self._open_until is None:
            return None
        left = self._open_until - clock.monotonic()
        if left > 0:
            return left
        if self._probing:
            return self.cool_off
        self._probing = True
        return None

    def succeeded(self) -> None:
        """Close the breaker after a successful call."""
        self._failures = 0
        self._open_until = None
        self._probing = False

    def failed(self) -> None:
        """Count a call that failed after its retries."""
        self._failures += 1
        self._probing = False
        if self._failures >= self.threshold:
            self._open_until = clock.monotonic() + self.cool_off

    def abandoned(self) -> None:
        """Record a call that ended without evidence about the service (canceled, no slot)."""
        self._probing = False


class Gate:
    """A service's throttle, breaker and concurrency limit, shared by all its callers."""

    def __init__(self, limit: Limit, breaker: Breaker) -> None:
        self.throttle = Throttle(limit)
        self.breaker = breaker
        self.slots = asyncio.Semaphore(limit.concurrency)
        # Held from the last look at the throttle until the request has gone out.
        self.door = asyncio.Lock()
