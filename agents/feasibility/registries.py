"""Facts from external registries, queried in parallel; missing answers are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from agents.core.types import ExpandedHypothesis
from agents.feasibility.types import StepName
from sage.core.http.cache import DiskCache
from sage.core.http.client import Policy, ServiceClient
from sage.core.http.errors import ServiceError
from sage.core.http.runner import Runner

_WEEK = 7 * 86400.0


@dataclass(frozen=True)
class ExternalFact:
    """A registry's answer: `found` is None if it did not answer, `share` is in [0, 1]."""

    step: StepName
    check: str
    statement: str
    source: str
    found: bool | None
    share: float
    value: float | None = None
    url: str | None = None


@runtime_checkable
class Registry(Protocol):
    """A service with facts on data, trials, packages or code (`sage.services` entry points)."""

    step: StepName
    check: str
    source: str

    async def find_facts(
        self, client: ServiceClient, expanded: ExpandedHypothesis
    ) -> Sequence[ExternalFact]:
        """Find facts about the hypothesis.

        Raises a `ServiceError` if the service gives no usable answer.
        """
        ...


class Registries:
    """Parallel query of all registries; service errors become facts with `found=None`.

    Parameters
    ----------
    cache_dir : folder where answers are cached for a week; None for no cache
    """

    def __init__(
        self, registries: Sequence[Registry], cache_dir: Path | None, policy: Policy | None = None
    ) -> None:
        self._registries = tuple(registries)
        self._cache = DiskCache(cache_dir, max_age=_WEEK) if cache_dir is not None else None
        self._policy = policy or Policy(deadline=20.0)

    def facts(self, expanded: ExpandedHypothesis) -> list[ExternalFact]:
        """Collect facts about the hypothesis from every registry, in registry order."""
        runner = Runner()
        try:
            return runner.run(self._collect(expanded))
        finally:
            runner.close()

    async def _collect(self, expanded: ExpandedHypothesis) -> list[ExternalFact]:
        client = ServiceClient(self._cache, self._policy)
        try:
            answers = await asyncio.gather(
                *(_ask(registry, client, expanded) for registry in self._registries)
            )
        finally:
            await client.close()
        return [fact for facts in answers for fact in facts]


async def _ask(
    registry: Registry, client: ServiceClient, expanded: ExpandedHypothesis
) -> Sequence[ExternalFact]:
    try:
        return await registry.find_facts(client, expanded)
    except ServiceError as problem:
        statement = f"{registry.source} could not be queried ({problem.reason})."
        return [
            ExternalFact(
                registry.step, registry.check, statement, registry.source, found=None, share=0.0
            )
        ]
