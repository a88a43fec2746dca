"""A run's temporary folder on the host, and the cleanup of runs whose owner died."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from sage.core.errors import InputError
from sandbox.types import Job

PREFIX = "sage-sandbox-"
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,4}")
_INPUT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


def check_job(job: Job) -> None:
    """Reject file names, input names and inputs that could not be mounted as intended.

    Raises
    ------
    InputError
        If a name is not plain, an input does not exist, or the output folder is not empty.
    """
    from sandbox.output import require_empty

    for name in job.files:
        if not _FILE.fullmatch(name):
            raise InputError(f'invalid file name "{name[:80]}"; use only letters, digits, ._-')
    for name, path in job.inputs.items():
        if not _INPUT.fullmatch(name):
            raise InputError(f'invalid input name "{name[:80]}"; use only letters, digits, ._-')
        if not path.exists():
            raise InputError(f'input "{name}": {path} does not exist')
    if not job.command:
        raise InputError("the job has no command to run")
    require_empty(job.output)


class Stage:
    """A run's folder with its code, environment and mount points; removed when the run ends.

    The folder records its owner (process and start time), so that `sweep` can distinguish a
    dead run from a live one even if the process ID was reused.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        self.folder.chmod(0o711)
        (self.folder / "owner.json").write_text(json.dumps(owner()), encoding="utf-8")

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def write_code(self, files: dict[str, str]) -> Path:
        """Write the job's files into the `work` folder and return that folder."""
        work = self.folder / "work"
        work.mkdir(mode=0o755)
        for name, content in files.items():
            target = work / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
        return work

    def empty(self, name: str) -> Path:
        """Create an empty folder in the stage and return it."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        return folder


def owner() -> dict[str, str]:
    """Identify this process, as distinct from later processes with the same ID."""
    pid = os.getpid()
    return {"pid": str(pid), "started": start_time(pid) or "", "boot": boot()}


def boot() -> str:
    """Return an identifier of this machine's current boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def alive(who: dict[str, str]) -> bool:
    """Check whether the owner's process is running; owners from another boot count as dead."""
    if who.get("boot", "") != boot():
        return False
    number = who.get("pid", "")
    return number.isdigit() and start_time(int(number)) == who.get("started")


def start_time(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot, or None if it has ended."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = line.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def sweep_stages(root: Path | None = None) -> list[str]:
    """Remove the folders of runs whose owner is dead and return their names."""
    removed = []
    for folder in sorted((root or Path(tempfile.gettempdir())).glob(f"{PREFIX}*")):
        if folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid():
            continue
        try:
            who = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(who, dict) and not alive(who):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(f"folder {folder}")
    return removed
