"""The run folder: manifest, event log, a JSON file per agent output, and computed results."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeVar

from pydantic import Field

from sage.core import clock, log
from sage.core.errors import InputError
from sage.core.files import append_line, read_lines, write_json
from sage.core.models import Name, Strict, read_model
from sage.core.printable import one_line
from sage.run.integrity import Record
from sage.run.spec import RunSpec

RunStatus = Literal[
    "queued",
    "running",
    "waiting for review",
    "escalated",
    "finished",
    "failed",
    "stopped",
    "paused",
]


FORMAT = 4
"""Version of the run folder format."""
CHANGING: dict[str, Any] = {
    **dict.fromkeys(("status", "finished", "problem", "place", "sealed", "checkpoint"), True),
    "spec": {"budget_usd"},
}


class HeldError(InputError):
    """Error raised when another process is working on the run or the campaign."""


class Manifest(Strict):
    """The run's spec and facts recorded at its start, without secrets.

    `kg_hash` is the SHA-256 of the graph, `settings` are those that a resumed run keeps,
    `endpoint` is the model server without credentials, and `sealed` is the head of the file
    record at the last pause.
    """

    format: int = FORMAT
    id: str
    run_id: str
    thread: str = ""
    parent: str | None = None
    copied_thread: str = ""
    checkpoint: str = ""
    place: str = ""
    sealed: str = ""
    spec: RunSpec
    created: str
    status: RunStatus = "running"
    reasoner: Literal["rules", "chat"]
    models: dict[str, str] = Field(default_factory=dict)
    cohort_title: Name = ""
    simulated: bool = False
    kg: str = ""
    kg_hash: str = ""
    versions: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    endpoint: str = ""
    finished: str | None = None
    problem: str | None = None

    @property
    def campaign(self) -> str:
        """Campaign whose online error control applies; a confirmation run has its own."""
        return self.spec.campaign or (self.id if self.spec.confirms else "")

    def digest(self, *, whole: bool) -> str:
        """Hash the fields that do not change while a run continues.

        If the run finished and was recorded whole, hash all fields but those of a moved folder.
        """
        changing = {"place", "sealed"} if whole and self.status == "finished" else CHANGING
        fixed = self.model_dump(mode="json", exclude=changing)
        return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


LOOKS = 6


class RunFolder:
    """Paths, manifest, event log and file record of a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.id = root.name
        self.checkpoints = root / "checkpoints.sqlite"
        self.events_path = root / "events.jsonl"
        self.trace_path = root / "trace.jsonl"
        self.spending_path = root / "spending.jsonl"
        self.pause_path = root / "pause"  # exists while somebody wants the run to wait
        self.record = Record(root, lambda whole: self._read_manifest().digest(whole=whole))
        self._lock = threading.Lock()
        self._held: IO[str] | None = None

    def output(self, name: str) -> Path:
        """Return the path of the agent output `name`."""
        return self.root / "outputs" / f"{name}.json"

    def hypothesis(self, hypothesis_id: str) -> Path:
        """Return the folder of a hypothesis, with its contract, code, results and figures."""
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", hypothesis_id):
            raise InputError(f'hypothesis id "{hypothesis_id}": use letters, digits, - and _')
        return self.root / "hypotheses" / hypothesis_id

    def manifest(self) -> Manifest:
        """Read the manifest.

        Raises
        ------
        InputError
            If the folder has no manifest, or it cannot be read or is not as SAGE wrote it.
        """
        manifest = self._read_manifest()
        self.record.check_manifest(lambda whole: manifest.digest(whole=whole))
        return manifest

    def _read_manifest(self) -> Manifest:
        path = self.root / "manifest.json"
        try:
            manifest = read_model(path, Manifest)
        except FileNotFoundError:
            raise InputError(f"{self.root} is not a run folder (manifest.json not found)") from None
        if manifest.format != FORMAT:
            raise InputError(
                f"{path} has format {manifest.format}, but this version of SAGE reads format "
                f"{FORMAT}; use the version that wrote it"
            )
        return manifest

    def save(self, manifest: Manifest) -> None:
        """Record the manifest's hash, unless it is recorded already, and write the manifest."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.record.seal_manifest(lambda whole: manifest.digest(whole=whole))
        write_json(self.root / "manifest.json", manifest)

    def finish(self) -> None:
        """Set the status to finished, and record every file as it is now."""
        done = {"status": "finished", "finished": clock.stamp()}
        manifest = self.manifest().model_copy(update=done)
        self.record.seal_whole()
        self.record.seal_manifest(lambda whole: manifest.digest(whole=whole))
        self.save(manifest.model_copy(update={"sealed": self.record.head()}))

    def update(self, **changes: Any) -> Manifest:
        """Change fields of the manifest."""
        manifest = Manifest.model_validate(dict(self.manifest()) | changes)
        self.save(manifest)
        return manifest

    def verify(self, *, under_way: bool = False, pages: bool = True) -> None:
        """Reject a folder whose files differ from those the run left (see `Record.verify`).

        A run being resumed (`under_way`) may contain files left by an interrupted step, and a
        program that a person was asked to fix.
        """
        manifest = self.manifest()
        mended = under_way and manifest.status == "escalated"
        self.record.verify(manifest.sealed, under_way=under_way, mended=mended, pages=pages)

    def verify_resting(self) -> RunFolder:
        """Verify the files before they are shown, unless a process is currently changing them."""
        if not find_holder(self):
            self.verify(under_way=True)
        return self

    def verified(self, path: Path) -> Path:
        """Return a run file that a person is about to read, after verifying the run.

        Raises
        ------
        InputError
            If the file does not exist, or a run file is not as the run left it.
        """
        if not path.is_file() or path.is_symlink():
            raise InputError(f"run {self.id} has no {path.relative_to(self.root)}")
        self.verify()
        return path

    def hold(self) -> None:
        """Lock the run for this process until it ends, and clean up after killed processes.

        Raises
        ------
        InputError
            If another process is working on the run; the message identifies it.
        """
        self._held = take_lock(self.root / "run.lock", f"run {self.id}")
        log.keep_in(self.root / "log.jsonl")
        # Only the command: its arguments may name a person who is to be forgotten.
        log.logger(__name__).info("run held", process=os.getpid(), command=sys.argv[1:2])
        for left in [*self.root.rglob(".*.part"), *self.root.rglob(".*.partial")]:
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)

    def release(self) -> None:
        """Release the run so that another process can take it."""
        if self._held:
            log.keep_in(None)
            self._held.close()

    def adopt(self) -> Manifest:
        """Return a locked run's manifest, updating it if the folder was moved or copied.

        A copy next to its original becomes a separate run that names the original as its parent.

        Raises
        ------
        InputError
            If a file is not as the run left it, since a run never continues from modified files,
            or if another folder next to it contains the same run and neither is at the original
            location.
        """
        self.verify(under_way=True)
        manifest, here = self.manifest(), str(self.root)
        if manifest.place != here:
            copied = self._is_copy(manifest)
            if copied:
                identity = str(uuid.uuid4())
                update = {
                    "run_id": identity,
                    "thread": identity,
                    "copied_thread": manifest.thread,
                    "parent": manifest.run_id,
                    "place": here,
                }
            else:
                update = {"place": here}
            manifest = manifest.model_copy(update=update)
            self.save(manifest)
        return manifest

    def _is_copy(self, manifest: Manifest) -> bool:
        """Check whether a folder not at its manifest's location was copied rather than moved."""
        if names_run(Path(manifest.place), manifest.run_id):
            return True
        beside = [
            run
            for run in list_runs(self.root.parent)
            if run.root != self.root and names_run(run.root, manifest.run_id)
        ]
        if any(run.manifest().place == str(run.root) for run in beside):
            return True
        if beside:
            raise InputError(
                f"{self.root} and {beside[0].root} contain the same run, and it is unclear which "
                "is the copy; move one out of this folder, `sage resume` the other, then "
                "move the first one back"
            )
        return False

    def event(self, kind: str, **fields: Any) -> None:
        """Append an event in a single write, so that lines stay intact."""
        line = {"time": clock.stamp(), "event": kind, **fields}
        with self._lock:
            append_line(self.events_path, json.dumps(line, ensure_ascii=False))

    def events(self) -> list[dict[str, Any]]:
        """Return all events, ignoring any line that a killed process left incomplete."""
        return read_lines(self.events_path)


