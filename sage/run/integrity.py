"""The record of a run's files: an append-only hash chain, checked before anything is shown.

Each line contains a file name, the file's SHA-256 and the hash of the chain so far. When
a node ends, it records the files it wrote; a file changed at any other time does not
match the record, and no report is built from it. A run that finishes records all of its files,
including the log, the checkpoints and the model's replies. The record shows that a file was changed
or lost, but not by whom: anyone who can write to the folder can also write a new record.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from sage.core.errors import InputError
from sage.core.files import naming

NAME = "integrity.jsonl"
JOURNALS = (
    "events.jsonl", "trace.jsonl", "spending.jsonl", "ledger.jsonl", "log.jsonl", "reviews.jsonl",
)  # fmt: skip
"""Append-only files; at the end of each step they are recorded up to their current length."""
CLOSED = ("events.jsonl", "trace.jsonl", "spending.jsonl", "ledger.jsonl")
"""Journals to which nothing is added once the run has ended; comments and the log go on."""
MANIFEST = "manifest.json"
CHECKPOINTS = "checkpoints.sqlite"
TRANSIENT = (NAME, "run.lock", "pause", f"{CHECKPOINTS}-wal", f"{CHECKPOINTS}-shm")
"""Files that say nothing of a run: who works on it now, and SQLite's own."""
RECORDED = ("outputs", "hypotheses")
"""Folders with recorded files, in addition to the pages, the manifest and the journals."""
PAGES = ("results.json", "report.html", "report.md", "ro-crate-metadata.json")
"""Files that the last step writes for people and other programs."""

Snapshot = dict[str, tuple[int, int, int]]
Digest = Callable[[bool], str]
"""Hash of a manifest, given whether its run is recorded whole."""


