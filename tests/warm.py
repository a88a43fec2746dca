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
    "mcp_servers.pathology.compute.kernels",
)  # fmt: skip
"""Nothing that reads variables or the terminal while it is imported."""
HERE = "WORKERS_HERE"
"""Variable of a command whose tools run in its own process, not in a worker started cold."""
STARTED = 120.0
"""Seconds within which the process has loaded all."""


def run_warm(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `sage WORDS` as `subprocess.run` would, in a fork of the warm process.

    Parameters
    ----------
    env : all variables of the command; nothing of the caller's is added
    timeout : seconds until it is killed

    Raises
    ------
    subprocess.TimeoutExpired
        If it was killed.
    """
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        Path(os.devnull).open("rb") as empty,
        socket.socket(socket.AF_UNIX) as link,
    ):
        link.connect(str(_server()))
        asked = json.dumps({"words": list(words), "cwd": str(cwd), "env": dict(env)}).encode()
        streams = [empty.fileno(), out.fileno(), err.fileno()]
        socket.send_fds(link, [len(asked).to_bytes(4, "big")], streams)
        link.sendall(asked)
        pid = int.from_bytes(_exactly(link, 4), "big")
        ended, _, _ = select.select([link], [], [], timeout)
        if not ended:
            os.kill(pid, signal.SIGKILL)
            _exactly(link, 4)
            raise subprocess.TimeoutExpired(["sage", *words], timeout)
        code = int.from_bytes(_exactly(link, 4), "big", signed=True)
        out.seek(0)
        err.seek(0)
        # As text=True reads them: strictly, with any line end as "\n".
        said = [stream.read().decode().replace("\r\n", "\n") for stream in (out, err)]
    return subprocess.CompletedProcess(["sage", *words], code, said[0], said[1])


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
    """Be `python -m sage WORDS`, started in its folder with its variables."""
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
    try:
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
    from mcp_servers.workers import choose
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

    choose.open_workers = lambda word, recipe, **more: WorkersHere(recipe)  # type: ignore[assignment]


if __name__ == "__main__":
    for module in LOADED:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a fork would lose a thread"
    gc.collect()
    gc.freeze()  # what was loaded is neither searched nor copied by the forks
    if (request := serve(sys.argv[1])) is not None:
        become(request)
