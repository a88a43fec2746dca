"""HTTP client with limits on rate, concurrency, size and time, retries and a disk cache."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    RetryError,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)
from tenacity.wait import wait_base

from sage.core import clock, egress
from sage.core.http.cache import DiskCache
from sage.core.http.errors import OverBudget, ServiceError, SourceChanged, Unavailable
from sage.core.http.limits import Breaker, Gate, Limit
from sage.core.http.runner import Runner
from sage.core.log import logger

if TYPE_CHECKING:
    import httpx

__all__ = ["Limit", "Policy", "Request", "ServiceClient", "Usage", "meter_requests"]

T = TypeVar("T")
log = logger(__name__)

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
USER_AGENT = "SAGE/0.1 (computational pathology literature client)"


@dataclass(frozen=True)
class Policy:
    """Limits on time and response size, in seconds and bytes.

    `deadline` limits a call including all its retries; `attempt` limits a single attempt from
    first to last byte, so that a server which sends bytes very slowly cannot block a run.
    `longest_wait` is the longest `Retry-After` that is honored; a longer delay ends the call.
    `patience` is the longest wait for a slot under the service's rate limit (None: as long as
    the deadline allows).
    """

    attempts: int = 4
    deadline: float = 45.0
    attempt: float = 15.0
    connect: float = 5.0
    backoff: float = 0.5
    backoff_max: float = 8.0
    longest_wait: float = 20.0
    patience: float | None = None
    max_bytes: int = 16 * 1024 * 1024
    breaker_threshold: int = 5
    breaker_cool_off: float = 60.0


@dataclass(frozen=True)
class Request:
    """An HTTP request whose `secret_params` and `secret_headers` are never cached or logged."""

    service: str
    limit: Limit
    url: str
    params: Mapping[str, str | int] = field(default_factory=dict)
    method: str = "GET"
    json: Any = None
    data: Mapping[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_params: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    missing_is_empty: bool = False


@dataclass
class Usage:
    """Counts of requests sent and cache hits within a block."""

    requests: int = 0
    cached: int = 0


_meter: ContextVar[Usage | None] = ContextVar("sage_service_usage", default=None)


@contextlib.contextmanager
def meter_requests() -> Iterator[Usage]:
    """Count the requests and cache hits of all calls made, and tasks started, within the block."""
    usage = Usage()
    token = _meter.set(usage)
    try:
        yield usage
    finally:
        _meter.reset(token)


class ServiceClient:
    """A client that fetches from many services, each at its own rate, and caches responses on disk.

    A client belongs to one event loop. `fetch` returns the value that `read` produced from
    the body, or raises `ServiceError`; nothing that a server does causes any other exception.
    """

    def __init__(
        self,
        cache: DiskCache | None = None,
        policy: Policy | None = None,
        *,
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self.cache = cache
        self.policy = policy or Policy()
        self._sleep = sleep
        self._gates: dict[str, Gate] = {}
        self._flying: dict[str, asyncio.Lock] = {}
        self._http: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def fetch(
        self, request: Request, read: Callable[[bytes], T], *, patience: float | None = None
    ) -> T:
        """Send `request` and return its response as parsed by `read`.

        `read` receives the body and raises `SourceChanged` if it does not recognize the format;
        ValueError, KeyError and TypeError are converted to it. Only a body that was parsed
        successfully is cached. A body cut off mid-transfer is retried; a complete but unreadable
        response is retried once, since proxies sometimes answer 200 with an error page.

        Raises
        ------
        Unavailable
            If there is no usable response: the breaker is open, the deadline passed, or the
            service refused.
        OverBudget
            If the service's rate limit has no slot within `patience` seconds.
        SourceChanged
            If the body is not in the documented format.
        """
        key = DiskCache.key(
            request.service,
            request.method,
            request.url,
            dict(request.params),
            [request.json, dict(request.data or {})],
        )
        # The second of two identical requests waits, then finds the response cached.
        lock = self._flying.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                stored = self.cache.get(key) if self.cache else None
                if stored is not None and self.cache is not None:
                    try:
                        value = understood(request.service, stored, read)
                    except SourceChanged as problem:
                        log.info("cached answer dropped", reason=str(problem))
                        self.cache.drop(key)
                    else:
                        self._count(cached=1)
                        return value
                body, value = await self._ask(request, read, patience)
                if self.cache is not None:
                    self.cache.save(key, body)
                return value
        finally:
            if not lock.locked():
                self._flying.pop(key, None)

    async def _ask(
        self, request: Request, read: Callable[[bytes], T], patience: float | None
    ) -> tuple[bytes, T]:
        gate = self._gate(request)
        closed_for = gate.breaker.refuses()
        if closed_for is not None:
            raise Unavailable(
                request.service,
                f"not contacted: it failed {gate.breaker.threshold} times in a row; next attempt "
                f"in {closed_for:.0f} s",
            )
        try:
            async with asyncio.timeout(self.policy.deadline):
                answer = await self._attempts(request, read, gate, patience)
        except TimeoutError:
            gate.breaker.failed()
            raise Unavailable(
                request.service, f"no complete response within {self.policy.deadline:g} s"
            ) from None
        except OverBudget:
            gate.breaker.abandoned()
            raise
        except ServiceError:
            gate.breaker.failed()
            raise
        except BaseException:
            gate.breaker.abandoned()
            raise
        gate.breaker.succeeded()
        return answer

    async def _attempts(
        self, request: Request, read: Callable[[bytes], T], gate: Gate, patience: float | None
    ) -> tuple[bytes, T]:
        policy = self.policy
        tries = AsyncRetrying(
            retry=retry_if_exception_type(_PassingError),
            stop=stop_after_attempt(policy.attempts),
            wait=_asked_to_wait() + wait_random_exponential(policy.backoff, policy.backoff_max),
            sleep=self._sleep,
            before_sleep=_tell,
        )
        try:
            async for attempt in tries:
                with attempt:
                    first = attempt.retry_state.attempt_number == 1
                    return await self._attempt(request, read, gate, patience, first)
        except RetryError as ended:
            raise cast(_PassingError, ended.last_attempt.exception()).problem from None
        raise AssertionError("unreachable")

    async def _attempt(
        self,
        request: Request,
        read: Callable[[bytes], T],
        gate: Gate,
        patience: float | None,
        first: bool,
    ) -> tuple[bytes, T]:
        policy = self.policy
        wait = gate.throttle.book(policy.patience if patience is None else patience)
        if wait is None:
            slot = gate.throttle.next_slot() - clock.monotonic()
            raise OverBudget(
                request.service,
                f"its published rate limit ({request.limit.requests} per {request.limit.per:g} "
                f"s) does not allow another request for {slot:.1f} s",
            )
        await self._sleep(wait)
        try:
            async with gate.slots:
                status, headers, body = await self._in_turn(request, gate)
        except TimeoutError:
            reason = f"no complete response within {policy.attempt:g} s"
            raise _PassingError(Unavailable(request.service, reason)) from None
        except Unavailable as problem:
            raise _PassingError(problem) from None
        if status == 200 or (status == 404 and request.missing_is_empty):
            try:
                return body, understood(request.service, body, read)
            except SourceChanged as problem:
                if first and _may_be_transient(body):
                    raise _PassingError(problem) from None
                raise
        if status not in _RETRIED:
            raise Unavailable(request.service, f"HTTP {status}{_hint(status)}")
        pause = clock.parse_retry_after(headers.get("retry-after", ""))
        gate.throttle.hold(pause or 0.0)
        if pause is not None and pause > policy.longest_wait:
            raise Unavailable(request.service, f"HTTP {status}, requests a wait of {pause:.0f} s")
        raise _PassingError(Unavailable(request.service, f"HTTP {status}"), pause or 0.0)

    async def _in_turn(self, request: Request, gate: Gate) -> tuple[int, Mapping[str, str], bytes]:
        """Send one attempt once the throttle, which counts requests actually sent, allows it."""
        held = False

        def mark_sent() -> None:
            nonlocal held
            gate.throttle.sent()
            self._count(requests=1)
            if held:
                held = False
                gate.door.release()

        await gate.door.acquire()
        held = True
        try:
            while (wait := gate.throttle.still_to_wait()) > 0.0:
                await self._sleep(wait)
            async with asyncio.timeout(self.policy.attempt):
                return await self._send(request, mark_sent)
        finally:
            if held:
                gate.door.release()

    async def _send(
        self, request: Request, mark_sent: Callable[[], None]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request and return status, headers and body; call `mark_sent` once it is sent.

        Redirects are followed only on the same host.
        """
        import httpx

        http = self._open()
        try:
            url = httpx.URL(request.url)
        except httpx.InvalidURL:
            raise Unavailable(request.service, "its address is invalid") from None
        params: dict[str, str | int] | None = {**request.params, **request.secret_params}
        headers = {"User-Agent": USER_AGENT, **request.headers, **request.secret_headers}

        async def trace(event: str, _: dict[str, Any]) -> None:
            if event.endswith(".send_request_headers.started"):
                mark_sent()

        egress.permit(request.url)
        for _ in range(4):
            try:
                async with http.stream(
                    request.method,
                    url,
                    params=params or None,
                    headers=headers,
                    json=request.json,
                    data=dict(request.data) if request.data else None,
                    extensions={"trace": trace},
                ) as response:
                    if response.status_code in _REDIRECTS and "location" in response.headers:
                        target = response.url.join(response.headers["location"])
                        if target.host != response.url.host or (
                            response.url.scheme == "https" and target.scheme != "https"
                        ):
                            raise Unavailable(request.service, "redirected to another host")
                        url, params = target, None
                        continue
                    body = bytearray()
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        if len(body) > self.policy.max_bytes:
                            raise Unavailable(
                                request.service,
                                f"response larger than {self.policy.max_bytes // 1024} KiB",
                            )
                    return response.status_code, response.headers, bytes(body)
            except httpx.TimeoutException:
                raise Unavailable(request.service, "timed out") from None
            except (httpx.HTTPError, httpx.InvalidURL) as problem:
                # The exception's text may contain the URL with a key, so none of it is shown.
                raise Unavailable(
                    request.service, f"connection failed: {_describe_error(problem)}"
                ) from None
        raise Unavailable(request.service, "circular redirects")

    def _open(self) -> httpx.AsyncClient:
        if self._http is None:
            import httpx

            self._http = httpx.AsyncClient(
                timeout=httpx.Timeout(self.policy.attempt, connect=self.policy.connect),
                follow_redirects=False,
                trust_env=egress.trust_environment(),
            )
        return self._http

    def _gate(self, request: Request) -> Gate:
        gate = self._gates.get(request.service)
        if gate is None:
            breaker = Breaker(self.policy.breaker_threshold, self.policy.breaker_cool_off)
            gate = self._gates[request.service] = Gate(request.limit, breaker)
        return gate

    def _count(self, *, requests: int = 0, cached: int = 0) -> None:
        usage = _meter.get()
        if usage is not None:
            usage.requests += requests
            usage.cached += cached


