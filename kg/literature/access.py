"""Addresses of the literature services, and the keys of the caller."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from sage.core.models import Strict


def _address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("give an address that begins with https:// or http://")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("give an address without user, password, query or fragment")
    return value.rstrip("/")


Address = Annotated[str, AfterValidator(_address)]


class Access(Strict):
    """Addresses of services (None: the public one; else a mirror's) and keys.

    A key of NCBI raises its rate from 3 to 10 requests a second; OpenAlex answers searches only
    with a key; Semantic Scholar without a key shares a pool that is often exhausted.
    """

    ncbi_key: SecretStr | None = None
    openalex_key: SecretStr | None = None
    semantic_scholar_key: SecretStr | None = None
    pubmed_url: Address | None = None
    europe_pmc_url: Address | None = None
    openalex_url: Address | None = None
    semantic_scholar_url: Address | None = None
    biorxiv_url: Address | None = None

    def key(self, service: str) -> str | None:
        """The key of `ncbi`, `openalex` or `semantic_scholar`, to be sent and never shown."""
        secret: SecretStr | None = getattr(self, f"{service}_key")
        return secret.get_secret_value() if secret is not None else None

    def hosts(self) -> frozenset[str]:
        """Hosts that the user named: they may be in a private network."""
        named = (v for name, v in self if name.endswith("_url") and v is not None)
        return frozenset(host for v in named if (host := urlsplit(v).hostname))
