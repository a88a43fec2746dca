"""A public API: its address, and requests that are repeated when it is busy."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sage.core.errors import FaultError

if TYPE_CHECKING:
    import httpx

ATTEMPTS = 5


@dataclass
class Service:
    """One API: its address, and requests that are repeated when the service is busy."""

    name: str
    base: str
    client: httpx.Client
    pause: float = 1.0

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A response with status 200.

        Raises
        ------
        FaultError
            If the service cannot be reached, stays busy, or refuses.
        """
        import httpx

        url = f"{self.base.rstrip('/')}/{path.lstrip('/')}"
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(self.pause * 2 ** (attempt - 1))
            try:
                answer = self.client.request(method, url, **options)
            except httpx.HTTPError as error:
                reason = f"{type(error).__name__}: {error}"
                continue
            if answer.status_code == 200:
                return answer
            reason = f"status {answer.status_code}: {answer.text[:160]}"
            if answer.status_code not in (429, 500, 502, 503, 504):
                break
        raise FaultError(
            f"{self.name} ({url}): {reason}. What was fetched is kept; call again to go on"
        )

    def json(self, method: str, path: str, **options: Any) -> Any:
        """The JSON of a response."""
        answer = self.call(method, path, **options)
        try:
            return answer.json()
        except json.JSONDecodeError:
            raise FaultError(f"{self.name}: {path} did not answer with JSON") from None


def field_of(value: Any, name: str, service: str) -> Any:
    """A field that the answer must have; its absence means the service changed."""
    if not isinstance(value, dict) or name not in value:
        raise FaultError(f'{service} changed: its answer has no field "{name}"')
    return value[name]
