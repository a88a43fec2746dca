"""Callers of tools, when a reverse proxy identifies users to an HTTP server.

This package has no knowledge of roles, quotas and logs; the application that opens the
server supplies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mcp_servers.spec import ToolSpec


class Callers(Protocol):
    """Interface that identifies users and decides which tools they may call."""

    def named(self, scope: Any) -> str | None:
        """Return the user who sent a request, or None if there is no trusted identity."""

    def admit(self, who: str, spec: ToolSpec, arguments: Mapping[str, Any], slides: int) -> Any:
        """Record a call; raise `InputError` if the user may not make it.

        Returns the argument for `refund`, in case the call is refused later.
        """

    def refund(self, admitted: Any) -> None:
        """Record that an admitted call was refused, so that it is not charged."""

    def admit_reading(self, who: str, exported: str) -> None:
        """Raise `InputError` if the user may not read results; record any exported output."""
