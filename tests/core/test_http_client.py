"""The shared client against a server that misbehaves in every way that services do."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from sage.core.http.cache import DiskCache
from sage.core.http.client import Limit, Policy, Request, ServiceClient, meter_requests
from sage.core.http.errors import SourceChanged, Unavailable
from tests.core.http_server import FAST, MANY, Answer, FakeServices, as_json, serving


def call(
    services: FakeServices,
    policy: Policy = FAST,
    *,
    cache: DiskCache | None = None,
    limit: Limit = MANY,
    times: int = 1,
    path: str = "/x",
    client: ServiceClient | None = None,
    **request: object,
):
    async def work():
        own = client or ServiceClient(cache, policy)
        asked = Request("svc", limit, services.url + path, **request)  # type: ignore[arg-type]
        try:
            with meter_requests() as usage:
                for _ in range(times):
                    value = await own.fetch(asked, json.loads)
            return value, usage
        finally:
            await own.close()

    return asyncio.run(work())


@pytest.mark.parametrize(
    "passing",
    [
        Answer(b"busy", 429),
        Answer(b"busy", 503),
        Answer(b"", 429, {"Retry-After": "soon"}),
        Answer(b"", 429, {"Retry-After": "-3"}),
        Answer(b'{"a": ', cut=True),
    ],
    ids=["429", "503", "nonsense wait", "negative wait", "cut short"],
)
def test_passing_trouble_is_retried(passing: Answer) -> None:
    with serving() as services:
        services.routes["/x"] = [passing, as_json({"a": 1})]
        value, usage = call(services)
    assert value == {"a": 1}
    assert usage.requests == 2


def test_retry_after_as_a_date_is_waited_for() -> None:
    with serving() as services:
        when = int(time.time()) + 1
        told = {"Retry-After": formatdate(when, usegmt=True)}
        services.routes["/x"] = [Answer(b"", 503, told), as_json({})]
        call(services)
        assert len(services.seen) == 2
    assert time.time() >= when


SHORT = Policy(attempts=2, attempt=0.3, backoff=0.01, deadline=5)
DRIPPING = Answer(b'{"a": "' + b"x" * 50 + b'"}', drip=0.05)


@pytest.mark.parametrize(
    ("answer", "policy", "says", "sent"),
    [
        (Answer(b"", 429, {"Retry-After": "600"}), FAST, r"429.*600", 1),
        (Answer(b"", 500), FAST, r"svc.*500", FAST.attempts),
        (Answer(b"", 401), FAST, "401", 1),
        (Answer(b"x" * 4096), Policy(attempts=1, max_bytes=1024), "1 KiB", 1),
        (DRIPPING, SHORT, "svc", 2),
        (Answer(b"", 500, delay=0.2), replace(SHORT, attempts=50, deadline=0.5), "svc",
         None),
    ],
    ids=["a wait beyond patience", "lasting", "a key is needed", "too large", "dripping",
         "the deadline bounds all attempts together"],
)  # fmt: skip
def test_lasting_trouble_ends_a_call_in_time_and_is_named(
    answer: Answer, policy: Policy, says: str, sent: int | None
) -> None:
    with serving() as services:
        services.routes["/x"] = answer
        begun = time.monotonic()
        with pytest.raises(Unavailable, match=says):
            call(services, policy)
        assert time.monotonic() - begun < 2.5
        assert sent is None or len(services.seen) == sent


def test_truncated_json_is_retried_once_and_never_cached(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    with serving() as services:
        services.routes["/x"] = Answer(b'{"a": [1, 2')
        with pytest.raises(SourceChanged, match="svc"):
            call(services, cache=cache)
        assert len(services.seen) == 2
    assert not list(tmp_path.rglob("*/*"))


def test_a_connection_refused_is_reported_without_the_url() -> None:
    with serving() as services:
        dead = services.url
    gone = FakeServices()
    gone.url = dead
    with pytest.raises(Unavailable) as caught:
        call(gone, secret_params={"api_key": "s3cret"})
    assert "connection failed" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


def test_a_redirect_to_another_host_is_not_followed() -> None:
    with serving() as services, serving() as thief:
        target = thief.url.replace("127.0.0.1", "localhost") + "/x"
        services.routes["/x"] = Answer(b"", 302, {"Location": target})
        thief.routes["/x"] = as_json({"stolen": True})
        with pytest.raises(Unavailable, match="host"):
            call(services, Policy(attempts=1), secret_headers={"x-api-key": "s3cret"})
        assert thief.seen == []


def test_a_second_run_sends_no_request(tmp_path: Path) -> None:
    with serving() as services:
        services.routes["/x"] = as_json({"a": 1})
        call(services, cache=DiskCache(tmp_path))
        value, usage = call(services, cache=DiskCache(tmp_path))
        assert len(services.seen) == 1
    assert value == {"a": 1}
    assert (usage.requests, usage.cached) == (0, 1)


def test_a_damaged_entry_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    with serving() as services:
        services.routes["/x"] = as_json({"a": 1})
        call(services, cache=cache)
        (entry,) = [path for path in tmp_path.rglob("*") if path.is_file()]
        entry.write_bytes(entry.read_bytes()[:-3])
        assert call(services, cache=cache)[0] == {"a": 1}
        assert len(services.seen) == 2


def test_no_secret_reaches_the_disk_and_keys_do_not_depend_on_it(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    with serving() as services:
        services.routes["/x"] = as_json({"a": 1})
        call(services, cache=cache, secret_params={"api_key": "s3cret"})
        call(services, cache=cache, secret_params={"api_key": "other"})
        assert len(services.seen) == 1
        assert services.seen[0].params["api_key"] == "s3cret"
    for path in tmp_path.rglob("*"):
        assert "s3cret" not in path.name
        assert path.is_dir() or b"s3cret" not in path.read_bytes()


def test_the_cache_forgets_the_oldest_beyond_its_size(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, max_bytes=3000)
    for number in range(10):
        cache.save(DiskCache.key("s", "GET", f"u{number}", {}, None), b"x" * 500)
    held = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert held <= 3000
    assert cache.get(DiskCache.key("s", "GET", "u9", {}, None)) is not None


def test_the_same_request_twice_at_once_travels_once(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        client = ServiceClient(DiskCache(tmp_path), FAST)
        asked = Request("svc", MANY, url + "/x")
        await asyncio.gather(*(client.fetch(asked, json.loads) for _ in range(5)))
        await client.close()

    with serving() as services:
        services.routes["/x"] = as_json({}, delay=0.1)
        asyncio.run(work(services.url))
        assert len(services.seen) == 1