def find_holder(run: RunFolder) -> str:
    """Return the process that has locked the run, on any machine; empty if not locked.

    The lock is checked rather than the process ID, because process IDs are reused.
    """
    try:
        with (run.root / "run.lock").open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read(300).decode("utf-8", "replace") or "another process"
            fcntl.flock(lock, fcntl.LOCK_UN)
    except OSError:
        return ""
    return ""


def describe_status(run: RunFolder) -> str:
    """Return the run's status, or "interrupted" if it should be running but is not locked."""
    status: str = run.manifest().status
    return "interrupted" if status == "running" and not find_holder(run) else status


def take_lock(path: Path, what: str) -> IO[str]:
    """Lock a file for this process until it is closed, and write the lock holder into it.

    Locking is tried several times, because processes that check the lock also hold it
    briefly.

    Raises
    ------
    HeldError
        If another process has locked the file; the message identifies it.
    """
    file = path.open("a+", encoding="utf-8")
    for look in range(LOOKS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if look < LOOKS - 1:
                time.sleep(0.05)
                continue
            file.seek(0)
            holder = one_line(file.read(500)) or "another process"
            file.close()
            raise HeldError(
                f"{what} is locked by {holder}; wait until it ends, or stop it"
            ) from None
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()} since {clock.stamp()}\n")
    file.flush()
    return file