@dataclass
class _Chain:
    """Content of the record: each file's latest hash, unfinished nodes, and the chain's head."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    manifests: set[str] = field(default_factory=set)
    whole: bool = False
    open: set[str] = field(default_factory=set)
    heads: list[str] = field(default_factory=lambda: [""])


class Record:
    """The record of a run folder.

    Parameters
    ----------
    manifest_digest : computes the hash of the manifest, given whether the run is recorded whole
    """

    def __init__(self, root: Path, manifest_digest: Digest) -> None:
        self.root = root
        self.path = root / NAME
        self._manifest = manifest_digest
        self._lock = threading.Lock()

    def exists(self) -> bool:
        """Check whether the folder has a record."""
        return self.path.is_file()

    def snapshot(self, *, whole: bool = False) -> Snapshot:
        """Return the current size, change time and inode of the recorded files, or of all files.

        Unlike the modification time, the change time cannot be set back.
        """
        found = {}
        for path in self._all() if whole else self._files():
            stat = path.stat()
            found[self._name(path)] = (stat.st_size, stat.st_ctime_ns, stat.st_ino)
        return found

    def begin(self, node: str) -> Snapshot:
        """Record the start of a node; subsequent changes are attributed to it.

        If the node was interrupted before, it takes over the files it left behind, and every file
        counts as changed.
        """
        with self._lock:
            chain = self._load()
            again = node in chain.open
            self._append(chain, [{"begin": node}])
        return {} if again else self.snapshot()

    def end(self, node: str, before: Snapshot) -> None:
        """Record a node's end, its changes since `before`, and all files not yet recorded."""
        with self._lock:
            chain = self._load()
            self._append(chain, [*self._changes(chain, before), {"end": node}])

    def seal(self, before: Snapshot | None = None) -> None:
        """Record every unrecorded file and, if `before` is given, all changes since then."""
        with self._lock:
            chain = self._load()
            self._append(chain, self._changes(chain, self.snapshot() if before is None else before))

    def accept_mended(self) -> None:
        """Record the last attempts' programs in their current form, after a person's fixes."""
        now = self.snapshot()
        programs = _last_programs(now)
        self.seal({name: state for name, state in now.items() if name not in programs})

    def seal_manifest(self, digest: Digest | None = None) -> None:
        """Record the hash of a manifest that is about to be written, or of the present one."""
        with self._lock:
            chain = self._load()
            line = {"path": MANIFEST, "sha256": (digest or self._manifest)(chain.whole)}
            self._append(chain, [line] if line["sha256"] not in chain.manifests else [])

    def seal_whole(self) -> None:
        """Record every file of a run that ended."""
        with self._lock:
            chain = self._load()
            left = [path for path in self._all() if self._name(path) not in (*JOURNALS, MANIFEST)]
            lines = self._changes(chain, self.snapshot(), left)
            self._append(chain, [*lines, {"whole": True}])

    def check_manifest(self, digest: Digest) -> None:
        """Refuse a manifest that the run never had.

        Raises
        ------
        InputError
            If the manifest is not as SAGE wrote it, or the record was lost or changed.
        """
        self._require()
        stat = self.path.stat()
        known, whole = _manifests(self.root, stat.st_size, stat.st_ctime_ns, stat.st_ino)
        if digest(whole) not in known:
            raise InputError(
                f"{self.root / MANIFEST} was changed after the run wrote it (hash does not match"
                f" {NAME}). Restore it from a backup"
            )

    def head(self) -> str:
        """Return the last hash of the chain, which covers everything before it."""
        return self._load().heads[-1]

    def verify(
        self, sealed: str, *, under_way: bool = False, mended: bool = False, pages: bool = True
    ) -> None:
        """Reject a folder that is not as the run left it.

        Parameters
        ----------
        sealed : a hash that was once the head of the chain
        under_way : the run is about to continue, so an interrupted step may have started to
            rewrite its own files
        mended : a person was asked to change the program of a hypothesis's last attempt
        pages : also check `PAGES`; otherwise they are about to be rewritten

        Raises
        ------
        InputError
            If a file was changed, lost or added; the message names the first such file.
        """
        self._require()
        chain = self._load()
        if MANIFEST not in chain.files or sealed not in chain.heads:
            raise InputError(
                f"{self.path} is missing lines, or {MANIFEST} in the same folder was changed; "
                "restore them from a backup"
            )
        remedy = "Restore it from a backup"
        if chain.open:
            remedy += ", or `sage resume` the step that was interrupted"
        programs = _last_programs(chain.files) if mended else ()
        for name, entry in chain.files.items():
            path = self.root / name
            if under_way and any(_writes(node, name) for node in chain.open):
                continue
            if name in programs or (name in PAGES and not pages):
                continue
            if not path.is_file():
                raise InputError(f"{path} not found, although the run wrote it. {remedy}")
            end = None if chain.whole and name in CLOSED else entry.get("bytes")
            changed = (
                self._manifest(chain.whole) not in chain.manifests
                if name == MANIFEST
                else _hash(path, end) != entry["sha256"]
            )
            if changed:
                raise InputError(
                    f"{path} was changed after the run wrote it (hash does not match"
                    f" {NAME}). {remedy}"
                )
        if chain.open:
            return  # an unfinished node may leave files not yet recorded
        journals = (self.root / name for name in CLOSED if chain.whole)
        for path in (*self._files(), *filter(Path.is_file, journals)):
            if self._name(path) not in chain.files:
                raise InputError(f"{path} was not written by a step of the run. Remove it")

    def _require(self) -> None:
        if not self.exists():
            raise InputError(
                f"{self.path} not found, so the integrity of the run's files cannot be verified; "
                "restore it from a backup"
            )

    def _all(self) -> Iterator[Path]:
        """Yield every file that says something of the run."""
        for path in sorted(self.root.rglob("*")):
            if path.name not in TRANSIENT and _is_whole(path):
                yield path

    def _files(self) -> Iterator[Path]:
        yield from (path for name in PAGES if (path := self.root / name).is_file())
        for folder in RECORDED:
            yield from filter(_is_whole, sorted((self.root / folder).rglob("*")))

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _changes(
        self, chain: _Chain, before: Snapshot, more: Iterable[Path] = ()
    ) -> list[dict[str, Any]]:
        """Compose the lines of what changed since `before`, of `more`, and of the journals."""
        lines: list[dict[str, Any]] = []
        now = self.snapshot()
        changed = {
            *(name for name in now if name not in chain.files or before.get(name) != now[name]),
            *(name for name in chain.files if self._is_late(name)),
            *map(self._name, more),
        }
        for name in sorted(changed):
            digest = _hash(self.root / name)
            if chain.files.get(name, {}).get("sha256") != digest:
                lines.append({"path": name, "sha256": digest})
        for name in JOURNALS:
            if (self.root / name).is_file():
                size = (self.root / name).stat().st_size
                digest = _hash(self.root / name, size)
                lines.append({"path": name, "sha256": digest, "bytes": size})
        return lines

    def _is_late(self, name: str) -> bool:
        """Check whether a file is recorded at the end of the run only."""
        first = name.partition("/")[0]
        return (
            first not in (*RECORDED, *PAGES, *JOURNALS, MANIFEST) and (self.root / name).is_file()
        )

    def _append(self, chain: _Chain, lines: list[dict[str, Any]]) -> None:
        if not lines:
            return
        written, head = [], chain.heads[-1]
        for line in lines:
            head = _link(head, line)
            written.append(json.dumps({**line, "chain": head}, sort_keys=True) + "\n")
        with naming(self.path), self.path.open("a+b") as file:
            _drop_torn_line(file)
            file.write("".join(written).encode())
            file.flush()
            os.fsync(file.fileno())

    def _load(self) -> _Chain:
        chain = _Chain()
        if not self.exists():
            return chain
        whole, _, _torn = self.path.read_bytes().rpartition(b"\n")
        for number, text in enumerate(whole.splitlines(), 1):
            try:
                line = json.loads(text)
                head = line.pop("chain")
            except (ValueError, KeyError, TypeError, AttributeError):
                line, head = {}, ""
            if head != _link(chain.heads[-1], line):
                raise InputError(
                    f"{self.path}, line {number}: the chain is broken, so the record was changed."
                    " Restore it from a backup"
                )
            chain.heads.append(head)
            if "path" in line:
                chain.files[line["path"]] = line
                if line["path"] == MANIFEST:
                    chain.manifests.add(line["sha256"])
            elif "whole" in line:
                chain.whole = True
            elif "begin" in line:
                chain.open.add(line["begin"])
            elif "end" in line:
                chain.open.discard(line["end"])
        return chain


