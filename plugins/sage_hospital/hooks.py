"""Hooks of SAGE's commands and servers (see `sage.core.hooks`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sage.settings import Settings
    from sage.web.people import People
    from sage_hospital.callers import LoggedCallers


def log_command(settings: Settings, what: str, about: object = "", **detail: Any) -> None:
    """Log a command of this machine's user, where a log is kept."""
    from sage.core.hooks import current_owner
    from sage_hospital.audit import open_audit

    with open_audit(settings) as log:
        if log is not None:
            log.add(current_owner(), what, str(about), via="command line", **detail)


def open_people(settings: Settings, header: str, proxies: list[str], roles: Path | None) -> People:
    """Open the people of the pages' server."""
    from sage_hospital.people import open_people
    from sage_hospital.roles import parse_trust

    return open_people(settings, parse_trust(header, proxies, roles))


def open_callers(
    settings: Settings, header: str, proxies: list[str], roles: Path | None
) -> AbstractContextManager[LoggedCallers | None]:
    """Open the callers of the MCP server."""
    from sage_hospital.callers import open_callers
    from sage_hospital.roles import parse_trust

    return open_callers(parse_trust(header, proxies, roles), settings)
