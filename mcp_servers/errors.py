"""Errors of the mcp_servers package."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input: the message names the file, row or option, and the remedy (exit code 2)."""


class FaultError(RuntimeError):
    """Something outside the input failed: disk, network, a dependency (exit code 1)."""


class Cancelled(Exception):  # noqa: N818 - not an error
    """The caller cancelled the job; raised by `ToolContext.check_cancelled`."""
