"""Errors of the knowledge-graph package."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input: the message names the file, row or option, and the remedy (exit code 2)."""


class FaultError(RuntimeError):
    """Not the user's fault: disk, network, a broken dependency (exit code 1)."""
