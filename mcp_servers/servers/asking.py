"""Questions to the client during a call, about a slide's pixel size or the client's roots.

In protocol 2026-07-28, a call ends with `InputRequiredResult` and the client calls again
with the answers; in earlier versions, the server sends its own request while the call
waits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

PIXEL_SIZE = "pixel_size"
ROOTS = "roots"


class InputNeeded(Exception):  # noqa: N818 - not an error
    """The call needs an answer from the client before it can continue."""

    def __init__(self, result: types.InputRequiredResult) -> None:
        super().__init__("input needed")
        self.result = result


async def ask(
    ctx: Any, params: types.CallToolRequestParams, key: str, request: types.InputRequest
) -> Any:
    """Ask the client a question named `key`; return None if the client cannot be asked.

    Raises `InputNeeded` if the answer will come with the next call.
    """
    answers = params.input_responses or {}
    if key in answers:
        return answers[key]
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        raise InputNeeded(types.InputRequiredResult(input_requests={key: request}))
    if not ctx.session.can_send_request:
        return None
    kind = types.ListRootsResult if key == ROOTS else types.ElicitResult
    try:
        return await ctx.session.send_request(request, kind)
    except MCPError:  # it declared support but does not answer
        return None


async def ask_pixel_size(ctx: Any, params: types.CallToolRequestParams, slide: str) -> float | None:
    """Ask the user for a slide's pixel size in µm; return None if there is no answer."""
    able = ctx.session.client_capabilities
    if able is None or able.elicitation is None:
        return None
    request = types.ElicitRequest(
        params=types.ElicitRequestFormParams(
            message=(
                f"{slide} does not state its pixel size. How many µm is a pixel at its finest "
                "level? A 40x scan has about 0.25, a 20x scan about 0.5."
            ),
            requested_schema={
                "type": "object",
                "properties": {
                    "mpp": {
                        "type": "number",
                        "title": "µm per pixel",
                        "description": "Recorded in the result as an override",
                        "minimum": 0.01,
                        "maximum": 100,
                    }
                },
                "required": ["mpp"],
            },
        )
    )
    answer = await ask(ctx, params, PIXEL_SIZE, request)
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        return None
    given = (answer.content or {}).get("mpp")
    return float(given) if isinstance(given, int | float) and not isinstance(given, bool) else None


async def ask_folders(ctx: Any, params: types.CallToolRequestParams) -> list[Path]:
    """Ask the client for its roots, and return those that are existing folders."""
    able = ctx.session.client_capabilities
    if able is None or able.roots is None:
        return []
    answer = await ask(ctx, params, ROOTS, types.ListRootsRequest())
    if not isinstance(answer, types.ListRootsResult):
        return []
    named = [urlsplit(str(root.uri)) for root in answer.roots]
    folders = [Path(unquote(uri.path)) for uri in named if uri.scheme == "file" and not uri.netloc]
    return [folder for folder in folders if folder.is_dir()]
