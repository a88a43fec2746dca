"""Errors of the validation package."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input: the message names the file, row or option, and the remedy (exit code 2)."""


class FaultError(RuntimeError):
    """Disk, network or a dependency failed, not the user's input (exit code 1)."""
