"""Worker that processes queued runs."""

from __future__ import annotations

import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.core.errors import FaultError, InputError, Paused
from sage.core.log import logger
from sage.run.begin import reopen
from sage.run.campaign.rounds import runs_and_rounds
from sage.run.drive import advance_to_person, find_pause
from sage.run.folder import HeldError, RunFolder, RunStatus, names_run
from sage.settings import load
from sage_hospital.lease import LEASE_S, renewing
from sage_hospital.runs import ATTEMPTS, KnownRun, Runs, this_worker

if TYPE_CHECKING:
    from sage.run.services import Listener, Services

log = logger(__name__)

POLL_S = 1.0
RETRY_S = 15.0
"""Seconds before retrying a run after a fault, multiplied by the number of attempts so far."""


@dataclass
class Worker:
    """Process that works on queued runs.

    Parameters
    ----------
    report : called with a line of text whenever a run is taken or released
    lease_s : seconds after which others take over a dead worker's run
    grace_s : seconds for the current step to finish after a signal
    """

    runs: Runs
    report: Callable[[str], None]
    lease_s: float = LEASE_S
    grace_s: float = 30.0
    name: str = field(default_factory=this_worker)
    stopping: threading.Event = field(default_factory=threading.Event)
    _now: KnownRun | None = None

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """Hand the run back after its step or the grace period on SIGTERM or Ctrl-C.

        A second signal hands it back immediately.
        """

        def stop(number: int, frame: object) -> None:
            if self.stopping.is_set():
                self._hand_back()
            self.stopping.set()
            if self._now is not None:
                RunFolder(Path(self._now.folder)).pause_path.touch()
            watch = threading.Timer(self.grace_s, self._hand_back)
            watch.daemon = True
            watch.start()

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hand_back(self) -> None:
        """Return the run to the queue and exit the process."""
        if self._now is not None:
            RunFolder(Path(self._now.folder)).pause_path.unlink(missing_ok=True)
            self.runs.settle(self._now.id, self.name, "queued", answered=False)
        os._exit(0)

    def work(self, *, most: int | None = None, drain: bool = False) -> int:
        """Work until stopped, until `most` runs are done, or until none is left (`drain`).

        Returns
        -------
        Number of runs released, regardless of their state.
        """
        done = 0
        while not self.stopping.is_set() and (most is None or done < most):
            claimed = self.runs.claim(self.name, self.lease_s)
            self._now = _locate(claimed) if claimed is not None else None
            if self._now is None:
                if drain and not self.runs.count_active():
                    break
                self.stopping.wait(POLL_S)
                continue
            self._run(self._now)
            self._now = None
            done += 1
        return done

    def _run(self, run: KnownRun) -> None:
        self.report(
            f"{run.name}: started" + (f", attempt {run.attempts}" if run.attempts > 1 else "")
        )
        services: Services | None = None
        try:
            with renewing(self.runs, run.id, self.name, self.lease_s):
                if not Path(run.folder).is_dir():
                    raise InputError(f"the run folder {run.folder} does not exist on this machine")
                services = reopen(run.folder)
                if services.manifest.run_id != run.id:
                    raise InputError(
                        f"{run.folder} contains another run, not {run.name} from the queue"
                    )
                services.listener = self._progress(run)
                advance_to_person(services, _select_answer(services, run))
        except Paused:
            folder = RunFolder(Path(run.folder))
            folder.pause_path.unlink(missing_ok=True)
            state: RunStatus = "queued" if self.stopping.is_set() else "paused"
            folder.update(status=state)
            self.runs.settle(run.id, self.name, state)
        except (HeldError, FaultError, OSError) as error:
            self._requeue(run, error, mine=services is not None)
        except InputError as error:
            if services is None and not Path(run.folder).is_dir():
                self._requeue(run, error, mine=False)  # it may be on another machine
            else:
                self._fail(run, str(error))
        except Exception as error:  # noqa: BLE001 (other runs may work)
            log.failed("run failed", error, run=run.name)
            traceback.print_exc()
            self._fail(run, f"{type(error).__name__}: {error}")
        else:
            now = services.folder.manifest()
            self.runs.settle(run.id, self.name, now.status, now.problem or "")
            self.report(f"{run.name}: {now.status}")
        finally:
            if services is not None:
                services.folder.release()

    def _progress(self, run: KnownRun) -> Listener:
        def reset(kind: str, node: str, fields: dict[str, Any]) -> None:
            if kind == "end":
                self.runs.reset_attempts(run.id, self.name)

        return reset

    def _requeue(self, run: KnownRun, error: Exception, *, mine: bool) -> None:
        """Requeue a run after a fault; `mine` is true if this worker has its folder."""
        problem = f"on {socket.gethostname()}: {error}"
        if run.attempts >= ATTEMPTS:
            self._fail(run, problem)
            return
        delay = RETRY_S * run.attempts
        if mine:
            RunFolder(Path(run.folder)).update(status="queued", problem=problem[:1000])
        self.report(f"{run.name}: {problem}; retry in {delay:.0f} s")
        self.runs.settle(run.id, self.name, "queued", problem, delay_s=delay, answered=False)

    def _fail(self, run: KnownRun, problem: str) -> None:
        self.report(f"{run.name}: failed: {problem}")
        self.runs.settle(run.id, self.name, "failed", problem)


def _locate(run: KnownRun) -> KnownRun:
    """Find a run's folder on this machine, even if it was moved or is mounted elsewhere."""
    if names_run(Path(run.folder), run.id):
        return run
    here = [found.root for found in runs_and_rounds(load().runs_dir)]
    root = next((root for root in here if names_run(root, run.id)), run.folder)
    return run.model_copy(update={"folder": str(root)})


def _select_answer(services: Services, run: KnownRun) -> dict[str, Any] | None:
    """Return the person's decision if the run still waits; a killed worker may have used it."""
    if run.answer is None:
        return None
    pause = find_pause(services)
    if pause is None or not set(pause.interrupts) & set(run.answer):
        return None
    return run.answer
