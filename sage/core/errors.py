"""The errors that a user sees: one line and an exit code, whichever package raises them."""

from __future__ import annotations

from typing import ClassVar


class SageError(Exception):
    """What the command line answers with its message alone; `exit_code` is the command's."""

    exit_code: ClassVar[int] = 1


class InputError(SageError, ValueError):
    """Bad input: the message names the file, row or option, and the remedy (exit code 2)."""

    exit_code = 2


class FaultError(SageError, RuntimeError):
    """Disk, network or a dependency failed, not the user's input (exit code 1)."""


class Paused(Exception):  # noqa: N818 - not an error
    """Somebody asked the run to wait before its next step."""


class Cancelled(Exception):  # noqa: N818 - not an error
    """The caller cancelled the job; no fault of anyone."""
