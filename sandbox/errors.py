"""Errors of the sandbox package."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input: the message names the file, row or option, and the remedy (exit code 2)."""


class FaultError(RuntimeError):
    """Something outside the user's input failed: disk, network, a dependency (exit code 1)."""
