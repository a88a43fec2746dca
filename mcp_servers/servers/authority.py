"""The host and port that Host and Origin headers name.

Names are parsed and compared whole, host with host and port with port, so that no prefix, no user
part and no odd spelling passes for another name.
"""

from __future__ import annotations

import ipaddress
import re

Authority = tuple[str, int | None]
"""A host in lower case and its port, None where none is given."""

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::([0-9]{1,5}))?")
_ORIGIN = re.compile(r"(https?)://(.+)")
DEFAULT_PORTS = {"http": 80, "https": 443}


def parse_authority(text: str) -> Authority | None:
    """`host`, `host:port` or `[IPv6]:port` in parts; None for anything else."""
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
    """Host and port of an http or https origin, the scheme's port where none is given."""
    found = _ORIGIN.fullmatch(text)
    authority = parse_authority(found.group(2)) if found else None
    if found is None or authority is None:
        return None
    return authority[0], authority[1] or DEFAULT_PORTS[found.group(1)]
