"""Cache of results keyed by tool version, arguments and input content.

An entry is identified by its inputs, never by place or time. The key contains the tool,
its version, its arguments with each input path replaced by the SHA-256 of its content and
its file name (never its folder), and the tool's own fingerprint (for example, which
weights it would use). Files that a tool read beyond its arguments are recorded with the
entry and compared again on every hit. Outputs are stored by content and copied back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mimetypes
import os
import shutil
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mcp_servers.context import ToolContext
from mcp_servers.spec import Output, ToolRun, ToolSpec, map_texts
from sage.core import clock
from sage.core.errors import InputError
from sage.core.files import write_bytes
from sage.core.hashes import hash_file, hash_text
from sage.core.log import logger

log = logger(__name__)

CHUNK = 1 << 20
FORMAT = 1
"""Version of the cache layout, included in every key so that old layouts are not misread."""
RACY_SECONDS = 2.0
"""Age in seconds below which a file might change again with the same time stamp."""


def hash_input(path: Path, index: HashIndex | None = None) -> str:
    """Compute the SHA-256 of a file, or of the sorted names and contents in a folder.

    For a link in a folder, its name and target are hashed.
    """
    hashed = hash_file if index is None else index.hash
    digest = hashlib.sha256()
    if path.is_file():
        beside = companion(path)
        if beside is None:
            return hashed(path)
        digest.update(hashed(path).encode())
        path = beside
    for item in sorted(path.rglob("*")):
        name = item.relative_to(path).as_posix().encode() + b"\0"
        if item.is_symlink():
            digest.update(name + b"-> " + os.fsencode(item.readlink()) + b"\0")
        elif item.is_file():
            digest.update(name)
            digest.update(hashed(item).encode())
    return digest.hexdigest()


def companion(path: Path) -> Path | None:
    """Return the folder with the other files of a slide whose own file is an index, or None."""
    suffix = path.suffix.lower()
    if suffix == ".mrxs" and path.with_suffix("").is_dir():
        return path.with_suffix("")
    return path.parent if suffix in (".vms", ".vmu") else None


def describe_output(root: Path, name: str) -> Output:
    """Describe an output file or folder below `root` by size, hash and type."""
    path = root / name
    if path.is_dir():
        size = sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
        return Output(name=name, bytes=size, sha256=hash_input(path), mime="inode/directory")
    return Output(
        name=name, bytes=path.stat().st_size, sha256=hash_file(path), mime=mime_type(name)
    )


def mime_type(name: str) -> str:
    """Return the MIME type for a suffix; the types of SAGE's own files are always known."""
    ours = {".geojson": "application/geo+json", ".h5": "application/x-hdf5", ".csv": "text/csv"}
    suffix = Path(name).suffix.lower()
    return ours.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


class HashIndex:
    """Index of file hashes, valid while a file's size, time stamp and inode are unchanged.

    Slides can be gigabytes, so hashing takes seconds but a lookup is instant.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as base:
            base.execute(
                "CREATE TABLE IF NOT EXISTS hashes"
                " (path TEXT PRIMARY KEY, size INT, mtime_ns INT, inode INT, sha256 TEXT)"
            )

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        base = sqlite3.connect(self.path, timeout=30)
        try:
            with base:
                yield base
        finally:
            base.close()

    def hash(self, path: Path) -> str:
        """Return the SHA-256 of a file's content, from the index if the file is unchanged."""
        seen = path.stat()
        stamp = (seen.st_size, seen.st_mtime_ns, seen.st_ino)
        with self._open() as base:
            row = base.execute(
                "SELECT size, mtime_ns, inode, sha256 FROM hashes WHERE path = ?", (str(path),)
            ).fetchone()
        if row is not None and tuple(row[:3]) == stamp:
            return str(row[3])
        found = hash_file(path)
        if clock.seconds() - seen.st_mtime > RACY_SECONDS:
            with self._open() as base:
                base.execute(
                    "INSERT OR REPLACE INTO hashes VALUES (?, ?, ?, ?, ?)",
                    (str(path), *stamp, found),
                )
        return found


