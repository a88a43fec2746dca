"""Runs the command line as a user does: a process of its own, a folder of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sage.core.extras import EXTRAS, WITHIN
from tests.warm import Warm, run_warm

REPO = Path(__file__).resolve().parents[2]
PROMPT = (
    "Identify a novel research hypothesis linking tertiary lymphoid structures (TLS) and genes in"
    " bladder cancer"
)


@lru_cache(maxsize=1)
def bubblewrap_works() -> bool:
    """Return whether bubblewrap can start here."""
    from sandbox.bubblewrap import Bubblewrap

    return Bubblewrap().available().ok


@lru_cache(maxsize=1)
def cache_dir() -> Path:
    """One cache for all workers of a session, so that graph and cohort are made once."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if session is None:
        return Path(tempfile.mkdtemp(prefix="sage-test-cache-"))
    place = Path(tempfile.gettempdir()) / f"sage-test-cache-{session}"
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def build_once(name: str, build: Callable[[Path], object]) -> Path:
    """Return a folder that the first worker of a session builds; the others wait and read it."""
    place = Path(f"{cache_dir()}-{name}")
    with Path(f"{place}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "built").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(mode=0o700)
            build(place)
            (place / "built").touch()
    return place


# The process kills itself at the given event: a kill from outside cannot hit a node of a few
# milliseconds. Nothing in SAGE knows of it.
DIES = """
import os, signal, sys
from sage.run.folder import RunFolder

kind, node = sys.argv[1], sys.argv[2]
log = RunFolder.event

def event(self, told, /, **fields):
    log(self, told, **fields)
    if told == kind and fields.get("node") == node:
        os.kill(os.getpid(), signal.SIGKILL)

RunFolder.event = event
sys.argv = ["sage", *sys.argv[3:]]
from sage.__main__ import main

main()
"""
HIDE = """
import sys

class Hidden:
    names = set({names!r})

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def core_only(folder: Path) -> dict[str, str]:
    """Variables under which every Python finds the core's packages alone, as after `pip install .`.

    `folder` gets the module that hides the others.
    """
    names = {module for extra in EXTRAS.values() for module in extra.modules} | WITHIN.keys()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(HIDE.format(names=sorted(names)))
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(REPO)])}


def environment(**more: str) -> dict[str, str]:
    """The caller's environment without SAGE's or a model's settings.

    Analyses draw few resamples, unless FEW_DRAWS is empty, and no figures, unless NO_FIGURES is.
    Programs run in bubblewrap where it works, which starts in a fifth of a container's time.
    """
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SAGE_", "OPENAI_")) or key in ("SAGE_SHARED", "SAGE_LEDGER")
    }
    return {
        **kept,
        "PYTHONPATH": f"{REPO}{os.pathsep}{REPO / 'plugins'}",
        "SAGE_CACHE_DIR": str(cache_dir()),
        "XDG_CONFIG_HOME": str(cache_dir() / "config"),
        "COLUMNS": "200",
        "OMP_NUM_THREADS": "1",
        "FEW_DRAWS": "1",
        "NO_FIGURES": "1",
        **({"SAGE_SANDBOX": "bubblewrap"} if bubblewrap_works() else {}),
        **more,
    }


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


def sage(*args: str, cwd: Path, timeout: float = 900, cold: bool = False, **env: str) -> Done:
    """Run `sage ARGS` in `cwd`, in a process that is warm but where Python's own path matters."""
    given = environment(**env)
    few = given["FEW_DRAWS"] and "PYTHONPATH" not in env
    if cold or "PYTHONPATH" in env:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.draws" if few else "sage", *args],
            cwd=cwd,
            env=given,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
    else:
        ended = run_warm(args, cwd=cwd, env=given, timeout=timeout)
    return Done(ended.returncode, ended.stdout, ended.stderr)


def begin(*args: str, cwd: Path, **env: str) -> Warm:
    """Start `sage ARGS`, or a program after "-c", in a warm process that works beside the test."""
    return Warm(args, cwd=cwd, env=environment(**env))


def die(kind: str, node: str, *args: str, cwd: Path, timeout: float = 240, **env: str) -> None:
    """Run `sage ARGS` until a run logs this event of this node, where the process is killed."""
    died = begin("-c", DIES, kind, node, *args, cwd=cwd, **env).wait(timeout)
    assert died == -signal.SIGKILL, node


def on_a_terminal(
    *args: str, cwd: Path, answers: list[tuple[str, str]], enough: Path | None = None, **env: str
) -> tuple[int, str]:
    """Run `sage ARGS` on a terminal of its own; wait for each question, then type its answer.

    Once the file `enough` is there, the command is killed.
    """
    ours, theirs = pty.openpty()
    process = Warm(args, cwd=cwd, env=environment(**({"TERM": "dumb"} | env)), terminal=theirs)
    os.close(theirs)
    shown, seen, until = "", 0, time.monotonic() + 240
    left = list(answers)
    while time.monotonic() < until:
        ready, _, _ = select.select([ours], [], [], 0.2)
        if ready:
            try:
                shown += os.read(ours, 65536).decode("utf-8", "replace")
            except OSError:  # the other end is closed: the command ended
                break
        if enough and enough.exists():
            process.kill()
        if left and left[0][0] in shown[seen:]:
            seen = len(shown)
            os.write(ours, f"{left.pop(0)[1]}\n".encode())
    os.close(ours)
    code = process.wait(timeout=120)
    assert left == [], shown[-3000:]
    return code, shown


def events(folder: Path) -> list[dict[str, Any]]:
    """A run's event log."""
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def estimates(run: Path) -> dict[str, Any]:
    """What was found for a run's first claim, but for figures and what hangs on other claims."""
    found = json.loads((run / "hypotheses/h1/results/results.json").read_text())
    numbers = {key: told for key, told in found["numbers"].items() if not key.startswith("ledger.")}
    return {**found, "figures": {}, "numbers": numbers, "verdict": found["verdict"]["verdict"]}
