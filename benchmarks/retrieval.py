"""Retrieval for one debate: six sources that answer in 200 ms each, at their published rates.

Run from the repository root:  python -m benchmarks.retrieval [--json]

Compares one round's retrieval for both critics (concurrent, shared requests) with the same
searches one after another, checks at the server that no rate was exceeded, and repeats the debate
from the cache. A local server stands in for the services; nothing leaves the machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents.core.base import Agent, I, O, Reply
from agents.novelty.debate import hold, retriever
from agents.novelty.settings import DebateSettings
from agents.novelty.types import JudgePosition, ProverPosition, VerifierPosition
from kg.literature.arxiv import Arxiv
from kg.literature.biorxiv import Biorxiv
from kg.literature.crossref import Crossref
from kg.literature.europe_pmc import EuropePmc
from kg.literature.openalex import OpenAlex
from kg.literature.protocol import LiteratureSource
from kg.literature.pubmed import PubMed
from kg.literature.search import Literature
from kg.literature.semantic_scholar import SemanticScholar
from kg.literature.types import Query
from sage.core.llm.turns import Spent
from tests.agents.nov_helpers import expanded
from tests.kg import lit_bodies
from tests.kg.lit_server import Answer, FakeServices, Seen, serving

LATENCY = 0.2
LIMIT = 1.5
RATES = {
    "/pubmed": (3, 1.0),
    "/s2": (1, 1.0),
    "/epmc": (10, 1.0),
    "/biorxiv": (2, 1.0),
    "/arxiv": (1, 3.0),
    "/crossref": (1, 1.0),
    "/openalex": (10, 1.0),
}
"""Requests per seconds that each service publishes (or that we keep where it publishes none)."""

ARRIVAL_SLACK = 0.05
"""Seconds by which requests may arrive closer together than they were sent."""


class Quarrel:
    """Critics who disagree for three rounds and ask for something new in each."""

    name = "quarrel"

    def ask(self, agent: Agent[I, O], given: I) -> Reply[O]:
        """A position that keeps the debate going."""
        number = given.round  # type: ignore[attr-defined]
        position: Any
        if agent.name == "prover":
            position = ProverPosition(
                score=10, confidence=0.5, summary="", queries=(f"FABP5 lymphoid {number}",)
            )
        elif agent.name == "verifier":
            position = VerifierPosition(
                score=1, confidence=0.5, summary="", queries=(f"FABP5 refuted {number}",)
            )
        else:
            position = JudgePosition(score=5.5, confidence=0.5, summary="")
        return Reply(position, self.name, None, Spent())


def sources(url: str) -> tuple[LiteratureSource, ...]:
    """The six, without keys or contact address: the slowest published rates."""
    return (
        PubMed(base_url=url + "/pubmed"),
        SemanticScholar(base_url=url + "/s2"),
        EuropePmc(base_url=url + "/epmc"),
        Biorxiv(base_url=url + "/biorxiv", europe_pmc_url=url + "/epmc"),
        Arxiv(base_url=url + "/arxiv"),
        Crossref(base_url=url + "/crossref"),
    )


def slow(services: FakeServices) -> None:
    """Every route answers after the latency."""
    lit_bodies.all_answering(services)
    for prefix, route in list(services.routes.items()):
        services.routes[prefix] = _delayed(route)


def _delayed(route: Any) -> Callable[[Seen], Answer]:
    def answer(seen: Seen) -> Answer:
        time.sleep(LATENCY)
        return route(seen) if callable(route) else route

    return answer


def exceeded(services: FakeServices) -> list[str]:
    """Services that got more requests in a window than their rate allows."""
    found = []
    for prefix, (requests, per) in RATES.items():
        times = sorted(item.at for item in services.to(prefix))
        pairs = zip(times, times[requests:], strict=False)
        if any(later - first < per - ARRIVAL_SLACK for first, later in pairs):
            found.append(prefix)
    return found


def debate(cache: Path) -> dict[str, Any]:
    """A debate of three rounds against slow services, then again from the cache."""
    settings = DebateSettings()
    with serving() as services:
        slow(services)
        runs = []
        for _ in range(2):
            before = len(services.seen)
            with Literature(
                sources(services.url),
                cache,
                retractions=OpenAlex(base_url=services.url + "/openalex"),
            ) as literature:
                outcome = hold(expanded(), Quarrel(), retriever(literature, settings), settings)
            runs.append(
                {
                    "rounds": [round(item.retrieval_seconds, 3) for item in outcome.rounds],
                    "requests": len(services.seen) - before,
                    "missing": [
                        f"{source.name}: {source.reason}" for source in outcome.missing_sources
                    ],
                }
            )
            if not runs[1:]:
                over = exceeded(services)
    return {"first": runs[0], "second": runs[1], "rate_exceeded": over}


def opening() -> dict[str, float]:
    """The opening round with both critics: concurrent and shared, against one after another.

    The sequential side asks each source for each critic in turn, and is spared the second opinion
    on retractions.
    """
    queries = {
        "prover": [Query(text="FABP5 lymphoid", phrases=("FABP5", "lymphoid"))],
        "verifier": [Query(text="FABP5 refuted", phrases=("FABP5", "refuted"))],
    }
    with serving() as services:
        slow(services)
        second = OpenAlex(base_url=services.url + "/openalex")
        with Literature(sources(services.url), None, retractions=second) as literature:
            begun = time.perf_counter()
            literature.search_together(queries, 12)
            together = time.perf_counter() - begun
    with serving() as services:
        slow(services)
        begun = time.perf_counter()
        alone = [Literature((source,), None) for source in sources(services.url)]
        for asked in queries.values():
            for literature in alone:
                literature.search(asked, 12)
        sequential = time.perf_counter() - begun
        for literature in alone:
            literature.close()
    return {"concurrent": round(together, 3), "sequential": round(sequential, 3)}


def main() -> int:
    """Run, print, and fail when a promise is broken."""
    cold = opening()["concurrent"]  # imports httpx and Biopython on the way
    first = opening()
    with tempfile.TemporaryDirectory() as folder:
        whole = debate(Path(folder))
    result = {"latency": LATENCY, "opening": {**first, "cold": cold}, "debate": whole}
    if "--json" in sys.argv:
        print(json.dumps(result, indent=1))
    else:
        ratio = first["sequential"] / first["concurrent"]
        print(
            f"opening round, both critics, six sources at {LATENCY * 1000:.0f} ms: "
            f"{first['concurrent']:.2f} s concurrent, {first['sequential']:.2f} s one after "
            f"another ({ratio:.1f} times); {cold:.2f} s in a fresh process, with imports"
        )
        print(f"retrieval per round of a debate: {whole['first']['rounds']} s")
        print(f"requests: {whole['first']['requests']} first, {whole['second']['requests']} again")
        print(f"missing in some round: {whole['first']['missing'] or 'none'}")
        print(f"rates exceeded: {whole['rate_exceeded'] or 'none'}")
    kept = (
        max(whole["first"]["rounds"]) < LIMIT
        and first["concurrent"] < LIMIT
        and whole["second"]["requests"] == 0
        and not whole["rate_exceeded"]
    )
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