class _PassingError(Exception):
    """A transient problem: the request is worth another attempt after `pause` seconds."""

    def __init__(self, problem: ServiceError, pause: float = 0.0) -> None:
        super().__init__(str(problem))
        self.problem, self.pause = problem, pause


class BlockingClient:
    """A `ServiceClient` for synchronous callers in any thread; use it as a context manager."""

    def __init__(self, cache: DiskCache | None = None, policy: Policy | None = None) -> None:
        self._runner, self._client = Runner(), ServiceClient(cache, policy)

    def fetch(self, request: Request, read: Callable[[bytes], T]) -> T:
        """Fetch a request as `ServiceClient.fetch` does, blocking until it completes."""
        return self._runner.run(self._client.fetch(request, read))

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


def _describe_error(problem: Exception) -> str:
    """Describe a connection error in plain language."""
    import httpx

    said = {
        httpx.ConnectError: "no server responds at its address",
        httpx.UnsupportedProtocol: "its address does not start with http:// or https://",
        httpx.InvalidURL: "its address is invalid",
        httpx.ProxyError: "the proxy refused",
        httpx.RemoteProtocolError: "its server does not speak HTTP, or closed the connection",
        httpx.DecodingError: "its response is damaged",
    }
    return next((words for kind, words in said.items() if isinstance(problem, kind)), "broken off")


