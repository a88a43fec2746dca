"""Parsing of the host and port in Host and Origin headers.

Names are parsed and compared in full, host with host and port with port, so that no prefix, user
part or odd spelling passes for another name.
"""

from __future__ import annotations

import ipaddress
import re

Authority = tuple[str, int | None]
"""A lowercase host and its port, which is None if not given."""

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")
DEFAULT_PORTS = {"http": 80, "https": 443}


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
