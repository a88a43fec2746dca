"""Hooks of servers and commands that a plugin may fill.

They cover who acts, the log of what they did, and a database of runs that several machines share.

The entry point group `sage.hooks` names a module with these functions:

- `log_command(settings, what, about, **detail)`
- `open_people(settings, header, proxies, roles)`: see `sage.web.people.People`
- `open_callers(settings, header, proxies, roles)`: see `mcp_servers.servers.callers.Callers`
- `open_checkpoints(url, serializer, manifest)`, `open_notebook(path, settings)`,
  `open_reviews(settings)`: where `checkpoint_url` is set, in place of files
- `hold_run(services, owner)`: the lease of the process that works on a run, as a context
- `queue_run(services, answer)`: leave a run to a worker, with a person's decision if there is one
- `collect_metrics(settings)`: metrics of the database
"""

from __future__ import annotations

import getpass
import os
from typing import Any

from sage.core.errors import InputError
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


def require_hooks(what: str) -> Any:
    """Load the hooks.

    Raises
    ------
    InputError
        If no plugin registers some; it says that `what` needs them.
    """
    if (hooks := load_first("sage.hooks")) is None:
        raise InputError(f"{what} needs a plugin that registers under sage.hooks")
    return hooks


def log_command(settings: Any, what: str, about: object = "", **detail: Any) -> None:
    """Log a command of this machine's user, where a plugin keeps a log.

    A command that a server started is not logged here: the server has logged the person's request.
    """
    if not os.environ.get(OWNER) and (hooks := load_first("sage.hooks")) is not None:
        hooks.log_command(settings, what, about, **detail)
