"""Installed plugins, discovered through Python's entry points and loaded on demand.

Groups: `sage.commands` (a Typer application or a function), `sage.tools` (a module of
tools, or a package that lists such modules in `TOOL_MODULES`), `sage.agents` (an
`Agent`), `sage.pages` (a server page), `sage.services` (external services, see
`kg.literature.services`), `sage.hooks` (see `sage.core.hooks`), `sage.workers` (a
function that starts workers, see `mcp_servers.workers.pool`), `sage.nuclei` (a loader for
nucleus-detection networks, see `mcp_servers.pathology.nuclei`), `sage.tumor` (a function
that detects tumor with a model, see `mcp_servers.pathology.tumor`).
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from sage.core.errors import InputError

Group = Literal[
    "sage.commands",
    "sage.tools",
    "sage.agents",
    "sage.pages",
    "sage.services",
    "sage.hooks",
    "sage.workers",
    "sage.nuclei",
    "sage.tumor",
]


@cache
def find_plugins(group: Group) -> dict[str, EntryPoint]:
    """Return a group's entry points by name, sorted, without importing anything."""
    found = entry_points(group=group)
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)}


def load_plugin(group: Group, name: str) -> Any:
    """Import the object that a plugin registered under `name`.

    Raises
    ------
    InputError
        If no plugin has that name, or the plugin cannot be imported.
    """
    found = find_plugins(group)
    if name not in found:
        raise InputError(f'no plugin registers "{name}" under {group}; found: {", ".join(found)}')
    entry = found[name]
    try:
        return entry.load()
    except Exception as error:
        raise InputError(
            f"plugin {entry.value}: {type(error).__name__}: {error}; update or uninstall it"
        ) from error


def load_first(group: Group) -> Any | None:
    """Load the object registered by a group's first plugin; return None if it has no plugins."""
    return next((load_plugin(group, name) for name in find_plugins(group)), None)


def summarize_plugin(entry: EntryPoint) -> str:
    """Return the first docstring line of a plugin's top-level package, importing nothing else."""
    try:
        package = importlib.import_module(entry.module.partition(".")[0])
    except ImportError as error:
        return f"Not importable: {error}"
    return (package.__doc__ or "").strip().partition("\n")[0]
