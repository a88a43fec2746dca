"""Selection of workers from a user's setting."""

from __future__ import annotations

from mcp_servers.workers.base import Workers
from mcp_servers.workers.jobs import Recipe
from mcp_servers.workers.pool import LocalPool
from sage.core.errors import InputError
from sage.core.plugins import find_plugins, load_plugin


def open_workers(
    word: str | None, recipe: Recipe, *, memory_mb: int | None = None, grace: float = 5.0
) -> Workers:
    """Open workers for "4" (local processes) or for a plugin: "NAME" or "NAME:ADDRESS".

    None or "auto" means one local process per processor. A plugin registers, under `sage.workers`,
    a function of the word, the recipe and the grace period.

    Raises `InputError` if the word is not recognized. `memory_mb` is for all concurrent jobs
    (default: the machine's), and a cancelled job must end by itself within `grace` seconds.
    """
    if word is None or word == "auto" or word.isdigit():
        count = int(word) if word and word.isdigit() else None
        return LocalPool(recipe, count, memory_mb=memory_mb, grace=grace)
    name = word.partition(":")[0]
    known = find_plugins("sage.workers")
    if name not in known:
        raise InputError(f'workers "{word}": expected a number, or {", ".join(known) or "auto"}')
    workers: Workers = load_plugin("sage.workers", name)(word, recipe, grace=grace)
    return workers