def names_run(root: Path, run_id: str) -> bool:
    """Check whether the folder contains the run with this id."""
    try:
        return RunFolder(root).manifest().run_id == run_id
    except (InputError, OSError):
        return False


def new_id(prompt: str) -> str:
    """Make a readable, unique run id from the date, time and first words of the prompt."""
    words = re.findall(r"[a-z0-9]+", prompt.lower())[:4]
    stamp = clock.now().strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{'-'.join(words)[:40] or 'run'}-{secrets.token_hex(2)}"


def find_run(name: str, runs_dir: Path) -> RunFolder:
    """Find a run by `name`: a path, an id, a unique id prefix, or "last".

    Raises
    ------
    InputError
        If no run matches, or more than one does.
    """
    direct = Path(name)
    if (direct / "manifest.json").is_file():
        return RunFolder(direct.resolve())
    runs = list_runs(runs_dir)
    if not runs:
        raise InputError(f'no runs in {runs_dir}; start one with `sage run "PROMPT"`')
    if name == "last":
        return runs[-1]
    found = match_name(name, runs)
    if len(found) != 1:
        known = ", ".join(run.id for run in (found or runs)[-3:])
        reason = "names several runs" if found else "is no run"
        raise InputError(f'"{name}" {reason} in {runs_dir}. Runs: {known}')
    return found[0]


class Named(Protocol):
    """A folder with a name."""

    root: Path


N = TypeVar("N", bound=Named)


def match_name(name: str, folders: Sequence[N]) -> list[N]:
    """Select the folder with this name, or else the folders whose names start with it."""
    exact = [folder for folder in folders if folder.root.name == name]
    return exact or [folder for folder in folders if folder.root.name.startswith(name)]


def list_folders(home: Path, file: str) -> list[Path]:
    """List the folders below `home` that contain `file`, oldest first."""
    paths = sorted(home.iterdir()) if home.is_dir() else []
    return [path.resolve() for path in paths if (path / file).is_file()]


def list_runs(runs_dir: Path) -> list[RunFolder]:
    """List all runs in a folder, oldest first."""
    return [RunFolder(path) for path in list_folders(runs_dir, "manifest.json")]
