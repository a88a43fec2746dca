"""HTTP access control: checks a request's Host and Origin, then its bearer token."""

from __future__ import annotations

import hmac
import json
from typing import Any

from mcp_servers.servers.callers import Callers
from mcp_servers.servers.health import Watch
from mcp_servers.servers.listener import BoundedListener
from mcp_servers.servers.options import (
    DEFAULT_PORTS,
    Authority,
    HttpOptions,
    parse_authority,
    parse_origin,
)

UNNAMED = "people must connect through the proxy, which identifies them"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Gate:
    """ASGI middleware that rejects requests without a valid Host, Origin and token."""

    def __init__(
        self,
        app: Any,
        options: HttpOptions,
        listener: BoundedListener | None = None,
        watch: Watch | None = None,
        callers: Callers | None = None,
    ) -> None:
        self.app = app
        self.callers = callers
        self.watch = watch or Watch()
        self.token = None if options.token is None else options.token.encode()
        self.named = [parse_authority(name.removesuffix(":*")) for name in options.allowed_hosts]
        self.hosts = list(self.named)
        if options.on_loopback:
            self.hosts += [(host, None) for host in (*LOOPBACK, options.host.strip("[]").lower())]
        self.listener = listener

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer 421, 403 or 401 to a request that is not allowed; /healthz needs no token."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            if await self.watch.answer_health(scope, send):
                return
            send = self.watch.count_answers(send)
            refused = self.refusal(scope["headers"])
            if refused is not None:
                await _refuse(send, *refused)
            elif await self.watch.answer_metrics(scope, send):
                return
            elif not self._identify_caller(scope):
                await _refuse(send, 403, UNNAMED, "unnamed")
            elif self.listener is None:
                await self.app(scope, receive, send)
            else:
                await pass_on(self.app, self.listener, scope, receive, send)

    def _identify_caller(self, scope: Any) -> bool:
        """Record the caller in the request; return False if a caller is required but unknown."""
        if self.callers is None:
            return True
        who = self.callers.named(scope)
        scope["state"] = (scope.get("state") or {}) | {"person": who}
        return who is not None

    def refusal(self, headers: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        """Return the status and reason for refusing a request, or None if it is allowed."""
        hosts = _values(headers, b"host")
        host = parse_authority(hosts[0]) if len(hosts) == 1 else None
        if host is None or (self.hosts and not _is_allowed(host, self.hosts)):
            return 421, "the Host header is not allowed; see --allowed-host"
        origins = _values(headers, b"origin")
        if origins and not (len(origins) == 1 and self._same_origin(origins[0], host)):
            return 403, "the Origin header is not allowed; see --allowed-host"
        if self.token is not None and not self.authorized(headers, self.token):
            return 401, "bearer token needed"
        return None

    def _same_origin(self, text: str, host: Authority) -> bool:
        """Check whether the page came from the host being called or from an allowed host."""
        origin = parse_origin(text)
        if origin is None:
            return False
        default = DEFAULT_PORTS[text.partition(":")[0]]
        return origin == (host[0], host[1] or default) or _is_allowed(origin, self.named)

    @staticmethod
    def authorized(headers: list[tuple[bytes, bytes]], expected: bytes) -> bool:
        """Check, in constant time, that exactly one Authorization header contains the token."""
        given = [value for name, value in headers if name.lower() == b"authorization"]
        if len(given) != 1:
            return False
        kind, _, token = given[0].partition(b" ")
        return hmac.compare_digest(token.strip(), expected) and kind.lower() == b"bearer"


async def pass_on(app: Any, listener: BoundedListener, scope: Any, receive: Any, send: Any) -> None:
    """Forward an allowed request, and report it to the listener."""
    peer = scope["client"]
    person = (scope.get("state") or {}).get("person") or ""
    listener.admit(peer, person, reads=scope["method"] == "GET")

    async def receive_body() -> Any:
        message = await receive()
        if not message.get("more_body", False):
            listener.finish_request(peer)
        return message

    try:
        await app(scope, receive_body, send)
    finally:
        listener.idle(peer)


def _values(headers: list[tuple[bytes, bytes]], wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in headers if name.lower() == wanted]


def _is_allowed(given: Authority, allowed: list[Authority | None]) -> bool:
    """Check whether the given host is allowed; an allowed host without a port allows any port."""
    return any(rule is not None and rule in (given, (given[0], None)) for rule in allowed)


async def _refuse(send: Any, status: int, reason: str, error: str = "") -> None:
    error = error or {401: "invalid_token", 403: "foreign_origin", 421: "foreign_host"}[status]
    body = json.dumps({"error": error, "error_description": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer error="invalid_token"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
