"""Errors from remote services, none of which is the user's fault."""

from __future__ import annotations

from sage.core.errors import FaultError


class ServiceError(FaultError):
    """A remote service did not give a usable response; `reason` can be shown to the user."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(f"{service}: {reason}")
        self.service = service
        self.reason = reason


class Unavailable(ServiceError):  # noqa: N818
    """The service could not be reached, refused the request, or took too long."""


class OverBudget(Unavailable):
    """The service's published rate limit leaves no slot within the caller's patience."""


class SourceChanged(ServiceError):  # noqa: N818
    """The service responded in an unknown format; `reason` names the field."""
