"""Lease on a run, renewed while a process works on it; losing it ends the process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sage_hospital.runs import Runs, open_runs, this_worker

if TYPE_CHECKING:
    from sage.run.services import Services

LEASE_S = 60.0
LOST = 75
"""Exit code of a process whose lease expired; another process may already work on the run."""


@contextmanager
def renewing(runs: Runs, run_id: str, worker: str, lease_s: float) -> Iterator[None]:
    """Renew the lease while the block runs.

    The process exits immediately if the lease is not renewed in time, since its writes could
    conflict with another process's. A separate thread watches the time, as a renewal may hang
    with the network. A process that was suspended (Ctrl-Z) first checks whether another took
    over the run.

    Parameters
    ----------
    lease_s : seconds for which each renewal is valid
    """
    ended = threading.Event()
    silent = 0.0

    def end() -> None:
        if not ended.is_set():
            sys.stderr.write("error: another worker may have taken over the run; stopped\n")
            sys.stderr.flush()
            os._exit(LOST)

    def beat() -> None:
        nonlocal silent
        while not ended.wait(lease_s / 4):
            before = silent
            try:
                mine = runs.renew(run_id, worker, lease_s)
            except Exception as error:  # noqa: BLE001 (the lease runs out in any case)
                if not ended.is_set():
                    sys.stderr.write(f"error: the lease of a run was not renewed: {error}\n")
            else:
                silent -= before
                if not mine:
                    end()

    def watch() -> None:
        nonlocal silent
        tick = min(1.0, lease_s / 8)
        while not ended.wait(tick):
            silent += tick
            if silent > lease_s:
                end()

    for task in (beat, watch):
        threading.Thread(target=task, name=f"lease-{task.__name__}", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def hold_lease(services: Services, owner: str) -> Iterator[None]:
    """Claim a run in the table of runs, if there is one, and renew its lease.

    Raises
    ------
    InputError
        If another process is working on the run.
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
