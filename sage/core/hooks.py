"""Hooks for servers and commands that a plugin may implement.

They identify the people who act, log their actions, and provide a database of runs that
several machines can share.

The entry point group `sage.hooks` names a module with these functions:

- `log_command(settings, what, about, **detail)`
- `open_people(settings, header, proxies, roles)`: see `sage.web.people.People`
- `open_callers(settings, header, proxies, roles)`: see
  `mcp_servers.servers.callers.Callers`
- `open_checkpoints(url, serializer, manifest)`, `open_notebook(path, settings)`,
  `open_reviews(settings)`: used in place of files if `checkpoint_url` is set
- `hold_run(services, owner)`: the lease of the process that executes a run, as a context
  manager
- `queue_run(services, answer)`: queue a run for a worker, with any decision by a person
- `collect_metrics(settings)`: metrics for the database
"""

from __future__ import annotations

import getpass
import os
from typing import Any

from sage.core.errors import InputError
from sage.core.plugins import load_first
from sage.core.printable import one_line

OWNER = "SAGE_OWNER"
"""Environment variable in which a server passes a proxy-identified person to commands."""
ASKED, BEGAN, EXPORTED = "asked", "began", "exported"
"""Names of logged actions.

A run has no name yet when it is requested; the log entry for its start contains the name.
"""
DECIDED = {"approve": "approved", "edit": "edited", "another": "asked for another",
           "reject": "rejected"}  # fmt: skip
"""Name of the logged action for each decision about a hypothesis."""


def current_owner() -> str:
    """Return the person for whom this process runs, as set by the server, or the system user."""
    named = os.environ.get(OWNER)
    if not named:
        try:
            named = getpass.getuser()
        except (KeyError, OSError):  # a container's user may have no name
            named = str(os.getuid())
    return one_line(named)[:80]


def require_hooks(what: str) -> Any:
    """Load the hooks from the installed plugin.

    Raises
    ------
    InputError
        If no plugin registers hooks; the message says that `what` requires them.
    """
    if (hooks := load_first("sage.hooks")) is None:
        raise InputError(f"{what} requires a plugin that registers under sage.hooks")
    return hooks


def log_command(settings: Any, what: str, about: object = "", **detail: Any) -> None:
    """Log a command run by this machine's user, if a plugin keeps a log.

    Commands that a server started are not logged here, because the server has already logged the
    person's request.
    """
    if not os.environ.get(OWNER) and (hooks := load_first("sage.hooks")) is not None:
        hooks.log_command(settings, what, about, **detail)
