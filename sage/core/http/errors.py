"""Errors of remote services. None of these is the user's fault."""

from __future__ import annotations

from sage.core.errors import FaultError


class ServiceError(FaultError):
    """A remote service did not give a usable answer; `reason` is fit for the reader."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(f"{service}: {reason}")
        self.service = service
        self.reason = reason


class Unavailable(ServiceError):  # noqa: N818
    """The service could not be reached, refused, or took too long."""


class OverBudget(Unavailable):
    """The published rate leaves no slot within the caller's patience."""


class SourceChanged(ServiceError):  # noqa: N818
    """The service answered in a form that we do not know; `reason` names the field."""
