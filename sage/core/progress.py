"""Progress of long steps: workers report it to whichever listener is set."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[str, int, int], None]
_listener: ContextVar[Listener | None] = ContextVar("progress", default=None)


def report_progress(what: str, done: int = 0, total: int = 0) -> None:
    """Say what is being done, and how far it is where that can be counted."""
    if (listener := _listener.get()) is not None:
        listener(what, done, total)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Report progress to `listener` within the block."""
    before = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(before)


def listening() -> Listener | None:
    """Return the current listener, for work that continues in another thread."""
    return _listener.get()


async def heard_by(listener: Listener | None, work: Awaitable[T]) -> T:
    """`work` in a task whose progress `listener` hears."""
    _listener.set(listener)
    return await work


def describe_progress(what: str, done: int, total: int) -> str:
    """Progress as it is shown: "bootstrap 40 of 200"."""
    counted = f" {done:,} of {total:,}" if total else ""
    return f"{what}{counted}"
