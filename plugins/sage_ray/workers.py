"""Workers on a Ray cluster, for work beyond this machine's capacity.

The cluster's machines must see the roots and the cache under the same paths (a shared
file system) and have the same version of SAGE installed. Nothing here waits for the
cluster indefinitely: a guard ends every job with an explanation if the dispatcher gets no
response for `silence` seconds.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import Any

from mcp_servers.roots import MissingError
from mcp_servers.workers import machine
from mcp_servers.workers.base import Workers, log
from mcp_servers.workers.jobs import Job, Recipe, finish_job, make_request, remove_leftovers
from sage.core.errors import Cancelled, FaultError, InputError
from sage.core.extras import install, require_extra
from sage_ray.nodes import Node, explain_refusal, find_hosts, parse_nodes
from sage_ray.tasks import Board, run_on_ray

TICK = 0.2
"""Interval in seconds between checks of running jobs."""
CENSUS = 2.0
"""Interval in seconds between checks of the cluster's nodes while jobs run or wait."""
IDLE_CENSUS = 5.0
"""Interval in seconds between checks of an idle cluster's nodes."""
JOINING = 60.0
"""Seconds within which a cluster must accept the connection."""
TRIES = 3
"""Number of connection attempts, since the head's client process may die at start."""


@dataclass
class Flight:
    """A job submitted to Ray; `reference` is None until Ray has accepted it.

    `node` is where it runs, according to its heartbeat, or else where it was sent; `since` is
    when it last had a worker, and `kill_at` is when a canceled job loses its worker.
    """

    job: Job
    ticket: str
    gpus: int
    node: str | None = None
    reference: Any = None
    since: float | None = None
    kill_at: float | None = None


@dataclass
class Search:
    """A job whose file was not found, with the message and the ids of nodes without the file."""

    words: str
    lacking: dict[str, str] = field(default_factory=dict)


def call_within(seconds: float, function: Callable[[], Any]) -> Any:
    """Call `function` in a thread.

    Raises `TimeoutError` if it takes longer than `seconds`.
    """
    ended: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def call() -> None:
        try:
            ended.put((function(), None))
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            ended.put((None, error))

    threading.Thread(target=call, name="ray-call", daemon=True).start()
    try:
        found, error = ended.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return found


def shorten_message(message: str) -> list[str]:
    """Shorten a Ray message to its first and last lines, which may enclose a traceback."""
    lines = message.strip().splitlines()
    return lines[:1] + lines[1:][-1:]


def open_cluster(word: str, recipe: Recipe, *, grace: float = 5.0) -> RayWorkers:
    """Open workers on a Ray cluster.

    "ray" starts a cluster here, "ray:auto" joins this machine's cluster, and "ray://HOST:PORT"
    joins a remote cluster.

    Raises
    ------
    InputError
        If the word is none of these, or Ray is not installed.
    FaultError
        If there is no cluster.
    """
    if word not in ("ray", "ray:auto") and not word.startswith("ray://"):
        raise InputError(f'workers "{word}": expected "ray", "ray:auto", or "ray://host:port"')
    return RayWorkers(recipe, {"ray": None, "ray:auto": "auto"}.get(word, word), grace=grace)


