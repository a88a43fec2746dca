"""Run a server over standard input and output, or over streamable HTTP."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio

from mcp_servers.errors import InputError
from mcp_servers.servers.options import HttpOptions, is_loopback

if TYPE_CHECKING:
    from mcp_servers.servers.server import ToolServer

PATH = "/mcp"


def serve_stdio(server: ToolServer) -> None:
    """Serve one client over standard input and output until it hangs up."""
    from mcp.server.stdio import stdio_server

    from mcp_servers.servers.stdio import wire_of

    async def main() -> None:
        built = server.build()
        with wire_of(server.limits.request) as (stdin, stdout):
            async with stdio_server(stdin, stdout) as (read, write):
                await built.run(read, write, built.create_initialization_options())

    anyio.run(main)


class BearerGate:
    """ASGI middleware: nothing passes without the token. The comparison takes constant time."""

    def __init__(self, app: Any, token: str) -> None:
        """Guard `app`."""
        self.app = app
        self.expected = token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer 401 to a request without the token."""
        if scope["type"] == "lifespan" or (scope["type"] == "http" and self.allows(scope)):
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        body = json.dumps({"error": "invalid_token", "error_description": "bearer token needed"})
        await send(
            {
                "type": "http.response.start",
                "status": 401,
                "headers": [
                    (b"content-type", b"application/json"),
                    (b"content-length", str(len(body)).encode()),
                    (b"www-authenticate", b'Bearer error="invalid_token"'),
                ],
            }
        )
        await send({"type": "http.response.body", "body": body.encode()})

    def allows(self, scope: Any) -> bool:
        """True when exactly one Authorization header carries the token."""
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if len(given) != 1:
            return False
        kind, _, token = given[0].partition(b" ")
        return hmac.compare_digest(token.strip(), self.expected) and kind.lower() == b"bearer"


def http_app(server: ToolServer, options: HttpOptions) -> Any:
    """The ASGI application: body limit, host check, bearer token, MCP at /mcp."""
    from mcp.server.transport_security import TransportSecuritySettings

    options.check()
    hosts = list(options.allowed_hosts)
    if is_loopback(options.host):
        hosts += ["127.0.0.1:*", "localhost:*", "[::1]:*"]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=bool(hosts),
        allowed_hosts=[*hosts, *(f"{one}:*" for one in options.allowed_hosts if ":" not in one)],
        allowed_origins=[f"{scheme}://{one}" for one in hosts for scheme in ("http", "https")],
    )
    app = server.build().streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=server.limits.request,
        transport_security=security,
        host=options.host,
    )
    return app if options.token is None else BearerGate(app, options.token)


def serve_http(
    server: ToolServer, options: HttpOptions, started: Callable[[str], None] | None = None
) -> None:
    """Serve over HTTP until interrupted; `started` is told the address.

    Raises `InputError` when the address cannot be bound or would be open to strangers.
    """
    import uvicorn

    app = http_app(server, options)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((options.host, options.port))
        bound.listen(128)  # so that a client may call as soon as it is told the address
    except OSError as error:
        bound.close()
        raise InputError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror}; try another --port"
        ) from error
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    if options.certificate is not None:
        try:
            config.load()
        except OSError as error:  # ssl.SSLError is one
            bound.close()
            raise InputError(
                f"certificate {options.certificate} and key {options.key} cannot be used: {error}"
            ) from error
    if started is not None:
        host = f"[{options.host}]" if family == socket.AF_INET6 else options.host
        scheme = "http" if options.certificate is None else "https"
        started(f"{scheme}://{host}:{bound.getsockname()[1]}{PATH}")
    try:
        uvicorn.Server(config).run(sockets=[bound])
    finally:
        bound.close()
