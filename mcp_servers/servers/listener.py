"""A listening socket that strangers cannot fill: few connections, each with little time.

A connection has some seconds to bring the head of a request that is let in, counted from the moment
it is accepted, so a TLS handshake that never ends counts too. When all places are taken, the
oldest connection that never brought such a request makes room. So however many connections are
opened and left open, a caller who holds the token finds a place.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import Any

Peer = tuple[str, int]
"""Address and port of the other end, by which a connection is known."""


@dataclass
class Held:
    """An open connection; `deadline` closes it, `known` says that it brought an allowed request.

    `busy` counts the requests in work: a new request may overlap the previous.
    """

    socket: socket.socket
    deadline: asyncio.TimerHandle | None = None
    known: bool = False
    busy: int = 0

    def cancel_deadline(self) -> None:
        """Give the connection all the time it wants."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def set_deadline(self, seconds: float) -> None:
        """Close the connection in `seconds` unless something else is decided before."""
        self.cancel_deadline()
        self.deadline = asyncio.get_running_loop().call_later(seconds, self.close)

    def close(self) -> None:
        """Hang up; the event loop notices the end and frees the rest."""
        self.cancel_deadline()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class BoundedListener(socket.socket):
    """A TCP socket to listen on, for an asyncio event loop that calls its `accept`."""

    def __init__(
        self, family: socket.AddressFamily, *, most: int, head_seconds: float, body_seconds: float
    ) -> None:
        """Hold at most `most` connections."""
        # The event loop sends without delay only where the protocol is named (else 40 ms a call).
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.most = most
        self.head_seconds = head_seconds
        self.body_seconds = body_seconds
        self.held: dict[Peer, Held] = {}

    def listen(self, backlog: int = 0) -> None:
        """Listen with a queue of 128 however few the event loop accepts in a turn."""
        super().listen(max(backlog, 128))

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection; another may have to make room, or it is closed at once."""
        connection, address = super().accept()
        held = Held(connection)
        if len(self.held) >= self.most and not self._make_room():
            held.close()
            return connection, address
        held.set_deadline(self.head_seconds)
        self.held[address[:2]] = held
        return connection, address

    def _make_room(self) -> bool:
        """Forget the closed connections, else close the oldest idle connection."""
        open_ones = {peer: held for peer, held in self.held.items() if held.socket.fileno() != -1}
        if len(open_ones) == len(self.held):
            waiting = [peer for peer, held in open_ones.items() if held.deadline is not None]
            waiting.sort(key=lambda peer: open_ones[peer].known)
            if not waiting:
                return False
            open_ones.pop(waiting[0]).close()
        self.held = open_ones
        return True

    def admit(self, peer: Peer) -> None:
        """Admit a request from `peer`; its body has to come in time."""
        if held := self.held.get(peer):
            held.known = True
            held.busy += 1
            held.set_deadline(self.body_seconds)

    def finish_request(self, peer: Peer) -> None:
        """Note that the whole request is here; the answer may take any time."""
        if held := self.held.get(peer):
            held.cancel_deadline()

    def idle(self, peer: Peer) -> None:
        """Note that the request is answered; the next has to arrive in time."""
        if held := self.held.get(peer):
            held.busy -= 1
            if not held.busy:
                held.set_deadline(self.head_seconds)
