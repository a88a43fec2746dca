"""Errors that users see as one line and an exit code, whichever package raises them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sage.core.printable import one_line

if TYPE_CHECKING:
    from pydantic import ValidationError


class SageError(Exception):
    """An error whose message the command line reports before it exits with `exit_code`."""

    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        """Return the message on one line, even if it repeats text from outside."""
        return one_line(super().__str__())


class InputError(SageError, ValueError):
    """Invalid input; the message gives the file, row or option and the remedy (exit code 2)."""

    exit_code = 2


class FaultError(SageError, RuntimeError):
    """A failure of the disk, the network or a dependency, not of the user's input (exit code 1)."""


class Paused(Exception):  # noqa: N818 - not an error
    """A signal that somebody asked the run to pause before its next step."""


class Cancelled(Exception):  # noqa: N818 - not an error
    """A signal that the caller canceled the job, which is not an error."""


def explain_validation(error: ValidationError, *, limit: int = 1) -> str:
    """Describe the first invalid fields as `field.path: problem`, without showing values."""
    rows = error.errors(include_url=False, include_input=False)[:limit]
    return "; ".join(_explain_row(row["loc"], row["msg"]) for row in rows)


def _explain_row(place: tuple[int | str, ...], message: str) -> str:
    field = ".".join(str(part) for part in place)
    problem = message.removeprefix("Value error, ")
    return f"{field}: {problem}" if field else problem