def _writes(node: str, name: str) -> bool:
    """Check whether a node writes this file, either for its hypothesis or for the whole run."""
    step, _, hypothesis = node.partition(" ")
    if hypothesis:
        of_hypothesis = rf"hypotheses/{hypothesis}/.*|outputs/.*-{hypothesis}(-.*)?\.json"
        return re.fullmatch(of_hypothesis, name) is not None
    if name in PAGES:
        return True
    if step in ("judge", "report"):
        return name.startswith("hypotheses/")
    return name.startswith("outputs/")


def _last_programs(names: Iterable[str]) -> set[str]:
    """Select the program of each hypothesis's last attempt from a list of file names."""
    last: dict[str, int] = {}
    for name in names:
        if found := re.fullmatch(r"(hypotheses/[^/]+/results/attempt-)(\d+)/analysis\.py", name):
            last[found[1]] = max(last.get(found[1], 0), int(found[2]))
    return {f"{attempts}{number}/analysis.py" for attempts, number in last.items()}


def _link(head: str, line: dict[str, Any]) -> str:
    return hashlib.sha256(f"{head}{json.dumps(line, sort_keys=True)}".encode()).hexdigest()


@lru_cache(maxsize=1024)
def _manifests(root: Path, *_version: int) -> tuple[frozenset[str], bool]:
    """Return the hashes of manifests in a run's record, and whether it was recorded whole."""
    chain = Record(root, str)._load()
    return frozenset(chain.manifests), chain.whole


def _is_whole(path: Path) -> bool:
    """Check whether a path is a file, not a link or one that is still being written."""
    return not path.name.startswith(".") and not path.is_symlink() and path.is_file()


def _hash(path: Path, size: int | None = None) -> str:
    """Compute the SHA-256 of a file, of its first `size` bytes, or of the rows of checkpoints.

    Opening or copying a database changes bytes that hold no row.
    """
    if path.name == CHECKPOINTS:
        alone = not path.with_name(f"{path.name}-wal").exists()
        place = f"{path.resolve().as_uri()}?{'immutable=1' if alone else 'mode=ro'}"
        found = hashlib.sha256()
        try:
            with closing(sqlite3.connect(place, uri=True)) as database:
                for line in database.iterdump():
                    found.update(line.encode())
        except sqlite3.DatabaseError as error:
            return f"unreadable: {error}"
        return found.hexdigest()
    with path.open("rb") as file:
        if size is not None:
            return hashlib.sha256(file.read(size)).hexdigest()
        return hashlib.file_digest(file, "sha256").hexdigest()


def _drop_torn_line(file: Any) -> None:
    """Remove a line left incomplete by a kill, so that the next entry starts a new line."""
    file.seek(0)
    content = file.read()
    if content and not content.endswith(b"\n"):
        file.truncate(content.rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)
