"""People's roles, and the reverse proxies that may identify people."""

from __future__ import annotations

import re
import stat
import tomllib
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from sage.core.errors import InputError, explain_validation
from sage.core.models import Strict
from sage.web.people import Role
from sage_hospital.quotas import Quotas

NAME = re.compile(r"[^\x00-\x1f\x7f]{1,80}")


class Roles(Strict):
    """Roles and quotas by person, from the `--roles` file.

    `default` applies to people who are not listed; without it, they are rejected. It cannot
    contain `administer`. `quotas` apply to each person without an entry in `quotas_of`.
    """

    default: tuple[Role, ...] = ()
    people: dict[str, tuple[Role, ...]] = Field(default_factory=dict)
    quotas: Quotas = Quotas()
    quotas_of: dict[str, Quotas] = Field(default_factory=dict)

    @field_validator("default", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("people", mode="before")
    @classmethod
    def _as_lists(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {who: [role] if isinstance(role, str) else role for who, role in value.items()}

    @model_validator(mode="after")
    def _name_people(self) -> Self:
        if Role.ADMINISTER in self.default:
            raise ValueError('default: "administer" must be given by name, under [people]')
        for who in self.people:
            if any(mark in who for mark in "*?[") or not NAME.fullmatch(who):
                raise ValueError(f'people: "{who}" is a pattern; name each person, or use default')
        if not (self.default or self.people):
            raise ValueError("nobody has a role; add people, or default")
        return self

    def roles_of(self, who: str) -> frozenset[Role]:
        """Return a person's roles; empty if the person is not listed and there is no default."""
        return frozenset(self.people.get(who, self.default))


def read_roles(path: Path) -> Roles:
    """Read roles from a TOML file.

    Raises
    ------
    InputError
        If the file cannot be read or is world-writable, or if a role is unknown.
    """
    try:
        if path.stat().st_mode & stat.S_IWOTH:
            raise InputError(f"--roles {path}: world-writable; run chmod o-w")
        return Roles.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"--roles {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"--roles {path}: not valid TOML: {error}") from None
    except ValidationError as error:
        raise InputError(
            f"--roles {path}: {explain_validation(error)}; valid roles are {', '.join(Role)}"
        ) from None


@dataclass(frozen=True)
class Trust:
    """Reverse proxies trusted to identify callers, and the roles of each person.

    Parameters
    ----------
    header : name of the header that contains the person's name
    """

    header: str
    proxies: tuple[IPv4Network | IPv6Network, ...]
    roles: Roles

    def named(self, scope: Any) -> str | None:
        """Return the person that a trusted proxy named exactly once, or None."""
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
        """Return a person's roles."""
        return self.roles.roles_of(who)

    def refusal(self, who: str, role: Role) -> str:
        """Explain why a person may not do what `role` permits; empty if they may."""
        held = self.roles_of(who)
        if not held:
            return f"{who} has no role on this server; ask its administrator for one"
        if role not in held and not (role is Role.READ or Role.ADMINISTER in held):
            return f'the role "{role}" is required; {who} has: {", ".join(sorted(held))}'
        return ""

    def quotas(self, who: str) -> Quotas:
        """Return the quotas that apply to a person."""
        return self.roles.quotas_of.get(who, self.roles.quotas)


def parse_trust(header: str, proxies: list[str], roles: Path | None) -> Trust | None:
    """Parse the identity options of `sage serve`; None if people name themselves.

    Raises
    ------
    InputError
        If an option requires another, or an address is invalid.
    """
    if not header:
        if proxies or roles:
            raise InputError(
                "--trust-proxy and --roles require --trust-header, the header that contains "
                "the person's name"
            )
        return None
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", header):
        raise InputError(f"--trust-header {header[:80]!r} is not a header name")
    try:
        networks = tuple(ip_network(text) for text in proxies or ["127.0.0.1", "::1"])
    except ValueError as error:
        raise InputError(
            f"--trust-proxy: {error}; expected an IP address, or a network such as 10.0.0.0/8"
        ) from None
    if wide := [network for network in networks if network.prefixlen == 0]:
        raise InputError(
            f"--trust-proxy {wide[0]} is every address, so that everybody could give any name; "
            "name the proxy's own"
        )
    if roles is None:
        raise InputError(
            "--trust-header requires --roles FILE, which assigns roles to people; to give everyone "
            'all roles but administer, set default = ["read", "run", "review"] in this file'
        )
    return Trust(header, networks, read_roles(roles))
