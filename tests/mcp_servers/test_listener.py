"""The listening socket: what it gives to each connection."""

from __future__ import annotations

import asyncio
import socket

import pytest

from mcp_servers.servers.listener import BoundedListener


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
@pytest.mark.anyio
async def test_small_answers_leave_at_once(family: socket.AddressFamily, host: str) -> None:
    """Head and body are two writes; held back, the second waits 40 ms for an acknowledgment."""
    option: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held = writer.get_extra_info("socket")
        option.set_result(held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    bound = BoundedListener(family, most=4, head_seconds=5, body_seconds=5)
    try:
        bound.bind((host, 0))
    except OSError:
        bound.close()
        pytest.skip(f"no {host} here")
    bound.listen()
    async with await asyncio.start_server(connected, sock=bound):
        _, writer = await asyncio.open_connection(host, bound.getsockname()[1])
        assert await asyncio.wait_for(option, 10)
        writer.close()
