"""Callers of tools, if a reverse proxy names people to an HTTP server; the application decides.

This package knows nothing of roles, quotas and logs: whoever opens the server hands them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from mcp_servers.spec import ToolSpec

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""The person whose call is being answered; empty where nobody is named."""


class Callers(Protocol):
    """Knows people and what they may call."""

    def named(self, scope: Any) -> str | None:
        """Return the person of a request; None where nobody is believed to be named."""

    def admit(self, who: str, spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
        """Raise `InputError` where the person may not call this; else write the call down."""

    def admit_reading(self, who: str, exported: str) -> None:
        """Raise `InputError` where the person may not read; write down an output that leaves."""
