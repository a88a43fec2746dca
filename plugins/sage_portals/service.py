"""Public API from which cohorts are fetched: its address and retry policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sage.core.errors import FaultError
from sage.core.http.client import BlockingClient, Limit, Policy, Request
from sage.core.http.errors import ServiceError, SourceChanged

T = TypeVar("T")

LIMIT = Limit(10, 1.0)
"""Request rate, low enough for both services, neither of which publishes a limit."""


def policy(pause: float) -> Policy:
    """Build a patient retry policy for whole tables and files; `pause` limits the first wait."""
    return Policy(
        attempts=5, deadline=900.0, attempt=180.0, connect=60.0, backoff=pause,
        backoff_max=16 * pause, longest_wait=120.0, max_bytes=1 << 30,
    )  # fmt: skip


@dataclass
class Service:
    """A web API client; several can share an HTTP client."""

    name: str
    base: str
    client: BlockingClient

    def call(
        self,
        method: str,
        path: str,
        read: Callable[[bytes], T],
        *,
        params: Mapping[str, str | int] | None = None,
        body: Any = None,
    ) -> T:
        """Send a request to the service and parse the response with `read`.

        Raises
        ------
        FaultError
            If the service cannot be reached, stays busy, or refuses.
        """
        url = f"{self.base.rstrip('/')}/{path.lstrip('/')}"
        request = Request(self.name, LIMIT, url, params or {}, method, json=body)
        try:
            return self.client.fetch(request, read)
        except SourceChanged:
            raise FaultError(f"{self.name}: {path} did not return JSON") from None
        except ServiceError as error:
            raise FaultError(
                f"{self.name} ({url}): {error.reason}. Fetched data is kept; run the command again "
                "to continue"
            ) from None

    def json(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None = None,
        body: Any = None,
    ) -> Any:
        """Return a response's JSON.

        Raises
        ------
        FaultError
            If the service cannot be reached, refuses, or does not return JSON.
        """
        return self.call(method, path, json.loads, params=params, body=body)


def field_of(value: Any, name: str, service: str) -> Any:
    """Return a required field from a response; its absence means that the service changed."""
    if not isinstance(value, dict) or name not in value:
        raise FaultError(f'{service} has changed: the field "{name}" is missing from its response')
    return value[name]
