"""MCP content of tool runs: an envelope with its schema, images, and links to files."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import mcp_types as types

from mcp_servers.context import ToolContext
from mcp_servers.describe import describe_limits, describe_validity
from mcp_servers.results_cache import describe_output
from mcp_servers.roots import Roots
from mcp_servers.servers.options import Limits
from mcp_servers.spec import Output, ToolRun, ToolSpec, map_texts

SCHEME = "sage://output/"
"""URI prefix of resources, which name files below the server's output folder."""

PREVIEW = 1024
"""Longest side of a preview image, in pixels."""
STATES = ["queued", "running", "done", "failed", "cancelled"]


def envelope_schema(result: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON schema of a call's envelope: the job's state, and the result once finished.

    `result` is the schema of the tool's own result; None allows any object.
    """
    inner = dict(result) if result is not None else {"type": "object"}
    definitions = inner.pop("$defs", None)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "state": {"type": "string", "enum": STATES},
            "job": {"type": "string", "description": "Handle for job_status, job_result"},
            "fraction": {"type": "number", "description": "How far the job is, 0 to 1"},
            "message": {"type": "string"},
            "result": {"anyOf": [inner, {"type": "null"}]},
            "files": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": {"type": "string", "description": "Usable as input of other tools"},
                        "uri": {"type": "string"},
                        "mime": {"type": "string"},
                        "bytes": {"type": "integer"},
                        "sha256": {"type": "string"},
                    },
                    "required": ["path", "uri", "mime", "bytes", "sha256"],
                },
            },
            "provenance": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        },
        "required": ["state", "job", "fraction", "message", "result", "files", "provenance"],
    }
    if definitions:
        schema["$defs"] = definitions
    return schema


def strip_titles(schema: Any) -> Any:
    """Remove titles from a schema, since they only repeat field names."""
    if isinstance(schema, list):
        return [strip_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: strip_titles(item)
        for key, item in schema.items()
        if not (key == "title" and isinstance(item, str))
    }


def describe(spec: ToolSpec) -> types.Tool:
    """Describe a tool for MCP clients."""
    limits = describe_limits(spec)
    lines = [spec.summary, f"{limits[:1].upper()}{limits[1:]}.", *describe_validity(spec)]
    card = spec.validity.model_dump(exclude_none=True) if spec.validity else None
    return types.Tool(
        name=spec.name,
        title=spec.title,
        description="\n".join(lines),
        input_schema={"type": "object", "properties": {}, **strip_titles(spec.input_schema)},
        output_schema=envelope_schema(strip_titles(spec.output_schema)),
        annotations=types.ToolAnnotations(
            read_only_hint=spec.read_only,
            destructive_hint=False,
            idempotent_hint=spec.cacheable,
            open_world_hint=False,
        ),
        _meta={
            "sage/suite": spec.suite,
            "sage/version": spec.version,
            "sage/resources": spec.resources.model_dump(),
            "sage/validity": card,
        },
    )


def make_link(path: str, output: Output) -> dict[str, Any]:
    """Make a resource link to a file below the output folder."""
    return {"path": path, "uri": SCHEME + quote(path), **output.model_dump(exclude={"name"})}


def make_envelope(status: dict[str, Any], run: ToolRun | None, prefix: str) -> dict[str, Any]:
    """Make a call's structured content; `prefix` is the job's folder within the output folder."""
    files = []
    result: Any = None
    if run is not None:
        names = {output.name: f"{prefix}/{output.name}" for output in run.outputs}
        folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
        # A folder name with a single part could also be a word in the result.
        moved = {folder: f"{prefix}/{folder}" for folder in folders if "/" in folder}
        places = moved | names
        result = map_texts(run.result, lambda text: places.get(text, text))
        files = [make_link(names[output.name], output) for output in run.outputs]
    return {
        **{key: status[key] for key in ("state", "job", "fraction", "message")},
        "result": result,
        "files": files,
        "provenance": run.provenance.model_dump(mode="json") if run is not None else None,
    }


def make_blocks(
    structured: dict[str, Any], output: Path, bounds: Limits
) -> tuple[list[types.ContentBlock], dict[str, Any]]:
    """Make an envelope's content blocks: its JSON, images, and links to files.

    A result above the size limit is written to a file, which the envelope names.
    """
    text = json.dumps(structured, ensure_ascii=False)
    if len(text.encode()) > bounds.result:
        structured = spill_to_file(structured, text, output, bounds)
        text = json.dumps(structured, ensure_ascii=False)
    blocks: list[types.ContentBlock] = [types.TextContent(text=text)]
    shown = 0
    for file in structured["files"]:
        if file["mime"].startswith("image/") and shown < bounds.images:
            picture = load_image(output / file["path"], file["mime"], bounds.image)
            if picture is not None:
                blocks.append(picture)
                shown += 1
    blocks.extend(
        types.ResourceLink(
            uri=file["uri"], name=file["path"], mime_type=file["mime"], size=file["bytes"]
        )
        for file in structured["files"][:50]
        if file["mime"] != "inode/directory"
    )
    return blocks, structured


def load_image(path: Path, mime: str, most: int) -> types.ImageContent | None:
    """Load an image as content, downsized to JPEG if the file has more than `most` bytes.

    Returns None if the file is missing or not an image; its link remains.
    """
    if not path.is_file():
        return None
    if path.stat().st_size <= most:
        return types.ImageContent(data=base64.b64encode(path.read_bytes()).decode(), mime_type=mime)

    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            small = opened.convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError):
        return None
    small.thumbnail((PREVIEW, PREVIEW))
    held = io.BytesIO()
    small.save(held, "JPEG", quality=85)
    data = base64.b64encode(held.getvalue()).decode()
    return types.ImageContent(data=data, mime_type="image/jpeg")


def spill_to_file(
    structured: dict[str, Any], text: str, output: Path, bounds: Limits
) -> dict[str, Any]:
    """Write the envelope (`text`, as JSON) to a file below `output`; return a short version."""
    name = f"results/{structured['job']}.json"
    with ToolContext(Roots((), output)).writing(name) as path:
        path.write_text(text, encoding="utf-8")
    return {
        **structured,
        "result": None,
        "message": (
            f"the result has {len(text.encode())} bytes, more than {bounds.result}; it is in {name}"
        ),
        "files": [make_link(name, describe_output(output, name)), *structured["files"][:100]],
        "provenance": None,
    }
