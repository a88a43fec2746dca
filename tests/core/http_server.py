"""A local HTTP server that answers as told: recorded bodies, errors, delays, drips."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from sage.core.http.client import Limit, Policy

FAST = Policy(
    attempts=3, deadline=60.0, attempt=20.0, backoff=0.01, backoff_max=0.02, longest_wait=2.0
)
MANY = Limit(1000, 1.0, concurrency=20)


@dataclass
class Answer:
    """One answer. `drip` seconds pass between bytes; `cut` announces more bytes than are sent."""

    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drip: float = 0.0
    cut: bool = False


@dataclass
class Seen:
    """One request that arrived."""

    path: str
    params: dict[str, str]
    headers: dict[str, str]
    at: float


Route = Callable[[Seen], Answer] | list[Answer] | Answer


class FakeServices:
    """Routes by path prefix; a list of answers is used up in order, the last one repeats."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {}
        self.seen: list[Seen] = []
        self.url = ""
        self._lock = threading.Lock()

    def to(self, prefix: str) -> list[Seen]:
        return [item for item in self.seen if item.path.startswith(prefix)]

    def answer(self, seen: Seen) -> Answer:
        with self._lock:
            self.seen.append(seen)
            matching = [prefix for prefix in self.routes if seen.path.startswith(prefix)]
            if not matching:
                return Answer(b"no such route", 404)
            route = self.routes[max(matching, key=len)]
            if isinstance(route, list):
                return route.pop(0) if len(route) > 1 else route[0]
        return route(seen) if callable(route) else route


@contextmanager
def serving() -> Iterator[FakeServices]:
    services = FakeServices()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            params = {name: values[0] for name, values in parse_qs(parts.query).items()}
            seen = Seen(
                parts.path,
                params,
                {name.lower(): value for name, value in self.headers.items()},
                time.monotonic(),
            )
            length = int(self.headers.get("content-length") or 0)
            if length:
                seen.params["_body"] = self.rfile.read(length).decode()
            answer = services.answer(seen)
            if answer.delay:
                time.sleep(answer.delay)
            try:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                extra = 1000 if answer.cut else 0
                self.send_header("Content-Length", str(len(answer.body) + extra))
                self.end_headers()
                if answer.drip:
                    for byte in answer.body:
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
                        time.sleep(answer.drip)
                else:
                    self.wfile.write(answer.body)
                if answer.cut:
                    self.close_connection = True
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    services.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield services
    finally:
        server.shutdown()
        server.server_close()


def as_json(value: object, **more: object) -> Answer:
    return Answer(json.dumps(value).encode(), **more)  # type: ignore[arg-type]
