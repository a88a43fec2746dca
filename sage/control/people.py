"""Whose a run is."""

from __future__ import annotations

import getpass
import os

from sage.core.printable import one_line

VARIABLE = "SAGE_OWNER"
"""Set by the server for the commands that it starts for a person whom the proxy names."""


def owner() -> str:
    """Who asks: the person whom the server names, else the user of this machine."""
    named = os.environ.get(VARIABLE)
    if not named:
        try:
            named = getpass.getuser()
        except (KeyError, OSError):  # a container's user may have no name
            named = str(os.getuid())
    return one_line(named)[:80]