class RayWorkers(Workers):
    """Workers that run jobs as Ray tasks and queue those that the nodes cannot currently hold.

    The total processors and memory of running jobs stay within those of the live nodes. A job
    that no node can hold is refused; if the nodes that could hold it are lost, it ends after
    `patience` seconds. A job whose node lacks a file is tried on other nodes.
    """

    def __init__(
        self,
        recipe: Recipe | None = None,
        address: str | None = None,
        *,
        max_attempts: int = 3,
        grace: float = 5.0,
        cpus: int | None = None,
        silence: float = 30.0,
        patience: float = 60.0,
        quiet: float = 120.0,
    ) -> None:
        """Join the cluster at `address`, or start a local cluster if it is None.

        Parameters
        ----------
        address : "ray://host:port" (as a client from outside), "auto" (the cluster that this
            machine has joined), or None
        silence : seconds without a response after which the cluster counts as lost
        patience : seconds that a job waits for lost nodes if no other node can hold it
        quiet : seconds without a running job's heartbeat after which its node counts as lost

        Raises
        ------
        InputError
            If Ray, or for "ray://" its client, is not installed.
        FaultError
            If there is no cluster.
        """
        require_extra("ray", "a cluster of workers")
        if address and address.startswith("ray://") and find_spec("grpc") is None:
            raise InputError(f"connecting to {address} requires grpc: {install('ray')}")
        super().__init__(recipe or Recipe(), max_attempts, grace)
        import ray

        self._ray: Any = ray
        self._own = address is None
        known = {None: "on this machine", "auto": "that this machine has joined"}
        self._where = known.get(address, f"at {address}")
        self._silence, self._patience, self._quiet = silence, patience, quiet
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            path = ":".join(name for name in sys.path if name)
            options |= {
                "address": "local",
                "num_cpus": cpus or machine.cpus(),
                "include_dashboard": False,
                "runtime_env": {"env_vars": {"PYTHONPATH": path}},
            }
        else:
            options["address"] = address
        try:
            if self._own:  # what it starts ends with the thread that started it
                ray.init(**options)
            else:
                self._join(options)
            self.nodes = parse_nodes(call_within(JOINING, ray.nodes))
            self._board = call_within(JOINING, self._new_board)
        except Exception as error:
            if address != "auto":
                said = " ".join(shorten_message(str(error)))
                raise FaultError(f"no Ray cluster {self._where}: {said}") from error
            said = str(error).partition(". ")[0]
            raise FaultError(
                f"no Ray cluster {self._where}: {said}. Start a cluster (ray start --head), join "
                'one (ray start --address=HOST:PORT), or give its address: "ray://HOST:PORT"'
            ) from error
        self._remote = ray.remote(max_retries=0)(run_on_ray)
        self._recipe = json.dumps(asdict(self.recipe))
        self._flights: dict[str, Flight] = {}
        self._searches: dict[str, Search] = {}
        self._blind: set[tuple[str, Any]] = set()
        self._doomed: dict[str, float] = {}
        self._gone: FaultError | None = None
        self._trouble = ""
        self._news: Any = None
        self._asked = self._answered = self._beat = time.monotonic()
        self._counted = 0.0
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._dispatch, name="ray-workers", daemon=True)
        self._thread.start()
        threading.Thread(target=self._guard, name="ray-guard", daemon=True).start()

    def _join(self, options: dict[str, Any]) -> None:
        """Join the cluster, retrying if the head could not start a server for this client."""
        for left in reversed(range(TRIES)):
            try:
                call_within(JOINING, lambda: self._ray.init(**options))
                return
            except ConnectionAbortedError as error:
                if not left:
                    raise
                log.info("retrying to join", why=shorten_message(str(error))[-1])
                time.sleep(1.0)

    @property
    def size(self) -> int:
        """Number of processors on the live nodes, which limits the number of concurrent jobs."""
        return max(1, int(sum(node.cpus for node in self.nodes)))

    def check(self, job: Job) -> None:
        """Refuse a job that no node in the cluster can ever run."""
        if self._gone is not None:
            raise self._gone
        if job.device.startswith("cuda:") and job.resources.gpu != "none":
            raise InputError(
                f"{job.tool}: device {job.device} cannot be set: the cluster assigns the GPU; use "
                "cuda"
            )
        if words := self._refusal(job):
            raise InputError(words)

    def _cpus(self, job: Job) -> float:
        """Return the processors for a job, limited to those available on a local cluster."""
        return min(job.resources.cpu, self.size) if self._own else job.resources.cpu

    def _refusal(self, job: Job) -> str | None:
        return explain_refusal(job.tool, job.resources, self.nodes, self._cpus(job))

    def _wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """Cancel remaining jobs and leave the cluster, stopping it if it is local."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
        self._closing.set()
        self._wake()
        limit = self._silence if self._gone is None else 1.0
        self._thread.join(limit)
        self._end_all(Cancelled("the workers were closed"))
        with suppress(Exception):
            call_within(limit, self._ray.shutdown)

    # --- what is lost ---

    def _guard(self) -> None:
        """End every job if the dispatcher hangs in Ray, or if Ray returns only errors."""
        while not self._closing.wait(1.0):
            quiet = time.monotonic() - self._beat
            if self._gone is None and quiet > self._silence + IDLE_CENSUS * (not self._busy()):
                self._lose(f"has not answered for {quiet:.0f} s")

    def _busy(self) -> bool:
        with self.lock:
            return bool(self._flights or self.queued)

    def _lose(self, why: str) -> None:
        """End every job with the error that the cluster is lost, and refuse new jobs."""
        last = f" (last: {self._trouble})" if self._trouble else ""
        self._gone = FaultError(
            f"the Ray cluster {self._where} {why}{last}: its head node or the network connection "
            "was lost; start the cluster again and repeat the command (finished results are kept)"
        )
        log.warning("ray cluster lost", why=why)
        self._end_all(self._gone)
        # Ray ends the whole process after missing the head for a minute, so leave before that.
        threading.Thread(target=self._ray.shutdown, name="ray-shutdown", daemon=True).start()

    def _end_all(self, error: Exception) -> None:
        with self.lock:
            left, self.queued = [*self.queued, *(f.job for f in self._flights.values())], []
            self._flights.clear()
        for job in left:
            job.finish(error=error)

    # --- the dispatcher thread ---

    def _dispatch(self) -> None:
        while not self.closed and self._gone is None:
            busy = self._busy()
            if not busy and self._woken.wait(IDLE_CENSUS):
                self._beat, busy = time.monotonic(), True
            self._woken.clear()
            try:
                self._round(busy)
            except ConnectionError as error:  # the client has given up after its own attempts
                self._trouble = str(error)
                if self._gone is None and not self.closed:
                    self._lose("closed the connection")
            except Exception as error:  # noqa: BLE001 - the guard ends what takes too long
                self._trouble = f"{type(error).__name__}: {error}".partition("\n")[0]
                log.warning("ray cluster in trouble", why=self._trouble)
                self._closing.wait(1.0)
            else:
                self._beat = time.monotonic()
        for flight in list(self._flights.values()):
            with suppress(Exception):
                self._ray.cancel(flight.reference, force=True)

    def _round(self, busy: bool) -> None:
        """Check nodes, queue, board, and running jobs in a single pass."""
        now = time.monotonic()
        if now - self._counted > (CENSUS if busy else IDLE_CENSUS):
            self.nodes = parse_nodes(self._ray.nodes())
            self._counted = now
            self._end_the_impossible(now)
        for flight in self._chosen():
            self._launch(flight)
        if not self._flights:
            return
        self._ask_board(now)
        waited = [flight.reference for flight in self._flights.values()]
        self._ray.wait(waited, num_returns=1, timeout=TICK)
        ready = set(self._ray.wait(waited, num_returns=len(waited), timeout=0)[0])
        self._take_news()
        for flight in list(self._flights.values()):
            if flight.reference in ready:
                self._collect(flight)
            else:
                self._look_after(flight, time.monotonic())

    def _end_the_impossible(self, now: float) -> None:
        """End jobs that are waiting, here or in Ray, for lost nodes that do not come back."""
        with self.lock:
            waiting = [*self.queued, *(f.job for f in self._flights.values() if f.since is None)]
        doomed = {job.id: words for job in waiting if (words := self._refusal(job))}
        self._doomed = {name: self._doomed.get(name, now) for name in doomed}
        self._searches = {
            name: self._searches[name] for name in self._searches if name in self.jobs
        }
        for job in waiting:
            if job.id not in doomed:
                continue
            if now - self._doomed[job.id] <= self._patience:
                job.message = "waiting for lost nodes to come back"
                job.notify()
                continue
            with self.lock:
                flight = self._flights.pop(job.id, None)
                if job in self.queued:
                    self.queued.remove(job)
            job.finish(error=FaultError(f"a node was lost: {doomed[job.id]}"))
            if flight is not None:
                self._ray.cancel(flight.reference, force=True)

    # --- the board ---

    def _new_board(self) -> Any:
        """Start a board next to the head if possible, so that it stops only with the cluster."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        heads = (
            n["NodeID"] for n in self._ray.nodes() if "node:__internal_head__" in n["Resources"]
        )
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 1}
        if head := next(heads, None):
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(head, soft=True)
        return self._ray.remote(**options)(Board).remote()

    def _ask_board(self, now: float) -> None:
        if self._news is None and now - self._asked >= TICK:
            stopping = [f.ticket for f in self._flights.values() if f.job.cancel_requested]
            self._news = self._board.take.remote(stopping, len(self._flights))
            self._asked = now
        elif self._news is not None and now - self._asked > self._silence:
            log.warning("the Ray cluster's board does not respond; restarted")
            self._replace_board()

    def _replace_board(self) -> None:
        """Open a new board; running jobs keep the old board, so their silence is ignored."""
        with suppress(Exception):
            self._ray.kill(self._board)
        self._board, self._news = self._new_board(), None
        for flight in list(self._flights.values()):
            flight.since = None if flight.since is None else float("inf")

    def _take_news(self) -> None:
        if self._news is None:
            return
        done, _ = self._ray.wait([self._news], timeout=0)
        if not done:
            return
        answer, self._news = self._news, None
        try:
            news = self._ray.get(answer, timeout=self._silence)
        except self._ray.exceptions.ActorUnavailableError:
            return  # Ray is starting it again
        except self._ray.exceptions.RayActorError as error:
            log.warning("the Ray cluster's board died; restarted", why=str(error))
            self._replace_board()
            return
        self._answered = time.monotonic()
        for flight in list(self._flights.values()):
            if flight.ticket in news:
                flight.node, fraction, message = news[flight.ticket]
                flight.since = self._answered
                if message or fraction:
                    flight.job.report(fraction, message)

    # --- jobs ---

    def _look_after(self, flight: Flight, now: float) -> None:
        job = flight.job
        if job.cancel_requested:
            if flight.kill_at is None:
                flight.kill_at = now + self.grace
            elif now > flight.kill_at:
                self._ray.cancel(flight.reference, force=True)
                flight.kill_at = now + 60.0
        if flight.since is not None and self._answered - flight.since > self._quiet:
            self._ray.cancel(flight.reference, force=True)
            self._land(flight)
            self._retry_or_fail(
                job, f"no heartbeat from {self._name(flight.node)} for {self._quiet:g} s"
            )

    def _name(self, node: str | None) -> str:
        known = {item.id: item.address for item in self.nodes}
        return f"node {known.get(node or '', (node or 'unknown')[:12])}"

    def _land(self, flight: Flight) -> None:
        with self.lock:
            self._flights.pop(flight.job.id, None)

    def _collect(self, flight: Flight) -> None:
        job = flight.job
        try:
            answer = json.loads(self._ray.get(flight.reference, timeout=self._silence))
        except self._ray.exceptions.RayTaskError as error:
            self._land(flight)
            job.finish(
                error=FaultError(
                    f"{job.tool} failed on {self._name(flight.node)} of the cluster: {error.cause}"
                )
            )
            return
        except self._ray.exceptions.RayError as error:
            self._land(flight)
            remove_leftovers(job)
            self._retry_or_fail(job, f"{type(error).__name__}, {self._name(flight.node)}")
            return
        self._land(flight)
        if answer["op"] == "failed" and answer["kind"] == "missing":
            self._look_elsewhere(job, answer)
            return
        if search := self._searches.pop(job.id, None):  # other jobs can find the file
            self._blind |= {(node, job.roots.inputs) for node in search.lacking}
        finish_job(job, answer)

    def _look_elsewhere(self, job: Job, answer: dict[str, Any]) -> None:
        """Try a job on another node if this node lacks a file, or end it and name all nodes."""
        search = self._searches.setdefault(job.id, Search(answer["message"]))
        search.lacking[answer["node"]] = self._name(answer["node"])
        able = find_hosts(job.resources, self.nodes, self._cpus(job))[0]
        if all(node.id in search.lacking for node in able):
            self._nowhere(job)
        elif job.cancel_requested:
            job.finish(error=Cancelled("canceled by the caller"))
        else:
            job.attempts -= 1  # no worker died
            job.requeue(f"{self._name(answer['node'])} lacks a file; trying another")
            self._queue(job)

    def _nowhere(self, job: Job) -> None:
        search = self._searches.pop(job.id)
        words = search.words
        if not self._own:
            words += (
                f" on {', '.join(sorted(search.lacking.values()))}; every node must see the roots "
                "under the same paths as here (a shared file system)"
            )
        job.finish(error=MissingError(words))

    def _chosen(self) -> list[Flight]:
        """Take jobs that the cluster can run now from the queue, in order."""
        with self.lock:
            return list(self._choose())

    def _choose(self) -> Iterator[Flight]:
        flights = list(self._flights.values())
        cpus = sum(node.cpus for node in self.nodes)
        memory = sum(node.memory_mb for node in self.nodes)
        cards = sum(node.gpus for node in self.nodes)
        for flight in flights:
            cpus -= self._cpus(flight.job)
            memory -= flight.job.resources.memory_mb
            cards -= flight.gpus
        for job in list(self.queued):
            able, gpus = find_hosts(job.resources, self.nodes, self._cpus(job))
            if not able or gpus > cards:
                continue  # waits for a node to come back or for a GPU; other jobs may overtake it
            if self._cpus(job) > cpus or job.resources.memory_mb > memory:
                return  # no job may overtake, so that a large job is not starved
            known = self._seeing(job, able)
            if not known:
                self.queued.remove(job)
                self._nowhere(job)
                continue
            node = None if len(known) == len(able) else self._freest(job, known)
            if node == "":
                continue  # waits for a node that has its files
            self.queued.remove(job)
            job.begin()
            flight = Flight(job, f"{job.id}.{job.attempts}", gpus, node)
            self._flights[job.id] = flight
            cpus -= self._cpus(job)
            memory -= job.resources.memory_mb
            cards -= gpus
            yield flight

    def _seeing(self, job: Job, able: list[Node]) -> list[Node]:
        """Return the nodes that may have the job's files, those with all roots first."""
        search = self._searches.get(job.id)
        left = [node for node in able if search is None or node.id not in search.lacking]
        return [node for node in left if (node.id, job.roots.inputs) not in self._blind] or left

    def _freest(self, job: Job, nodes: list[Node]) -> str:
        """Return the id of the node with the most free processors, or "" if no node fits."""
        best, most = "", 0.0
        for node in nodes:
            there = [flight.job for flight in self._flights.values() if flight.node == node.id]
            cpus = node.cpus - sum(self._cpus(other) for other in there)
            memory = node.memory_mb - sum(other.resources.memory_mb for other in there)
            if cpus >= max(self._cpus(job), most) and memory >= job.resources.memory_mb:
                best, most = node.id, cpus
        return best

    def _launch(self, flight: Flight) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        job = flight.job
        options: dict[str, Any] = {
            "num_cpus": self._cpus(job),
            "num_gpus": flight.gpus,
            "memory": job.resources.memory_mb * 2**20,
            "name": job.tool,
        }
        if flight.node is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(flight.node, soft=False)
        request = make_request(job, "gpu" if flight.gpus else "cpu") | {"ticket": flight.ticket}
        launch: Callable[..., Any] = self._remote.options(**options).remote
        try:
            flight.reference = launch(self._recipe, json.dumps(request), self._board)
        except Exception:
            self._land(flight)
            job.attempts -= 1
            job.requeue("the cluster did not accept it; waiting")
            self._queue(job)
            raise
