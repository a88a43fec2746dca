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
    """Keeps every window of `per` seconds to `requests` requests, by when they were really sent.

    Two records: reservations, in order of arrival, which tell a caller its wait before it commits
    to it; and the times at which requests went out, which decide. They differ where connecting
    takes time: a request that left late pushes those behind it.
    """

    def __init__(self, limit: Limit, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._clock = clock
        self._reserved: deque[float] = deque(maxlen=limit.requests)
        self._sent: deque[float] = deque(maxlen=limit.requests)
        self._closed_until = 0.0

    def next_slot(self) -> float:
        """The earliest time on the clock for which a slot can be reserved."""
        earliest = max(self._clock(), self._allowed())
        if self._reserved:
            earliest = max(earliest, self._reserved[-1])
        if len(self._reserved) == self.limit.requests:
            earliest = max(earliest, self._reserved[0] + self.limit.per)
        return earliest

    def book(self, patience: float | None = None) -> float | None:
        """Seconds to wait for the slot now reserved, or None (none reserved) beyond `patience`."""
        slot = self.next_slot()
        wait = max(0.0, slot - self._clock())
        if patience is not None and wait > patience:
            return None
        self._reserved.append(slot)
        return wait

    def still_to_wait(self) -> float:
        """Seconds until another request may go out, judged by those that went."""
        return max(0.0, self._allowed() - self._clock())

    def sent(self) -> None:
        """A request goes out now."""
        self._sent.append(self._clock())

    def hold(self, seconds: float) -> None:
        """Send nothing for `seconds`: the service asked for a pause."""
        self._closed_until = max(self._closed_until, self._clock() + seconds)

    def _allowed(self) -> float:
        full = len(self._sent) == self.limit.requests
        return max(self._closed_until, self._sent[0] + self.limit.per if full else 0.0)


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
        # Held from the last look at the throttle until the request has gone out.
        self.door = asyncio.Lock()
