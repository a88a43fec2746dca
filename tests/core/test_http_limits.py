"""Rates, concurrency and the breaker: what keeps the client from being a nuisance."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.core.clock import using
from sage.core.http.client import Limit, Policy, Request, ServiceClient
from sage.core.http.errors import OverBudget, Unavailable
from sage.core.http.limits import Breaker, Throttle
from sage.core.http.runner import Runner
from tests.core.clocks import SetClock
from tests.core.http_server import FAST, MANY, Answer, as_json, serving


async def fetch_all(url: str, limit: Limit, count: int) -> None:
    """Ask for `count` addresses at once under one limit."""
    client = ServiceClient(None, FAST)
    requests = [Request("svc", limit, url + "/x", params={"n": n}) for n in range(count)]
    await asyncio.gather(*(client.fetch(request, json.loads) for request in requests))
    await client.close()


def test_concurrency_stays_within_the_limit() -> None:
    running, most = [0], [0]

    def slow(_: object) -> Answer:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.05)
        running[0] -= 1
        return as_json({})

    with serving() as services:
        services.routes["/x"] = slow
        asyncio.run(fetch_all(services.url, Limit(1000, 1.0, concurrency=2), 8))
    assert most[0] == 2


def test_no_slot_within_patience_is_an_answer_not_a_wait() -> None:
    async def work(url: str) -> float:
        client = ServiceClient(None, FAST)
        limit = Limit(1, 3.0, concurrency=1)
        await client.fetch(Request("svc", limit, url + "/x"), json.loads, patience=0.5)
        begun = time.monotonic()
        with pytest.raises(OverBudget, match="per 3 s"):
            await client.fetch(
                Request("svc", limit, url + "/x", params={"n": 2}), json.loads, patience=0.5
            )
        await client.close()
        return time.monotonic() - begun

    with serving() as services:
        services.routes["/x"] = as_json({})
        assert asyncio.run(work(services.url)) < 0.3
        assert len(services.seen) == 1


def test_the_breaker_stops_asking_the_dead_and_probes_later() -> None:
    async def work(url: str) -> list[str]:
        policy = Policy(attempts=1, breaker_threshold=2, breaker_cool_off=0.3)
        client = ServiceClient(None, policy)
        reasons = []
        for number in range(4):
            try:
                await client.fetch(
                    Request("svc", MANY, url + "/x", params={"n": number}), json.loads
                )
                reasons.append("ok")
            except Unavailable as problem:
                reasons.append(problem.reason)
            if number == 2:
                await asyncio.sleep(0.35)
        await client.close()
        return reasons

    with serving() as services:
        services.routes["/x"] = [Answer(b"", 500), Answer(b"", 500), as_json({})]
        reasons = asyncio.run(work(services.url))
        assert len(services.seen) == 3
    assert reasons[:2] == ["HTTP 500", "HTTP 500"]
    assert "failed 2 times in a row" in reasons[2]
    assert reasons[3] == "ok"


def test_a_breaker_lets_one_probe_through() -> None:
    told = SetClock()
    breaker = Breaker(threshold=1, cool_off=10)
    with using(told):
        breaker.failed()
        assert breaker.refuses() == 10
        told.at = 11
        assert breaker.refuses() is None
        assert breaker.refuses() is not None
        breaker.failed()
        assert breaker.refuses() == 10


@settings(deadline=None)
@given(
    requests=st.integers(1, 5),
    per=st.floats(0.1, 5.0),
    gaps=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=40),
)
def test_no_window_ever_holds_more_than_the_limit(
    requests: int, per: float, gaps: list[float]
) -> None:
    told = SetClock()
    throttle = Throttle(Limit(requests, per))
    slots = []
    with using(told):
        for gap in gaps:
            told.at += gap
            wait = throttle.book()
            assert wait is not None
            slots.append(told.at + wait)
    for first, later in zip(slots, slots[requests:], strict=False):
        assert later - first >= per - 1e-9


@settings(deadline=None)
@given(
    requests=st.integers(1, 5),
    per=st.floats(0.1, 5.0),
    late=st.lists(st.floats(0.0, 2.0), min_size=1, max_size=40),
)
def test_requests_that_leave_late_keep_the_rate_as_well(
    requests: int, per: float, late: list[float]
) -> None:
    told = SetClock(1000.0)
    throttle = Throttle(Limit(requests, per))
    left = []
    with using(told):
        for delay in late:
            told.at += (throttle.book() or 0.0) + delay  # connecting takes a while
            while (wait := throttle.still_to_wait()) > 0.0:
                told.at += wait
            throttle.sent()
            left.append(told.at)
    for first, later in zip(left, left[requests:], strict=False):
        assert later - first >= per - 1e-9


def test_the_runner_works_from_inside_another_loop_and_across_calls() -> None:
    runner = Runner()

    async def inner() -> int:
        return 3

    async def outer() -> int:
        return runner.run(inner())

    assert asyncio.run(outer()) + runner.run(inner()) == 6
    runner.close()
    assert runner.run(inner()) == 3
    runner.close()
