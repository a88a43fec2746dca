"""A service's published rate, kept by waiting; and a breaker that stops asking the dead."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """At most `requests` in any window of `per` seconds, at most `concurrency` at once."""

    requests: int
    per: float = 1.0
    concurrency: int = 4


class Throttle:
    """Grants slots so that no window of `per` seconds holds more than `requests` of them.

    Slots are booked in order of arrival. Bookings are pure arithmetic on `clock`, so that a caller
    learns its wait before it commits to it.
    """

    def __init__(self, limit: Limit, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._granted: deque[float] = deque(maxlen=limit.requests)

    def next_slot(self) -> float:
        """The earliest time on the clock at which another request may start."""
        now = self._clock()
        if len(self._granted) < self.limit.requests:
            return max(now, self._granted[-1]) if self._granted else now
        return max(now, self._granted[-1], self._granted[0] + self.limit.per)

    def book(self, patience: float | None = None) -> float | None:
        """Seconds to wait for the slot now booked, or None (nothing booked) beyond `patience`."""
        slot = self.next_slot()
        wait = max(0.0, slot - self._clock())
        if patience is not None and wait > patience:
            return None
        self._granted.append(slot)
        return wait

    def hold(self, seconds: float) -> None:
        """Start nothing for `seconds`: the service asked for a pause."""
        until = self._clock() + seconds
        slots = self.limit.requests
        self._granted = deque([until - self.limit.per] * slots, maxlen=slots)


class Breaker:
    """Opens after `threshold` failures in a row; after `cool_off` seconds lets one call probe."""

    def __init__(
        self,
        threshold: int = 5,
        cool_off: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.threshold = threshold
        self.cool_off = cool_off
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._probing = False

    def refuses(self) -> float | None:
        """Seconds until the next probe while open, None when a call may go ahead."""
        if self._open_until is None:
            return None
        left = self._open_until - self._clock()
        if left > 0:
            return left
        if self._probing:
            return self.cool_off
        self._probing = True
        return None

    def succeeded(self) -> None:
        """A call worked: close."""
        self._failures = 0
        self._open_until = None
        self._probing = False

    def failed(self) -> None:
        """A call failed after its retries."""
        self._failures += 1
        self._probing = False
        if self._failures >= self.threshold:
            self._open_until = self._clock() + self.cool_off

    def abandoned(self) -> None:
        """A call ended without a verdict on the service (canceled, no slot)."""
        self._probing = False


class Gate:
    """A service's throttle, breaker and concurrency, shared by everyone who asks it."""

    def __init__(self, limit: Limit, breaker: Breaker) -> None:
        self.throttle = Throttle(limit)
        self.breaker = breaker
        self.slots = asyncio.Semaphore(limit.concurrency)
