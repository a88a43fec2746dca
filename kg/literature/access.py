"""Addresses of external services, and the user's API keys."""

from __future__ import annotations

import os
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from sage.core.log import hide
from sage.core.models import Strict


def _address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the address must start with https:// or http://")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("the address must not contain a user, password, query or fragment")
    return value.rstrip("/")


Address = Annotated[str, AfterValidator(_address)]


class Access(Strict):
    """Keys and addresses by service, given as `NAME_key` and `NAME_url`.

    Without an address, the public one is used. A key for NCBI raises its rate from 3 to 10 requests
    per second. Without `NAME_key`, the variable `NAME_API_KEY` common in other programs is used.
    """

    keys: dict[str, SecretStr] = Field(default_factory=dict)
    urls: dict[str, Address] = Field(default_factory=dict)

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
        """Return the key of a service, which may be sent but never displayed."""
        secret = self.keys.get(service)
        value = (
            secret.get_secret_value() if secret else os.environ.get(f"{service}_API_KEY".upper())
        )
        if value:
            hide(value)
        return value or None

    def address(self, service: str) -> str | None:
        """Return the address of a service's mirror, or None for the public service."""
        return self.urls.get(service)

    def hosts(self) -> frozenset[str]:
        """Return the hosts configured by the user, which may be in a private network."""
        return frozenset(host for url in self.urls.values() if (host := urlsplit(url).hostname))
