"""Worker process that runs jobs in order and keeps its state between jobs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from mcp_servers.context import Handles, ToolContext
from mcp_servers.workers.jobs import Recipe, name_error, parse_roots
from sage.core import egress
from sage.core.errors import Cancelled, SageError
from sage.core.extras import absent

PROGRESS_SECONDS = 0.1
"""Minimum interval between progress messages, in seconds."""


@functools.cache
def cuda_works() -> bool:
    """Check whether torch is installed and can use this machine's GPU."""
    if absent("models"):
        return False
    import torch

    return bool(torch.cuda.is_available())


def run_request(
    registry: Any, handles: Any, request: dict[str, Any], report: Any, cancelled: Any
) -> dict[str, Any]:
    """Run a request with a registry and return the response as JSON data; never raises.

    Returns
    -------
    "done" with the tool's result, or "failed" with the error's kind and message.
    """
    spec = registry.tools.get(request["tool"])
    device = request["device"]
    if device.startswith("cuda") and spec is not None and spec.resources.gpu != "required":
        device = device if cuda_works() else "cpu"
    context = ToolContext(
        roots=parse_roots(request),
        on_progress=report,
        cancelled=cancelled,
        memory_mb=request["memory_mb"],
        threads=request["threads"],
        device=device,
        tag=request["id"],
        handles=handles,
        caller=request["caller"],
    )
    try:
        run = registry.run(request["tool"], request["arguments"], context)
    except (SageError, Cancelled) as error:
        kind = name_error(error)
        return {"op": "failed", "id": request["id"], "kind": kind, "message": str(error)}
    except MemoryError:
        words = f"{request['tool']} ran out of memory"
        return {"op": "failed", "id": request["id"], "kind": "fault", "message": words}
    return {"op": "done", "id": request["id"], "run": run.model_dump(mode="json")}


def main(connection: Connection, recipe: dict[str, Any], threads: int) -> None:
    """Serve jobs until the pool requests a stop or disappears."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pool's to handle
    egress.confine()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(2, 1)  # a library that prints must not reach the parent's standard output

    jobs: queue.Queue[dict[str, Any] | None] = queue.Queue()
    current: dict[str, threading.Event] = {}
    registry = Recipe.from_dict(recipe).build()
    cache = Handles()

    def listen() -> None:
        while True:
            try:
                message = json.loads(connection.recv_bytes())
            except (EOFError, OSError):
                os._exit(1)  # the pool is gone: nobody waits for the job
            if message["op"] == "run":
                current[message["id"]] = threading.Event()
                jobs.put(message)
            elif message["op"] == "cancel":
                event = current.get(message["id"])
                if event is not None:
                    event.set()
            else:
                jobs.put(None)

    lock = threading.Lock()  # tools may report from several threads

    def send(message: dict[str, Any]) -> None:
        with lock:
            connection.send_bytes(json.dumps(message).encode())

    threading.Thread(target=listen, name="listen", daemon=True).start()
    send({"op": "ready", "pid": os.getpid()})
    while (request := jobs.get()) is not None:
        event = current[request["id"]]
        last = [0.0]

        def report(fraction: float, message: str, request: Any = request, last: Any = last) -> None:
            now = time.monotonic()
            if now - last[0] >= PROGRESS_SECONDS or fraction >= 1.0:
                last[0] = now
                progress = {"fraction": fraction, "message": message}
                send({"op": "progress", "id": request["id"], **progress})

        answer = run_request(registry, cache, request, report, event.is_set)
        del current[request["id"]]
        send(answer)
    cache.clear()
    sys.stderr.flush()