def _tell(state: RetryCallState) -> None:
    problem = cast(_PassingError, state.outcome.exception()).problem if state.outcome else None
    if isinstance(problem, ServiceError):
        wait = round(state.upcoming_sleep, 2)
        log.info("retrying", service=problem.service, reason=problem.reason, wait_s=wait)


class _asked_to_wait(wait_base):  # noqa: N801 - as tenacity names them
    """Tenacity wait strategy that uses the pause requested by the service."""

    def __call__(self, retry_state: RetryCallState) -> float:
        outcome = retry_state.outcome
        return cast(_PassingError, outcome.exception()).pause if outcome else 0.0


def understood(service: str, body: bytes, read: Callable[[bytes], T]) -> T:
    """Parse `body` with `read`, converting parsing errors to `SourceChanged`."""
    try:
        return read(body)
    except SourceChanged:
        raise
    except KeyError as problem:
        name = str(problem.args[0])[:80] if problem.args else ""
        raise SourceChanged(service, f'field "{name}" is missing from its response') from problem
    except (
        ValueError,
        TypeError,
        AttributeError,
        IndexError,
        OverflowError,
        RecursionError,
    ) as problem:
        raise SourceChanged(service, "its response does not match its documentation") from problem


def _may_be_transient(body: bytes) -> bool:
    """Check whether a retry may fix the body.

    This is the case if it is truncated, empty, or an HTML error page.
    """
    text = body.strip()
    if not text or (text[:1] == b"<" and b"<html" in text[:2000].lower()):
        return True
    return text[:1] in b"{[<" and text[-1:] not in b"}]>"


def _hint(status: int) -> str:
    return {401: " (needs a key)", 403: " (refused; a key or a contact may be needed)"}.get(
        status, ""
    )
