"""Simultaneous search of all sources and the local index."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from itertools import zip_longest
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from kg.literature.local import LocalIndex
from kg.literature.merge import merge
from kg.literature.protocol import LiteratureSource, RetractionSource, Wanted
from kg.literature.rank import Embed, cache_embedding, rank
from kg.literature.types import MissingSource, Query, Record, SearchAnswer
from sage.core.hashes import hash_text
from sage.core.http.cache import DiskCache
from sage.core.http.client import Policy, ServiceClient, Usage, meter_requests
from sage.core.http.errors import OverBudget, ServiceError
from sage.core.http.runner import Runner

Expand = Callable[[Query], Query]
"""Function that adds synonyms to a query (`kg.literature.expansion`)."""

_INCOMPLETE_AGE = 3600.0
"""Seconds to cache an answer that lacks a source because of its rate limit."""


class Literature:
    """Synchronous interface to all literature sources.

    Parameters
    ----------
    cache_dir : folder in which answers are cached; None for no cache
    local : index that is always searched, so that the run's own corpus is never overlooked
    embed : function from texts to unit vectors; if given, the ranking uses words and
        embeddings
    """

    def __init__(
        self,
        sources: Sequence[LiteratureSource],
        cache_dir: Path | None,
        local: LocalIndex | None = None,
        *,
        policy: Policy | None = None,
        expand: Expand | None = None,
        embed: Embed | None = None,
        retractions: Sequence[RetractionSource] = (),
    ) -> None:
        self.sources = tuple(sources)
        self.local = local
        self._expand = expand
        self._embed = embed
        self._retractions = tuple(retractions)
        self._cache = DiskCache(cache_dir) if cache_dir is not None else None
        self._client = ServiceClient(self._cache, policy)
        self._fingerprint: str | None = None
        self._runner = Runner()

    def __enter__(self) -> Literature:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections and stop the background loop."""
        if self.sources:
            self._runner.run(self._client.close())
        self._runner.close()

    def search(
        self,
        queries: Sequence[Query | str],
        k: int = 20,
        as_of: date | None = None,
        *,
        patience: float | None = None,
    ) -> SearchAnswer:
        """Search all sources for the `k` best records for `queries`; see `search_together`.

        Parameters
        ----------
        as_of : date after which records are left out; None for no bound
        patience : seconds to wait under a source's rate limit before it is reported as missing;
            None for the client's default

        Returns
        -------
        Records, best first, with the sources that answered, and the missing sources with the
        reasons. Service failures do not raise exceptions.
        """
        return self.search_together({"": queries}, k, as_of, patience=patience)[""]

    def search_together(
        self,
        wanted: Mapping[str, Sequence[Query | str]],
        k: int = 20,
        as_of: date | None = None,
        *,
        patience: float | None = None,
    ) -> dict[str, SearchAnswer]:
        """Run several searches together and return a separate answer for each.

        All queries are sent in the same requests, so that two critics that search at the same
        time cost each service a single request. A source that fails, or whose rate limit does not
        allow a request within `patience` seconds, is listed in `missing`; the remaining sources
        still answer. Service failures do not raise exceptions.

        Parameters
        ----------
        wanted : queries for each search, by name
        as_of : date after which records are left out
        """
        named = {name: [self._query(item) for item in asked] for name, asked in wanted.items()}
        key = self._key(named, k, as_of)
        stored = self._load_answers(key)
        if stored is not None:
            return stored
        # In turns, so that a source that takes a few queries serves every caller.
        turns = zip_longest(*named.values())
        everything = tuple(
            dict.fromkeys(query for turn in turns for query in turn if query is not None)
        )
        started = time.perf_counter()
        found: list[Record] = []
        missing: list[MissingSource] = []
        served: list[str] = []
        over_budget: set[str] = set()
        usage = Usage()
        if self.sources and everything:
            found, missing, served, over_budget, usage = self._runner.run(
                self._remote(Wanted(everything, k, as_of), patience)
            )
        if self.local is not None:
            for query in everything:
                found.extend(self.local.search(query, k, as_of))
            served.append(self.local.name)
        pool = [record.as_known(as_of) for record in merge(found) if record.known_by(as_of)]
        notes = self._notes(served, found, pool)
        answers = {}
        embed = cache_embedding(self._embed) if self._embed is not None else None
        for name, asked in named.items():
            answers[name] = SearchAnswer(
                records=tuple(rank(pool, asked, k, embed)),
                missing=tuple(missing),
                served_by=tuple(served),
                local_records=len(self.local) if self.local is not None else None,
                requests=usage.requests,
                cached=usage.cached,
                seconds=time.perf_counter() - started,
                as_of=as_of,
                notes=notes,
            )
        self._store(key, answers, over_budget)
        return answers

    def _key(self, named: Mapping[str, Sequence[Query]], k: int, as_of: date | None) -> str:
        return DiskCache.key(
            "literature",
            "search",
            "|".join(source.name for source in self.sources),
            [k, as_of, self._embed is not None, bool(self._retractions), self._corpus()],
            {name: [entry.model_dump() for entry in asked] for name, asked in named.items()},
        )

    def _corpus(self) -> str:
        """Compute a fingerprint of the local index, whose records are part of every answer."""
        if self.local is None:
            return ""
        if self._fingerprint is None:
            text = "\n".join(record.model_dump_json() for record in self.local.records)
            self._fingerprint = hash_text(text)
        return self._fingerprint

    def _load_answers(self, key: str) -> dict[str, SearchAnswer] | None:
        """Load cached answers from an earlier run, so that a repeated debate can reuse them."""
        if not self.sources or self._cache is None:
            return None
        for complete in (True, False):
            body = self._cache.get(f"{key}{complete:d}", None if complete else _INCOMPLETE_AGE)
            if body is None:
                continue
            try:
                found = TypeAdapter(dict[str, SearchAnswer]).validate_json(body)
            except ValidationError:
                self._cache.drop(f"{key}{complete:d}")
                continue
            return {
                name: entry.model_copy(update={"requests": 0, "cached": 1, "seconds": 0.0})
                for name, entry in found.items()
            }
        return None

    def _store(self, key: str, answers: dict[str, SearchAnswer], over_budget: set[str]) -> None:
        """Cache answers, unless a source is missing for reasons other than its rate limit."""
        missing = {item.name for answer in answers.values() for item in answer.missing}
        if not self.sources or self._cache is None or missing - over_budget:
            return
        body = TypeAdapter(dict[str, SearchAnswer]).dump_json(answers)
        self._cache.save(f"{key}{not missing:d}", body)

    def _query(self, asked: Query | str) -> Query:
        query = Query(text=asked) if isinstance(asked, str) else asked
        return self._expand(query) if self._expand is not None else query

    def _notes(
        self, served: Sequence[str], found: Sequence[Record], pool: Sequence[Record]
    ) -> tuple[str, ...]:
        notes = []
        if self.local is not None and list(served) == [self.local.name]:
            notes.append(
                f"Only the local index answered ({len(self.local)} records): absence from it "
                "does not mean absence from the literature."
            )
        retracted = sum(record.retracted for record in pool)
        if retracted:
            notes.append(f"{retracted} of {len(pool)} records are retracted.")
        return tuple(notes)

    async def _remote(
        self, wanted: Wanted, patience: float | None
    ) -> tuple[list[Record], list[MissingSource], list[str], set[str], Usage]:
        """Query all sources in parallel, merge the records, and add retraction-source flags."""
        with meter_requests() as usage:
            found, missing, served, over_budget = await self._gather(wanted, patience)
            pool = merge(record for record in found if record.known_by(wanted.as_of))
            for source in self._retractions if pool else ():
                try:
                    pool = await source.mark(self._client, pool, patience)
                except ServiceError as problem:
                    name = f"{source.name} (retractions)"
                    missing.append(MissingSource(name=name, reason=problem.reason))
        return pool, missing, served, over_budget, usage

    async def _gather(
        self, wanted: Wanted, patience: float | None
    ) -> tuple[list[Record], list[MissingSource], list[str], set[str]]:
        answers = await asyncio.gather(
            *(self._ask_source(source, wanted, patience) for source in self.sources)
        )
        found: list[Record] = []
        missing: list[MissingSource] = []
        served: list[str] = []
        over_budget: set[str] = set()
        for source, answer in zip(self.sources, answers, strict=True):
            if isinstance(answer, ServiceError):
                missing.append(MissingSource(name=source.name, reason=answer.reason))
                if isinstance(answer, OverBudget):
                    over_budget.add(source.name)
            else:
                found.extend(answer)
                served.append(source.name)
        return found, missing, served, over_budget

    async def _ask_source(
        self, source: LiteratureSource, wanted: Wanted, patience: float | None
    ) -> Sequence[Record] | ServiceError:
        try:
            return await source.search(self._client, wanted, patience)
        except ServiceError as problem:
            return problem
