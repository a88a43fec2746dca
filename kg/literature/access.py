"""Addresses of external services, and the user's API keys."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from sage.core import egress
from sage.core.log import hide
from sage.core.models import Strict


class Access(Strict):
    """Keys and addresses by service, configured as `NAME_key` and `NAME_url`.

    Without an address, the public address is used. A key for NCBI raises its rate from 3 to
    10 requests per second. With `allow_foreign_env`, other programs' `NAME_API_KEY` is also
    used.
    """

    keys: dict[str, SecretStr] = Field(default_factory=dict)
    urls: dict[str, egress.Address] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _sort_fields(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        sorted_: dict[str, Any] = {
            "keys": dict(given.get("keys", {})),
            "urls": dict(given.get("urls", {})),
        }
        for name, value in given.items():
            service, _, kind = name.rpartition("_")
            if kind in ("key", "url") and service:
                if value is not None:
                    sorted_[f"{kind}s"][service] = value
            elif name not in sorted_:
                sorted_[name] = value
        return sorted_

    def key(self, service: str) -> str | None:
        """Return a service's key, which may be sent but never displayed."""
        secret = self.keys.get(service)
        value = (
            secret.get_secret_value() if secret else egress.foreign(f"{service}_API_KEY".upper())
        )
        if value:
            hide(value)
        return value or None

    def address(self, service: str) -> str:
        """Return the address of a service's mirror, or else its public address."""
        return self.urls.get(service) or egress.SERVICES[service]

    def hosts(self) -> frozenset[str]:
        """Return the hosts configured by the user, which may be on a private network."""
        return frozenset(host for url in self.urls.values() if (host := urlsplit(url).hostname))
