"""Callers of tools, if a reverse proxy identifies people to an HTTP server.

This package has no knowledge of roles, quotas and logs: the application that opens the server
supplies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mcp_servers.spec import ToolSpec


class Callers(Protocol):
    """Identifies people and decides what they may call."""

    def named(self, scope: Any) -> str | None:
        """Return the person who sent a request, or None if no identity can be trusted."""

    def admit(self, who: str, spec: ToolSpec, arguments: Mapping[str, Any], slides: int) -> Any:
        """Record the call; raise `InputError` if the person may not make it.

        Returns what `refund` takes if the call turns out to be refused.
        """

    def refund(self, admitted: Any) -> None:
        """Record that an admitted call was refused, so that it costs nothing."""

    def admit_reading(self, who: str, exported: str) -> None:
        """Raise `InputError` if the person may not read; record any output that is exported."""
