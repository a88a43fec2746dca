"""Hooks of servers and commands that a plugin may fill: who acts, and the log of what they did.

The entry point group `sage.hooks` names a module with `log_command`, `open_people` (see
`sage.web.people.People`) and `open_callers` (see `mcp_servers.servers.callers.Callers`).
"""

from __future__ import annotations

import getpass
import os
from typing import Any

from sage.core.plugins import load_first
from sage.core.printable import one_line

OWNER = "SAGE_OWNER"
"""Variable that a server sets for the commands it starts: the person a proxy named."""
ASKED, BEGAN, EXPORTED = "asked", "began", "exported"
"""Actions in the log. A run is asked for before it has a name; the row of its beginning has it."""
DECIDED = {"approve": "approved", "edit": "edited", "another": "asked for another",
           "reject": "rejected"}  # fmt: skip
"""Action in the log for each decision on a hypothesis."""


def current_owner() -> str:
    """Person on whose behalf this process runs: as the server says, else this machine's user."""
    named = os.environ.get(OWNER)
    if not named:
        try:
            named = getpass.getuser()
        except (KeyError, OSError):  # a container's user may have no name
            named = str(os.getuid())
    return one_line(named)[:80]


def log_command(settings: Any, what: str, about: object = "", **detail: Any) -> None:
    """Log a command of this machine's user, where a plugin keeps a log.

    A command that a server started is not logged here: the server has logged the person's request.
    """
    if not os.environ.get(OWNER) and (hooks := load_first("sage.hooks")) is not None:
        hooks.log_command(settings, what, about, **detail)
