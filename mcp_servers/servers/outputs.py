"""Output files of calls as MCP resources that can be listed, read and pruned."""

from __future__ import annotations

import base64
from collections.abc import Collection
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError

from mcp_servers.results_cache import mime_type
from mcp_servers.roots import Roots
from mcp_servers.servers.content import SCHEME
from mcp_servers.servers.options import Limits
from mcp_servers.servers.prune import prune

RECENT = 200
"""Number of files that `resources/list` returns, most recent first."""
PRUNE_EVERY = 50
"""Number of calls between checks of the size and age of outputs."""


class Outputs:
    """Recent files below an output folder; `removed` counts the pruned call folders."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self.recent: list[dict[str, Any]] = []
        self.removed = 0

    def remember(self, files: list[dict[str, Any]]) -> None:
        """Add a call's files to the front of the recent files."""
        known = {file["uri"] for file in files}
        kept = [row for row in self.recent if row["uri"] not in known]
        fresh = [file for file in files if file["mime"] != "inode/directory"]
        self.recent = [*fresh, *kept][:RECENT]

    def prune(self, calls: int, busy: Collection[Path]) -> None:
        """Remove old outputs every 50 calls, except the folders of waiting and running jobs."""
        if not self.limits.outputs or calls % PRUNE_EVERY:
            return
        found = prune(self.folder, self.limits.outputs, busy)
        self.removed += len(found.removed)
        gone = {f"{folder.parent.name}/{folder.name}/" for folder in found.removed}
        self.recent = [row for row in self.recent
                       if not any(row["path"].startswith(name) for name in gone)]  # fmt: skip

    def list(self) -> types.ListResourcesResult:
        """List recent files, most recent first."""
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=row["uri"], name=row["path"], mime_type=row["mime"], size=row["bytes"]
                )
                for row in self.recent
            ]
        )

    def read(self, uri: str) -> types.ReadResourceResult:
        """Read an output file, as text if possible.

        Raises `MCPError` if the file exceeds the size limit.
        """
        if not uri.startswith(SCHEME):
            raise MCPError(types.INVALID_PARAMS, f"URIs must start with {SCHEME}")
        name = unquote(uri.removeprefix(SCHEME))
        if any(part.startswith(".") for part in name.split("/")):
            raise MCPError(types.INVALID_PARAMS, f'"{name[:100]}" is not an output')
        path = Roots((), self.folder).input(name, "file")
        size = path.stat().st_size
        if size > self.limits.resource:
            raise MCPError(
                types.INVALID_PARAMS,
                f"{name} has {size} bytes, but the maximum is {self.limits.resource}",
            )
        mime, data = mime_type(name), path.read_bytes()
        content: types.TextResourceContents | types.BlobResourceContents
        try:
            if not (mime.startswith("text/") or mime.endswith("json")):
                raise UnicodeDecodeError("utf-8", b"", 0, 1, "binary MIME type")
            content = types.TextResourceContents(uri=uri, mime_type=mime, text=data.decode())
        except UnicodeDecodeError:
            blob = base64.b64encode(data).decode()
            content = types.BlobResourceContents(uri=uri, mime_type=mime, blob=blob)
        return types.ReadResourceResult(contents=[content])


async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
    """List the server's single resource template."""
    template = types.ResourceTemplate(
        uri_template=SCHEME + "{+path}",
        name="output file",
        description="A file in the output folder, as named in a tool's result",
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])
