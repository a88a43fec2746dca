"""Local workers: persistent spawned processes within memory and processor limits."""

from __future__ import annotations

import json
import multiprocessing as mp
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from mcp_servers.workers import child, machine
from mcp_servers.workers.base import Workers
from mcp_servers.workers.jobs import Job, Recipe, finish_job, make_request, remove_leftovers
from sage.core.errors import Cancelled, FaultError, InputError
from sage.core.plugins import find_plugins, load_plugin

TICK = 0.2
"""Interval in seconds between checks of memory and deadlines while jobs run."""
START_FAILURES = 3
"""Number of workers in a row that may die before becoming ready."""


@dataclass
class Worker:
    """A worker process and its current job.

    `recent` lists the inputs that it opened most recently, and `cards` the GPUs that hold its
    models.
    """

    process: BaseProcess
    connection: Connection
    ready: bool = False
    job: Job | None = None
    device: str = "cpu"
    limit_mb: float = 0.0
    kill_at: float | None = None
    over_memory: float = 0.0
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    cards: set[str] = field(default_factory=set)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; a worker's death is detected through its sentinel."""
        with suppress(OSError):
            self.connection.send_bytes(json.dumps(message).encode())


class LocalPool(Workers):
    """Worker processes on this machine, started as jobs arrive.

    The total CPU and memory use of running tools is kept within `cpus` and `memory_mb`
    (default: three quarters of what is available). A worker that grows beyond a job's memory
    limit is killed and the job fails with that reason; other jobs continue. A GPU is assigned
    to one job at a time, and other tools that can use it wait. All jobs for a GPU go to the
    same worker, which loads a model only once.
    """

    def __init__(
        self,
        recipe: Recipe | None = None,
        workers: int | None = None,
        *,
        memory_mb: int | None = None,
        gpus: int | None = None,
        max_attempts: int = 3,
        grace: float = 5.0,
    ) -> None:
        """Set up the pool and start its dispatcher thread."""
        super().__init__(recipe or Recipe(), max_attempts, grace)
        self.size = workers or machine.cpus()
        if self.size < 1:
            raise InputError(f"workers must be at least 1, got {self.size}")
        self.cpus = max(self.size, machine.cpus())
        self.memory_mb = memory_mb or int(machine.available_mb() * 0.75)
        self.gpus = machine.gpus() if gpus is None else gpus
        self._context = mp.get_context("spawn")
        self._workers: list[Worker] = []
        self._start_failures = 0
        self._wakeup_in, self._wakeup_out = self._context.Pipe(duplex=False)
        self._thread = threading.Thread(target=self._dispatch, name="workers", daemon=True)
        self._thread.start()

    def check(self, job: Job) -> None:
        """Refuse a job that this machine can never run."""
        need = job.resources
        if need.memory_mb > self.memory_mb:
            raise InputError(
                f"{job.tool} requires {need.memory_mb} MiB, but the workers may use at most "
                f"{self.memory_mb} MiB"
            )
        if need.gpu == "required" and self.gpus == 0:
            raise InputError(f"{job.tool} requires a GPU, but this machine has none")
        card = job.device.removeprefix("cuda:")
        if card.isdigit() and need.gpu != "none" and int(card) >= self.gpus:
            raise InputError(
                f"{job.tool}: device {job.device} was requested, but this machine has "
                f"{self.gpus} GPU(s), numbered from 0"
            )

    def pids(self) -> list[int]:
        """Process IDs of the workers."""
        with self.lock:
            return [
                worker.process.pid for worker in self._workers if worker.process.pid is not None
            ]

    def close(self) -> None:
        """Cancel the remaining jobs and stop the workers, killing them after the grace period."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        with self.lock, suppress(OSError):
            self._wakeup_out.send_bytes(b"w")

    # --- the dispatcher thread ---

    def _dispatch(self) -> None:
        while not self.closed:
            with self.lock:
                self._schedule()
                waiting: list[Any] = [self._wakeup_in]
                for worker in self._workers:
                    waiting += [worker.connection, worker.process.sentinel]
                busy = any(worker.job or not worker.ready for worker in self._workers)
            for ready in wait(waiting, TICK if busy else None):
                if ready is self._wakeup_in:
                    self._wakeup_in.recv_bytes()
            with self.lock:
                for item in list(self._workers):
                    self._look_after(item)
        self._stop_all()

    def _look_after(self, worker: Worker) -> None:
        alive = worker.process.is_alive()
        with suppress(EOFError, OSError):
            while worker.connection.poll():
                self._handle_message(worker, json.loads(worker.connection.recv_bytes()))
        if worker not in self._workers:
            return  # retired after its last message
        job = worker.job
        if not alive:
            self._handle_exit(worker)
            return
        if job is None:
            return
        now = time.monotonic()
        if job.cancel_requested and worker.kill_at is None:
            worker.kill_at = now + self.grace
            worker.send({"op": "cancel", "id": job.id})
        if worker.kill_at is not None and now > worker.kill_at:
            worker.process.kill()
        used = machine.resident_mb(worker.process.pid or 0)
        if used > worker.limit_mb and not worker.over_memory:
            worker.over_memory = used
            worker.process.kill()

    def _handle_message(self, worker: Worker, message: dict[str, Any]) -> None:
        if message["op"] == "ready":
            worker.ready, self._start_failures = True, 0
            return
        job = worker.job
        if job is None or message["id"] != job.id:
            return
        if message["op"] == "progress":
            job.report(message["fraction"], message["message"])
            return
        worker.job, worker.kill_at = None, None
        finish_job(job, message)
        if machine.resident_mb(worker.process.pid or 0) > 0.75 * self._limit(job):
            self._retire(worker)  # gives back what the job's libraries still hold

    def _handle_exit(self, worker: Worker) -> None:
        """Requeue the job of a worker that exited, or fail it with the reason."""
        self._workers.remove(worker)
        worker.process.join()
        worker.connection.close()
        job = worker.job
        if not worker.ready:
            self._start_failures += 1
            if self._start_failures >= START_FAILURES:
                words = "workers die on startup; see their messages on standard error"
                for item in self.queued:
                    item.finish(error=FaultError(words))
                self.queued.clear()
                self._start_failures = 0
        if job is None:
            return
        remove_leftovers(job)
        if worker.over_memory:
            job.finish(
                error=FaultError(
                    f"{job.tool} used {worker.over_memory:.0f} MiB, more than its limit of "
                    f"{worker.limit_mb:.0f} MiB; give the workers more memory"
                )
            )
            return
        self._retry_or_fail(job, f"exit status {worker.process.exitcode}")

    def _schedule(self) -> None:
        running = [worker.job for worker in self._workers if worker.job is not None]
        cpu = sum(job.resources.cpu for job in running)
        memory = sum(job.resources.memory_mb for job in running)
        for job in list(self.queued):
            free_gpu = self._free_gpu(job) if job.resources.gpu != "none" and self.gpus else "cpu"
            if free_gpu is None:
                continue  # waits for the card; others may pass
            too_much = (
                cpu + job.resources.cpu > self.cpus
                or memory + job.resources.memory_mb > self.memory_mb
            )
            if too_much and (cpu or memory):
                return  # nobody passes, so that a large job is not starved
            owner = next((worker for worker in self._workers if free_gpu in worker.cards), None)
            if owner is not None and owner.job is not None:
                continue  # what lies on the card is with a worker that does something else
            worker = owner or self._idle(job)
            if worker is None:
                return
            self.queued.remove(job)
            self._give(worker, job, free_gpu)
            cpu += job.resources.cpu
            memory += job.resources.memory_mb

    def _idle(self, job: Job) -> Worker | None:
        """Return an idle worker without a GPU, or start a worker if there is room.

        A worker that has the job's input open is preferred.
        """
        idle = [worker for worker in self._workers if worker.ready and worker.job is None]
        names = _inputs(job)
        idle.sort(
            key=lambda worker: (bool(worker.cards), -sum(name in worker.recent for name in names))
        )
        if idle:
            return idle[0]
        starting = sum(not worker.ready for worker in self._workers)
        if len(self._workers) < self.size and starting < len(self.queued):
            self._start()
        return None

    def _free_gpu(self, job: Job) -> str | None:
        """Return a GPU that no running job uses.

        If the job names a GPU, only that GPU is considered.

        A GPU whose worker is busy is the last choice, because the job would wait for it.
        """
        busy = [worker for worker in self._workers if worker.job is not None]
        held = {worker.device for worker in busy}
        every = [f"cuda:{index}" for index in range(self.gpus)]
        names = [job.device] if job.device in every else every
        away = set().union(*(worker.cards for worker in busy))
        names = sorted((name for name in names if name not in held), key=lambda name: name in away)
        return names[0] if names else None

    def _limit(self, job: Job) -> float:
        return max(self.memory_mb / self.size, job.resources.memory_mb * 1.25)

    def _give(self, worker: Worker, job: Job, device: str) -> None:
        worker.job, worker.device = job, device
        if device != "cpu":
            worker.cards.add(device)
        worker.limit_mb, worker.kill_at, worker.over_memory = self._limit(job), None, 0.0
        worker.recent.extend(_inputs(job))
        job.begin()
        worker.send(make_request(job, device))

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        threads = max(1, self.cpus // self.size)
        process = self._context.Process(
            target=child.main,
            args=(theirs, asdict(self.recipe), threads),
            name=f"sage-worker-{len(self._workers)}",
            daemon=True,
        )
        process.start()
        theirs.close()
        self._workers.append(Worker(process, ours))

    def _retire(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.send({"op": "stop"})
        worker.connection.close()
        worker.process.join(1.0)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()

    def _stop_all(self) -> None:
        with self.lock:
            left, self.queued = self.queued, []
            for job in left:
                job.finish(error=Cancelled("the workers were closed"))
            for worker in self._workers:
                if worker.job is not None:
                    worker.send({"op": "cancel", "id": worker.job.id})
                worker.send({"op": "stop"})
        deadline = time.monotonic() + self.grace
        for item in self._workers:
            item.process.join(max(0.0, deadline - time.monotonic()))
            if item.process.is_alive():
                item.process.kill()
                item.process.join()
            with self.lock:
                with suppress(EOFError, OSError):
                    while item.connection.poll():
                        message = json.loads(item.connection.recv_bytes())
                        if item.job is not None and message.get("id") == item.job.id:
                            finish_job(item.job, message)
                if item.job is not None:
                    remove_leftovers(item.job)
                    item.job.finish(error=Cancelled("the workers were closed"))
            item.connection.close()
        self._workers.clear()
        with self.lock:
            self._wakeup_in.close()
            self._wakeup_out.close()


def _inputs(job: Job) -> list[str]:
    return [
        argument
        for argument in job.arguments.values()
        if isinstance(argument, str) and "." in argument
    ]


def open_workers(
    word: str | None, recipe: Recipe, *, memory_mb: int | None = None, grace: float = 5.0
) -> Workers:
    """Open workers for "4" (local processes) or for a plugin: "NAME" or "NAME:ADDRESS".

    None or "auto" means one local process per processor. A plugin registers, under
    `sage.workers`, a function of the word, the recipe and the grace period.

    Raises `InputError` if the word is not recognized. `memory_mb` is the limit for all
    concurrent jobs (default: the machine's), and a canceled job must end within `grace`
    seconds.
    """
    if word is None or word == "auto" or word.isdigit():
        count = int(word) if word and word.isdigit() else None
        return LocalPool(recipe, count, memory_mb=memory_mb, grace=grace)
    name = word.partition(":")[0]
    known = find_plugins("sage.workers")
    if name not in known:
        raise InputError(f'workers "{word}": expected a number, or {", ".join(known) or "auto"}')
    workers: Workers = load_plugin("sage.workers", name)(word, recipe, grace=grace)
    return workers
