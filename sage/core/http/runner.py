"""Event loop in its own thread, which lets synchronous callers use asynchronous clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Runner:
    """Runs coroutines on a private loop, from any thread, even from inside another loop.

    The loop lives as long as the runner, so rate limits, breakers and connections persist
    between calls. The daemon thread starts on first use.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and wait for its result; interrupting the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._start())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop; a later call to `run` starts a new loop."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=5)
            if not loop.is_running():
                loop.close()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="sage-services", daemon=True
                )
                self._thread.start()
            return self._loop
