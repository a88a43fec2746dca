"""Transport over standard input and output with a line-length limit.

The SDK's own reader reads a whole line first. This reader never buffers more than the
limit: the rest of a longer line is discarded as it arrives, and the sender gets an error.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import anyio
import anyio.to_thread

CHUNK = 64 << 10
TAIL = 256
_ID = rb'"id"\s*:\s*(-?\d{1,18}|"[^"\\]{1,100}")'
_FIRST = re.compile(rb"(?<!\\)" + _ID + rb"\s*,")
_OTHERS = rb'(?:,\s*"\w{1,20}"\s*:\s*"[^"\\]{0,100}"\s*)*'
_LAST = re.compile(rb"\s*" + _OTHERS + rb",\s*" + _ID + rb"\s*" + _OTHERS + rb"\}\s*$")


class BoundedLines:
    """Lines of a binary stream, iterated over by the SDK; overlong lines cause an error."""

    def __init__(self, stream: BinaryIO, wire: Wire, limit: int) -> None:
        """Read lines of at most `limit` bytes, excluding the line ending, from `stream`."""
        self.stream = stream
        self.wire = wire
        self.limit = limit

    def __aiter__(self) -> BoundedLines:
        return self

    async def __anext__(self) -> str:
        line = await anyio.to_thread.run_sync(self.next_line, abandon_on_cancel=True)
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")

    def next_line(self) -> bytes:
        """Return the next line within the limit, or empty bytes at the end."""
        while True:
            line = self.stream.readline(self.limit + 1)
            if len(line) <= self.limit or line.endswith(b"\n"):
                return line
            head, tail = line[:TAIL], line[-TAIL:]
            del line
            while part := self.stream.readline(CHUNK):
                tail = (tail + part)[-TAIL:]
                if part.endswith(b"\n"):
                    break
            self.wire.send(refusal(request_id(head, tail), self.limit))


def request_id(head: bytes, tail: bytes) -> int | str | None:
    """Find the id of a JSON-RPC request from only its beginning and end; None if not found.

    Only text outside any inner object is searched, before the second brace or after the
    second to last, so that an id among the arguments is never mistaken for it.
    """
    outer = head.split(b"{", 2)
    found = _FIRST.search(outer[1]) if len(outer) == 3 else None
    if found is None:
        last = tail.rstrip().removesuffix(b"}").rfind(b"}")
        found = _LAST.match(tail[last + 1 :]) if last >= 0 else None
    return None if found is None else json.loads(found.group(1))


def refusal(request: int | str | None, limit: int) -> bytes:
    """Format the JSON-RPC error for an oversized line."""
    error = {"code": -32600, "message": f"the message has more than {limit} bytes"}
    return json.dumps({"jsonrpc": "2.0", "id": request, "error": error}).encode() + b"\n"


class Wire:
    """Standard output for the SDK, on which lines from its writer and reader do not interleave."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.lock = threading.Lock()

    def send(self, line: bytes) -> None:
        """Write a complete line to standard output."""
        with self.lock:
            self.stream.write(line)
            self.stream.flush()

    async def write(self, text: str) -> None:
        """Write a complete line to standard output."""
        await anyio.to_thread.run_sync(self.send, text.encode())

    async def flush(self) -> None:
        """Do nothing, since lines are never buffered."""


@contextmanager
def wire_of(limit: int) -> Iterator[tuple[Any, Any]]:
    """Reserve the process's standard input and output for the SDK within a `with` block.

    Within the block, descriptor 0 is the null device and descriptor 1 is standard error, so
    that nothing else, such as a child process or a stray print, reads from or writes to the
    transport.
    """
    taken, given = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    # A thread may still wait in a read when the block ends, so the descriptor is never closed.
    stdin = os.fdopen(taken, "rb", buffering=CHUNK, closefd=False)
    stdout = os.fdopen(given, "wb", closefd=False)
    wire = Wire(stdout)
    try:
        yield BoundedLines(stdin, wire, limit), wire
    finally:
        os.dup2(taken, 0)
        os.dup2(given, 1)
