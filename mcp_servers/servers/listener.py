"""Listening socket that strangers cannot exhaust: few connections, each with a time limit.

A connection has a few seconds to send the head of an allowed request, counted from the
moment it is accepted, so that an unfinished TLS handshake counts too. If all slots are
taken, a connection is closed to make room. The first choice is the oldest connection that
never sent such a request, then the oldest idle connection, then the oldest stream (or
else response) of the person with the most connections. A caller with the token can
therefore always connect, however many connections are opened and left open, and no person
can lock out another.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from dataclasses import dataclass
from typing import Any

Peer = tuple[str, int]
"""Remote address and port that identify a connection."""


@dataclass
class Held:
    """An open connection; `deadline` closes it, and `known` means that it sent an allowed request.

    `busy` counts the requests in progress, since a new request may overlap the previous one.
    `person` sent the last request, and `reads` is true if that request only reads, as every
    stream does.
    """

    socket: socket.socket
    deadline: asyncio.TimerHandle | None = None
    known: bool = False
    busy: int = 0
    person: str = ""
    reads: bool = False

    def cancel_deadline(self) -> None:
        """Remove the connection's time limit."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def set_deadline(self, seconds: float) -> None:
        """Close the connection after `seconds` unless the deadline is changed first."""
        self.cancel_deadline()
        self.deadline = asyncio.get_running_loop().call_later(seconds, self.close)

    def close(self) -> None:
        """Close the connection; the event loop notices and releases the other resources."""
        self.cancel_deadline()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class BoundedListener(socket.socket):
    """A listening TCP socket for an asyncio event loop that calls its `accept`."""

    def __init__(
        self, family: socket.AddressFamily, *, most: int, head_seconds: float, body_seconds: float
    ) -> None:
        """Create a socket that allows at most `most` open connections."""
        # The event loop disables send delays only if the protocol is named (else 40 ms per call).
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.most = most
        self.head_seconds = head_seconds
        self.body_seconds = body_seconds
        self.held: dict[Peer, Held] = {}

    def listen(self, backlog: int = 0) -> None:
        """Listen with a backlog of 128, however few connections the loop accepts per turn."""
        super().listen(max(backlog, 128))

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection, closing another to make room, or refuse it immediately."""
        connection, address = super().accept()
        held = Held(connection)
        if len(self.held) >= self.most and not self._make_room():
            held.close()
            return connection, address
        held.set_deadline(self.head_seconds)
        self.held[address[:2]] = held
        return connection, address

    def _make_room(self) -> bool:
        """Discard closed connections; if there are none, close an expendable connection."""
        open_ones = {peer: held for peer, held in self.held.items() if held.socket.fileno() != -1}
        if len(open_ones) == len(self.held):
            waiting = [peer for peer, held in open_ones.items() if held.deadline is not None]
            waiting.sort(key=lambda peer: open_ones[peer].known)
            if not waiting:
                shares = Counter(held.person for held in open_ones.values())
                waiting = sorted(
                    open_ones,
                    key=lambda peer: (-shares[open_ones[peer].person], not open_ones[peer].reads),
                )
            if not waiting:
                return False
            open_ones.pop(waiting[0]).close()
        self.held = open_ones
        return True

    def admit(self, peer: Peer, person: str = "", *, reads: bool = False) -> None:
        """Admit a request from `peer`; its body must arrive before the deadline."""
        if held := self.held.get(peer):
            held.known, held.person, held.reads = True, person, reads
            held.busy += 1
            held.set_deadline(self.body_seconds)

    def finish_request(self, peer: Peer) -> None:
        """Record that a request has arrived in full; the response has no time limit."""
        if held := self.held.get(peer):
            held.cancel_deadline()

    def idle(self, peer: Peer) -> None:
        """Record that a request was answered; the next must arrive before the deadline."""
        if held := self.held.get(peer):
            held.busy -= 1
            if not held.busy:
                held.set_deadline(self.head_seconds)
