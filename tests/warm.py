"""A process that has loaded what `sage run` loads, and becomes each command by a fork.

Two thirds of the time of a short run are imports. A command of the tests is still a process of its
own, with its own folder, variables, streams and exit code; what it shares with the others is what
was imported, and the seed of the hashes (so tests that two runs are alike start one of them cold).

As a program (`python -m tests.warm SOCKET`) it serves commands until its input ends.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import IO

import pytest

from sandbox.bubblewrap import Bubblewrap
from tests.draws import draw_few, draw_nothing

REPO = Path(__file__).resolve().parents[1]
LOADED = (
    "pandas", "pyarrow.parquet", "scipy.stats", "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg", "lifelines", "langgraph.graph",
    "langgraph.checkpoint.sqlite", "langchain_core.runnables", "networkx", "jinja2", "docker",
    "numba", "sklearn.linear_model", "sklearn.isotonic", "fastparquet", "rocrate.rocrate",
    "sage.run.begin", "sage.run.wiring", "sage.run.graph", "sage.run.drive", "sage.report.build",
    "agents.coding.controller", "agents.novelty.debate",
    "kg.corpus.build", "kg.paths.find", "mcp_servers.registry",
    "sandbox.docker_engine", "validation.analysis.analysis", "validation.run.runner",
    "validation.simulate", "torch", "cv2", "shapely", "tifffile", "openslide", "skimage.measure",
    "sage.cli.app", "mcp_servers.catalog", "mcp_servers.workers.cohort",
    "mcp_servers.pathology.compute.kernels", "mcp", "mcp_servers.servers.server", "uvicorn",
    "sage.web.app",
)  # fmt: skip
"""Nothing that reads variables or the terminal while it is imported."""
HERE = "WORKERS_HERE"
"""Variable of a command whose tools run in its own process, not in a worker started cold."""
STARTED = 120.0
"""Seconds within which the process has loaded all."""


class Warm:
    """A command at work in a fork of the warm process, used as a `subprocess.Popen` is."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        given: str | None = None,
        terminal: int | None = None,
        piped: bool = False,
    ) -> None:
        """Start `sage WORDS`, or after "-c" a program as `python -c` does.

        Parameters
        ----------
        env : all variables of the command; nothing of the caller's is added
        given : text that the command reads from a pipe; by default it reads nothing
        terminal : descriptor to read from and write to, in place of pipes and files
        piped : standard error can be read from `stderr` while the command works
        """
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        reading, writing = os.pipe()
        os.write(writing, (given or "").encode())
        os.close(writing)
        streams = [reading, self._out.fileno(), self._err.fileno()]
        self.stderr: IO[str] | None = None
        if piped:
            end, streams[2] = os.pipe()
            self.stderr = os.fdopen(end)
        self._link = socket.socket(socket.AF_UNIX)
        self._link.connect(str(_server()))
        asked = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode()
        socket.send_fds(
            self._link,
            [len(asked).to_bytes(4, "big")],
            streams if terminal is None else [terminal] * 3,
        )
        self._link.sendall(asked)
        self.pid = int.from_bytes(_exactly(self._link, 4), "big")
        self.returncode: int | None = None
        os.close(reading)
        if piped:
            os.close(streams[2])

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, negative after a signal; raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            ended, _, _ = select.select([self._link], [], [], timeout)
            if not ended:
                raise subprocess.TimeoutExpired("sage", timeout or 0.0)
            self.returncode = int.from_bytes(_exactly(self._link, 4), "big", signed=True)
            self._link.close()
        return self.returncode

    def poll(self) -> int | None:
        """Exit code, or None while it works."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def send_signal(self, number: int) -> None:
        """Signal the command, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask the command to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the command and what it started."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it leads no group yet
                os.killpg(self.pid, signal.SIGKILL)
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait, and read standard output and error as `text=True` does."""
        self.wait(timeout)
        found = []
        for stream in (self._out, self._err):
            stream.seek(0)
            found.append(stream.read().decode().replace("\r\n", "\n"))
            stream.close()
        return found[0], found[1]


def run_warm(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    given: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` would, in a fork of the warm process; see `Warm`.

    Raises
    ------
    subprocess.TimeoutExpired
        If it was killed after `timeout` seconds.
    """
    running = Warm(words, cwd=cwd, env=env, given=given)
    try:
        out, err = running.communicate(timeout)
    except subprocess.TimeoutExpired:
        running.kill()
        running.communicate()
        raise
    assert running.returncode is not None
    return subprocess.CompletedProcess(["sage", *words], running.returncode, out, err)


