"""A lease on a run, renewed while somebody works on it; who loses it stops at once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sage.control.runs import Runs, open_runs, this_worker
from sage.core import clock

if TYPE_CHECKING:
    from sage.machine.services import Services

LEASE_S = 60.0
LOST = 75
"""Exit code of a process whose lease ended: another may work on the run by now."""


@contextmanager
def renewing(runs: Runs, run_id: str, worker: str, lease_s: float) -> Iterator[None]:
    """Renew the lease while the block runs.

    The process ends at once when the lease could not be renewed in time: what it would write from
    then on might meet what another writes.

    Parameters
    ----------
    runs : the table
    run_id, worker : which run, held by whom
    lease_s : seconds for which each renewal holds
    """
    ended = threading.Event()

    def beat() -> None:
        renewed = clock.monotonic()
        while not ended.wait(lease_s / 4):
            try:
                mine = runs.renew(run_id, worker, lease_s)
            except Exception as error:  # noqa: BLE001 (whatever it is, the lease runs out)
                sys.stderr.write(f"error: the lease of a run was not renewed: {error}\n")
                mine = clock.monotonic() - renewed < lease_s
            else:
                renewed = clock.monotonic()
            if not mine and not ended.is_set():
                sys.stderr.write("error: another worker may have taken the run over; stopped\n")
                sys.stderr.flush()
                os._exit(LOST)

    thread = threading.Thread(target=beat, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def listed(services: Services, owner: str) -> Iterator[None]:
    """Have the table of runs know who works on this one, where there is such a table.

    Raises
    ------
    InputError
        If another works on it.
    """
    with open_runs(services.settings) as runs:
        if runs is None:
            yield
            return
        manifest, worker = services.manifest, this_worker()
        runs.take(manifest, owner, worker, LEASE_S)
        try:
            with renewing(runs, manifest.run_id, worker, LEASE_S):
                yield
        finally:
            now = services.folder.manifest()
            state = "stopped" if now.status == "running" else now.status
            runs.settle(manifest.run_id, worker, state, now.problem or "")
