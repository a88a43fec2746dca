"""From the word a person gives to the workers it means."""

from __future__ import annotations

from mcp_servers.workers.base import Workers
from mcp_servers.workers.jobs import Recipe
from sage.core.errors import InputError


def open_workers(
    word: str | None, recipe: Recipe, *, memory_mb: int | None = None, grace: float = 5.0
) -> Workers:
    """Workers for "4" (local processes) or a Ray cluster.

    "ray" starts a cluster here, "ray:auto" uses the cluster of this machine, "ray://host:port"
    a remote cluster. None or "auto" means a local process per processor.

    Raises `InputError` when the word means nothing, or Ray is not installed.

    Parameters
    ----------
    memory_mb : megabytes of all jobs at once; None for what the machine has
    grace : seconds that a cancelled job has to end by itself
    """
    if word is None or word == "auto":
        from mcp_servers.workers.pool import LocalPool

        return LocalPool(recipe, memory_mb=memory_mb, grace=grace)
    if word.isdigit():
        from mcp_servers.workers.pool import LocalPool

        return LocalPool(recipe, int(word), memory_mb=memory_mb, grace=grace)
    if word in ("ray", "ray:auto") or word.startswith("ray://"):
        from mcp_servers.workers.on_ray import RayWorkers

        address = {"ray": None, "ray:auto": "auto"}.get(word, word)
        return RayWorkers(recipe, address, grace=grace)
    raise InputError(f'workers "{word}": give a number, "ray", "ray:auto", or "ray://host:port"')
