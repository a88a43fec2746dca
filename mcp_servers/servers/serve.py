"""Running a server over standard input and output, or over streamable HTTP."""

from __future__ import annotations

import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from mcp_servers.servers.gate import Gate
from mcp_servers.servers.health import Watch
from mcp_servers.servers.listener import BoundedListener
from mcp_servers.servers.options import HttpOptions
from mcp_servers.servers.stdio import wire_of
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.servers.server import ToolServer

PATH = "/mcp"
AT_ONCE = 16
"""Number of connections accepted in a row before open connections get their turn."""


def serve_stdio(server: ToolServer) -> None:
    """Serve a client over standard input and output until it disconnects."""
    from mcp.server.stdio import stdio_server

    async def main() -> None:
        built = server.build()
        with wire_of(server.limits.request) as (stdin, stdout):
            async with stdio_server(stdin, stdout) as (read, write):
                await built.run(read, write, built.create_initialization_options())

    anyio.run(main)


def http_app(
    server: ToolServer, options: HttpOptions, listener: BoundedListener | None = None
) -> Any:
    """Build the ASGI app: access gate (Host, Origin, token), body limit, and MCP at /mcp."""
    from mcp.server.transport_security import TransportSecuritySettings

    app = server.build().streamable_http_app(
        streamable_http_path=PATH,
        max_request_body_size=server.limits.request,
        # The gate compares parsed names; the SDK's own check compares the beginnings of strings.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        host=options.host,
    )
    return Gate(app, options, listener, Watch(server.metrics), server.callers)


def serve_http(
    server: ToolServer, options: HttpOptions, started: Callable[[str], None] | None = None
) -> None:
    """Serve over HTTP until interrupted; `started` is called with the address.

    Raises `InputError` if the address cannot be bound or would be open to strangers.
    """
    bound = listen(options)
    serve_app(
        http_app(server, options, bound),
        bound,
        options,
        lambda address: started(f"{address}{PATH}") if started else None,
    )


def listen(options: HttpOptions) -> BoundedListener:
    """Bind a listening socket, so that clients can connect as soon as they know the address.

    Raises `InputError` if the address cannot be bound or would be open to strangers.
    """
    options.check()
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    bound = BoundedListener(
        family,
        most=min(options.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2),
        head_seconds=options.head_seconds,
        body_seconds=options.body_seconds,
    )
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((options.host, options.port))
        bound.listen()
    except OSError as error:
        bound.close()
        raise InputError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror}; try another --port"
        ) from error
    return bound


def serve_app(
    app: Any, bound: BoundedListener, options: HttpOptions, started: Callable[[str], None]
) -> None:
    """Serve an application on a bound socket until interrupted.

    `started` is called with the address. Raises `InputError` if the certificate cannot be used.
    """
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        backlog=AT_ONCE,
        loop="asyncio",  # whose `accept` the listener bounds
        http="h11",
        ws="none",
        proxy_headers=False,  # a connection is known by its own address
        timeout_graceful_shutdown=5,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    if options.certificate is not None:
        try:
            config.load()
        except OSError as error:  # includes ssl.SSLError
            bound.close()
            raise InputError(
                f"certificate {options.certificate} and key {options.key} cannot be used: {error}"
            ) from error
    host = f"[{options.host}]" if bound.family == socket.AF_INET6 else options.host
    scheme = "http" if options.certificate is None else "https"
    try:
        with _ended_by_sigterm():
            started(f"{scheme}://{host}:{bound.getsockname()[1]}")
            uvicorn.Server(config).run(sockets=[bound])
    finally:
        bound.close()


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM end the program normally: uvicorn raises it again after the last response.

    By default, the signal would kill the program and leave running jobs behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
