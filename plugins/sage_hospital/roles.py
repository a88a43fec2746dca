"""Roles of people, and the reverse proxies that may name them."""

from __future__ import annotations

import re
import stat
import tomllib
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from sage.core.errors import InputError, explain_validation
from sage.core.models import Strict
from sage.web.people import ALL, Role
from sage_hospital.quotas import Quotas

NAME = re.compile(r"[^\x00-\x1f\x7f]{1,80}")


class Roles(Strict):
    """Roles by person, as the file of `--roles` gives them.

    `default` is for whoever is not listed; without it they are refused. `quotas` hold for each
    person who has none of their own in `quotas_of`.
    """

    default: tuple[Role, ...] = ()
    people: dict[str, tuple[Role, ...]] = Field(default_factory=dict)
    quotas: Quotas = Quotas()
    quotas_of: dict[str, Quotas] = Field(default_factory=dict)

    @field_validator("default", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("people", mode="before")
    @classmethod
    def _of_everybody(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {who: [role] if isinstance(role, str) else role for who, role in value.items()}

    def roles_of(self, who: str) -> frozenset[Role]:
        """Roles of a person; none where they are not listed and there is no default."""
        return frozenset(self.people.get(who, self.default))


def read_roles(path: Path) -> Roles:
    """The roles of a TOML file.

    Raises
    ------
    InputError
        If it cannot be read, anybody may write it, or it names a role that there is not.
    """
    try:
        if path.stat().st_mode & stat.S_IWOTH:
            raise InputError(f"--roles {path}: anybody can write roles into it: chmod o-w it")
        return Roles.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"--roles {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"--roles {path}: no TOML: {error}") from None
    except ValidationError as error:
        raise InputError(
            f"--roles {path}: {explain_validation(error)}; roles are {', '.join(Role)}"
        ) from None


@dataclass(frozen=True)
class Trust:
    """Who may name people, and how.

    Parameters
    ----------
    header : in which the proxy names the person
    proxies : addresses that are believed
    roles : what people may do; None for everything
    """

    header: str
    proxies: tuple[IPv4Network | IPv6Network, ...]
    roles: Roles | None = None

    def named(self, scope: Any) -> str | None:
        """The person that a proxy names once; None where nobody is believed to be named."""
        try:
            peer = ip_address(scope["client"][0])
        except (TypeError, ValueError):
            return None
        if not any(peer in network for network in self.proxies):
            return None
        wanted = self.header.lower().encode("latin-1")
        values = [value for name, value in scope["headers"] if name.lower() == wanted]
        if len(values) != 1:
            return None
        try:
            who = values[0].decode("utf-8").strip()
        except UnicodeDecodeError:
            return None
        return who if NAME.fullmatch(who) else None

    def roles_of(self, who: str) -> frozenset[Role]:
        """Roles of a person."""
        return ALL if self.roles is None else self.roles.roles_of(who)

    def refusal(self, who: str, role: Role) -> str:
        """Why somebody may not do what needs a role; empty where they may."""
        held = self.roles_of(who)
        if not held:
            return f"{who} has no role here; whoever administers this server gives one"
        if role not in held and not (role is Role.READ or Role.ADMINISTER in held):
            return f'this needs the role "{role}"; {who} has: {", ".join(sorted(held))}'
        return ""

    def quotas(self, who: str) -> Quotas:
        """What somebody may use."""
        return Quotas() if self.roles is None else self.roles.quotas_of.get(who, self.roles.quotas)


def parse_trust(header: str, proxies: list[str], roles: Path | None) -> Trust | None:
    """What the options of `sage serve` say; None where people name themselves.

    Raises
    ------
    InputError
        If one option needs another, or an address is none.
    """
    if not header:
        if proxies or roles:
            raise InputError(
                "--trust-proxy and --roles need --trust-header: without it nobody is named"
            )
        return None
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", header):
        raise InputError(f"--trust-header {header[:80]!r} is no name of a header")
    try:
        networks = tuple(ip_network(text) for text in proxies or ["127.0.0.1", "::1"])
    except ValueError as error:
        raise InputError(
            f"--trust-proxy: {error}; give an address, or a network like 10.0.0.0/8"
        ) from None
    return Trust(header, networks, read_roles(roles) if roles else None)
