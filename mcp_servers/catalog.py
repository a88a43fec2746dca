"""Catalog of tool modules by suite.

A suite is either a module or a package that lists its modules in `TOOL_MODULES`.

Tool modules import heavy packages (torch, cv2, pandas) inside functions so that listing tools is
fast.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType

from sage.core.errors import InputError
from sage.core.hashes import hash_file
from sage.core.plugins import find_plugins

SUITES = ("pathology", "oncology", "knowledge")
"""Built-in suites, each a package in `mcp_servers`."""


def suites() -> dict[str, list[str]]:
    """Return the packages of each suite, including those of installed plugins.

    A plugin's package either forms a suite, named after its `sage.tools` entry point, or joins the
    suite before the dot in that name ("pathology.foundation").
    """
    found = {name: [f"mcp_servers.{name}"] for name in SUITES}
    for name, entry in find_plugins("sage.tools").items():
        found.setdefault(name.partition(".")[0], []).append(entry.module)
    return found


def check_suite(suite: str) -> None:
    """Raise `InputError` when the suite is unknown."""
    if suite != "all" and suite not in suites():
        raise InputError(f'unknown suite "{suite}"; choose {", ".join(suites())} or all')


def modules(suite: str = "all") -> Iterator[ModuleType]:
    """Import and yield the tool modules in a given suite, or in all suites.

    A package with `ON_REQUEST = True` is loaded only if its suite is requested, never with
    "all", so that its tools are not listed in other agents' prompts.

    Raises `InputError` if the suite is unknown, or one of its modules cannot be imported.
    """
    check_suite(suite)
    every = suites()
    for package_name in chain(*every.values()) if suite == "all" else every[suite]:
        package = _import_module(package_name)
        if suite == "all" and getattr(package, "ON_REQUEST", False):
            continue
        if not hasattr(package, "TOOL_MODULES"):
            yield package
        for module_name in getattr(package, "TOOL_MODULES", ()):
            yield _import_module(f"{package_name}.{module_name}")


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise InputError(
            f"{name} tools: {type(error).__name__}: {error}; update or uninstall the plugin"
        ) from error


def user_modules(folder: str | Path) -> Iterator[ModuleType]:
    """Import and yield the user's own tool files in a folder, in name order.

    Raises `InputError` when the folder does not exist or a file cannot be imported.
    """
    root = Path(folder).expanduser().resolve()
    if not root.is_dir():
        raise InputError(f'tool folder "{folder}" does not exist')
    for path in sorted(root.glob("*.py")):
        if path.name.startswith(("_", ".")):
            continue
        yield user_module(path)


def user_module(path: Path) -> ModuleType:
    """Import a user's tool file under its own name, once for each version of its content."""
    content = hash_file(path)[:16]
    name = f"sage_user_tools.{path.stem}_{content}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f'tool file "{path}" could not be imported')
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic looks annotations up here
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(
            f'tool file "{path}" could not be imported: {type(error).__name__}: {error}'
        ) from error
    return module