class ResultsCache:
    """Result cache in a folder: `results/KEY.json`, with outputs by content in `blobs/`.

    Several processes can share it: entries are written completely, then renamed, and never
    changed. An entry that cannot be read, or whose outputs changed, counts as absent.
    """

    max_output, max_total = 512 << 20, 20 << 30
    """Maximum size of a single result's outputs and of the whole cache, in bytes."""

    def __init__(self, folder: str | Path) -> None:
        """Create a cache below `folder`."""
        self.folder = Path(folder).expanduser().resolve()
        (self.folder / "results").mkdir(parents=True, exist_ok=True)
        (self.folder / "blobs").mkdir(exist_ok=True)
        self.index = HashIndex(self.folder / "hashes.sqlite")
        self._stored = 0

    def key(self, spec: ToolSpec, given: BaseModel, context: ToolContext) -> str:
        """Compute the entry's name: the SHA-256 of everything that determines the result.

        Raises `InputError` if an input path is not allowed or does not exist.
        """
        arguments = given.model_dump(mode="json")
        for name in spec.path_fields():
            arguments[name] = map_texts(arguments[name], partial(self._describe_input, context))
        identity = {
            "format": FORMAT,
            "tool": spec.name,
            "version": spec.version,
            "source": spec.source if spec.source.startswith("sage_user_tools.") else "",
            "fingerprint": spec.fingerprint(given) if spec.fingerprint else "",
            "arguments": arguments,
        }
        text = json.dumps(identity, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hash_text(text)

    def _describe_input(self, context: ToolContext, given: str) -> dict[str, str]:
        path = context.roots.input(given)
        # Tools name their outputs, and the slide in their result, after the file.
        return {"sha256": hash_input(path, self.index), "name": path.name}

    def find(self, spec: ToolSpec, given: BaseModel, context: ToolContext) -> ToolRun | None:
        """Find a result for the same tool version, arguments and input content, or None.

        Its outputs are copied into the context's output folder.
        """
        entry = self._read_entry(self.key(spec, given, context))
        if entry is None:
            return None
        run = ToolRun.model_validate(entry["run"])
        for path, expected in entry["extra"].items():
            try:
                current = hash_input(context.roots.input(path), self.index)
            except InputError:  # gone, or no longer allowed
                return None
            if current != expected:
                return None
        if not all(self._restore(output, context) for output in run.outputs):
            return None
        inputs = {}
        for path in list_paths(spec, given):
            resolved = context.input(path)
            inputs[str(resolved)] = hash_input(resolved, self.index)
        inputs.update(entry["extra"])
        provenance = run.provenance.model_copy(
            update={"cached": True, "inputs": inputs, "arguments": given.model_dump(mode="json")}
        )
        return run.model_copy(update={"provenance": provenance})

    def _read_entry(self, key: str) -> dict[str, Any] | None:
        path = self.folder / "results" / f"{key}.json"
        try:
            entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.failed("cached result unreadable; computed again", error, path=path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # recently used, so pruned last
        return entry

    def _restore(self, output: Output, context: ToolContext) -> bool:
        blob = self.folder / "blobs" / output.sha256
        present = context.roots.write_path(output.name)
        if present.is_file() and hash_file(present) == output.sha256:
            context.output(output.name)
            return True
        if not blob.is_file() or hash_file(blob) != output.sha256:
            return False
        with context.writing(output.name) as target:
            shutil.copyfile(blob, target)
        return True

    def store(self, spec: ToolSpec, given: BaseModel, context: ToolContext, run: ToolRun) -> None:
        """Store a result, unless its outputs include folders or are very large."""
        if sum(output.bytes for output in run.outputs) > self.max_output:
            return
        if any(output.mime == "inode/directory" for output in run.outputs):
            return
        for output in run.outputs:
            blob = self.folder / "blobs" / output.sha256
            if not blob.is_file():
                write_bytes(blob, (context.roots.output / output.name).read_bytes(), durable=False)
        named = {str(context.roots.input(path)) for path in list_paths(spec, given)}
        extra = {path: sha for path, sha in run.provenance.inputs.items() if path not in named}
        entry = {"run": run.model_dump(mode="json"), "extra": extra}
        name = f"{self.key(spec, given, context)}.json"
        write_bytes(self.folder / "results" / name, json.dumps(entry).encode(), durable=False)
        self._stored += 1
        if self._stored % 100 == 0:
            self.prune()

    def prune(self) -> int:
        """Remove the least recently used files beyond the size limit; return the number removed.

        A result whose blob was removed is computed again.
        """
        held = sorted(
            ((blob.stat().st_mtime, blob.stat().st_size, blob) for blob in self._find_files()),
            key=lambda item: item[0],
        )
        total = sum(size for _, size, _ in held)
        removed = 0
        for _, size, path in held:
            if total <= self.max_total:
                break
            path.unlink(missing_ok=True)
            total -= size
            removed += 1
        return removed

    def _find_files(self) -> Iterator[Path]:
        for name in ("results", "blobs"):
            yield from (path for path in (self.folder / name).iterdir() if path.is_file())


def list_paths(spec: ToolSpec, given: BaseModel) -> list[str]:
    """List the input paths among a call's arguments."""
    found: list[str] = []
    arguments = given.model_dump(mode="json")
    for name in spec.path_fields():
        map_texts(arguments[name], found.append)
    return found
