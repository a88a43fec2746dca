"""Progress of long steps, reported by workers to the current listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[str, int, int], None]
_listener: ContextVar[Listener | None] = ContextVar("progress", default=None)


def report_progress(what: str, done: int = 0, total: int = 0) -> None:
    """Report the current activity and, if it is countable, its progress."""
    if (listener := _listener.get()) is not None:
        listener(what, done, total)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Send reported progress to `listener` within the block."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def listening() -> Listener | None:
    """Return the current listener, so that work continuing in another thread can report to it."""
    return _listener.get()


async def heard_by(listener: Listener | None, work: Awaitable[T]) -> T:
    """Await `work` in a task that reports its progress to `listener`."""
    _listener.set(listener)
    return await work


def describe_progress(what: str, done: int, total: int) -> str:
    """Format progress for display, such as "bootstrap 40 of 200"."""
    counted = f" {done:,} of {total:,}" if total else ""
    return f"{what}{counted}"
