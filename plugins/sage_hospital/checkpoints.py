"""Run checkpoints shared in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sage_hospital.fork import fork
from sage_hospital.postgres import hold_lock, reconnecting, retry

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from sage.run.folder import Manifest

SETUP_LOCK = 0x5A6EC4EC
"""Lock held by the process that creates or upgrades the checkpoint tables."""


@contextmanager
def open_checkpoints(
    url: str, serde: Any, manifest: Manifest
) -> Iterator[BaseCheckpointSaver[Any]]:
    """Open a checkpoint saver whose calls are retried if the connection breaks."""
    with reconnecting(url, "the checkpoint database") as pool:
        from langgraph.checkpoint.postgres import PostgresSaver

        class Persistent(PostgresSaver):
            """Checkpoints in PostgreSQL; each call is atomic, and repeated writes are harmless."""

            def get_tuple(self, *given: Any, **named: Any) -> Any:
                return retry(lambda: super(Persistent, self).get_tuple(*given, **named))

            def list(self, *given: Any, **named: Any) -> Any:
                yield from retry(lambda: [*super(Persistent, self).list(*given, **named)])

            def put(self, *given: Any, **named: Any) -> Any:
                return retry(lambda: super(Persistent, self).put(*given, **named))

            def put_writes(self, *given: Any, **named: Any) -> None:
                retry(lambda: super(Persistent, self).put_writes(*given, **named))

        saver = Persistent(pool, serde=serde)

        def set_up() -> None:
            with pool.connection() as live, hold_lock(live, SETUP_LOCK):
                saver.setup()
                if manifest.copied_thread:
                    fork(live, manifest.copied_thread, manifest.thread, manifest.checkpoint)

        retry(set_up)
        yield saver
