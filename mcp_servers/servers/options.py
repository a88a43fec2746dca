"""Server limits and network address, and parsing of Host and Origin headers.

Names are parsed and compared in full, host with host and port with port, so that no
prefix, user part or odd spelling passes for another name.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from mcp_servers.servers.prune import Bounds
from sage.core.errors import InputError

Authority = tuple[str, int | None]
"""A lowercase host and its port, or None if no port is given."""

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")
DEFAULT_PORTS = {"http": 80, "https": 443}
KEEP_ALL = Bounds()


@dataclass(frozen=True)
class Limits:
    """Server limits, with sizes in bytes and times in seconds.

    A call that takes longer than `wait` returns a job handle; `wait_with_progress` applies
    instead if the caller asked for progress notifications, each of which resets the caller's
    timeout. A client that supports tasks gets a task after `task_after`. At most `jobs` jobs
    wait or run at a time. Call outputs are pruned according to `outputs`.
    """

    request: int = 1 << 20
    result: int = 256 << 10
    image: int = 1 << 20
    images: int = 4
    resource: int = 32 << 20
    wait: float = 45.0
    wait_with_progress: float = 600.0
    task_after: float = 5.0
    jobs: int = 64
    outputs: Bounds = KEEP_ALL


@dataclass(frozen=True)
class HttpOptions:
    """Address and access options of the HTTP server, which without a token is loopback-only.

    `certificate` and `key` are PEM files; if given, the server accepts only TLS. At most
    `connections` are open at a time; a request's head must arrive within `head_seconds`, and
    its body within `body_seconds`.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    connections: int = 256
    head_seconds: float = 10.0
    body_seconds: float = 60.0

    @property
    def on_loopback(self) -> bool:
        """True if the server is reachable only from this machine."""
        return is_loopback(self.host)

    def check(self) -> None:
        """Raise `InputError` for options that would leave the server open to strangers."""
        if (self.certificate is None) != (self.key is None):
            raise InputError("TLS requires both a certificate and its key")
        if self.token is not None and len(self.token) < 16:
            raise InputError("the token must have at least 16 characters")
        for name in self.allowed_hosts:
            if parse_authority(name.removesuffix(":*")) is None:
                raise InputError(f'allowed host "{name}" must be a host or host:port')
        if self.token is None and not self.on_loopback:
            raise InputError(
                f"host {self.host} is reachable from outside; set a token, or use 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Check whether `host` is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def parse_authority(text: str) -> Authority | None:
    """Parse `host`, `host:port` or `[IPv6]:port`; return None for anything else."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    host, port = found.group(1).lower(), found.group(2)
    if host.startswith("["):
        try:
            host = ipaddress.IPv6Address(host[1:-1]).compressed
        except ValueError:
            return None
    number = None if port is None else int(port)
    return (host, number) if number is None or 0 < number < 65536 else None


def parse_origin(text: str) -> tuple[str, int] | None:
    """Parse the host and port of an http or https origin; the port defaults to the scheme's."""
    found = _ORIGIN.fullmatch(text)
    authority = parse_authority(found.group(2)) if found else None
    if found is None or authority is None:
        return None
    return authority[0], authority[1] or DEFAULT_PORTS[found.group(1)]