@lru_cache(maxsize=1)
def _server() -> Path:
    """The socket of this process' server, which ends when this process does."""
    place = Path(tempfile.mkdtemp(prefix="sage-warm-")) / "socket"
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("SAGE_", "OPENAI_"))}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(place)],
        cwd=REPO,
        env={**keep, "PYTHONPATH": f"{REPO}:{REPO / 'plugins'}", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    ready, _, _ = select.select([server.stdout], [], [], STARTED)
    assert ready and server.stdout.read(5) == b"ready", "the warm process did not start"
    atexit.register(_stop, server)
    return place


def _stop(server: subprocess.Popen[bytes]) -> None:
    assert server.stdin is not None
    server.stdin.close()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:  # a busy machine takes its time to take a process down
        server.kill()
        server.wait()


def _exactly(link: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = link.recv(size - len(found))
        if not more:
            raise EOFError("the warm process ended")
        found += more
    return found


def serve(place: str) -> dict[str, object] | None:
    """Fork for each request; returns the request in the child, None in the server at its end."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place)
    listening.listen(16)
    waiting = selectors.DefaultSelector()
    waiting.register(0, selectors.EVENT_READ)
    waiting.register(listening, selectors.EVENT_READ)
    children: dict[int, tuple[int, socket.socket]] = {}
    os.write(1, b"ready")
    while True:
        for key, _ in waiting.select():
            if key.fileobj == 0:
                if not os.read(0, 1):
                    return None
            elif key.fileobj is listening:
                link, _ = listening.accept()
                head, streams, _, _ = socket.recv_fds(link, 4, 3)
                asked = json.loads(_exactly(link, int.from_bytes(head, "big")))
                pid = os.fork()
                if pid == 0:
                    os.setsid()
                    waiting.close()
                    for stream, number in zip(streams, (0, 1, 2), strict=True):
                        os.dup2(stream, number)
                    for end in (*streams, *children):
                        os.close(end)
                    for other in (link, listening, *(link for _, link in children.values())):
                        other.close()
                    return dict(asked)
                for stream in streams:
                    os.close(stream)
                link.sendall(pid.to_bytes(4, "big"))
                watched = os.pidfd_open(pid)
                children[watched] = (pid, link)
                waiting.register(watched, selectors.EVENT_READ)
            else:
                waiting.unregister(key.fd)
                pid, link = children.pop(key.fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(key.fd)
                with link, contextlib.suppress(BrokenPipeError):
                    link.sendall(code.to_bytes(4, "big", signed=True))


def become(asked: dict[str, object]) -> None:
    """Be `python -m sage WORDS` or `python -c PROGRAM`, in its folder with its variables."""
    words, cwd, env = asked["words"], str(asked["cwd"]), asked["env"]
    assert isinstance(words, list) and isinstance(env, dict)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    if HERE in env:
        run_tools_here()
    sys.path[0] = cwd
    sys.argv = ["sage", *words]
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        errors = "backslashreplace" if name == "stderr" else "strict"
        setattr(sys, name, open(number, mode, encoding="utf-8", errors=errors, closefd=False))  # noqa: SIM115
    if env.get("FEW_DRAWS"):
        draw_few(pytest.MonkeyPatch())
    if env.get("NO_FIGURES"):
        draw_nothing(pytest.MonkeyPatch())
    try:
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(words[1], "<string>", "exec"), vars(main))
        else:
            runpy.run_module("sage", run_name="__main__", alter_sys=True)
        code: object = 0
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            raise
    # As Python ends, without the seconds in which it would take all modules apart.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(str(code)))


def run_tools_here() -> None:
    """Have each job run as it is submitted, with slides kept open between jobs as by a worker."""
    from mcp_servers.context import Handles, ToolContext
    from mcp_servers.workers import pool
    from mcp_servers.workers.base import Workers
    from mcp_servers.workers.jobs import Job
    from sage.core.errors import Cancelled, SageError

    class WorkersHere(Workers):
        handles = Handles(8)

        def _queue(self, job: Job) -> None:
            job.begin()
            context = ToolContext(
                roots=job.roots, on_progress=job.report, memory_mb=job.resources.memory_mb,
                tag=job.id, handles=self.handles,
            )  # fmt: skip
            try:
                job.finish(run=self.registry.run(job.tool, job.arguments, context))
            except (SageError, Cancelled) as error:
                job.finish(error=error)

        def _wake(self) -> None:
            return None

        def close(self) -> None:
            self.handles.clear()

    pool.open_workers = lambda word, recipe, **more: WorkersHere(recipe)  # type: ignore[assignment]


if __name__ == "__main__":
    box = Bubblewrap()
    box.prepare()
    for module in LOADED:
        importlib.import_module(module)
    if box.warm:
        box.warm.ready()  # the forks share it
    assert threading.active_count() == 1, "a fork would lose a thread"
    gc.collect()
    gc.freeze()  # what was loaded is neither searched nor copied by the forks
    if (request := serve(sys.argv[1])) is not None:
        become(request)
