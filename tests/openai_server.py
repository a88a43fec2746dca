"""A real HTTP server that speaks the chat-completions protocol, for tests of the model path.

Answers come from a function of the request body, or from a folder of recorded replies, one file
`KEY.reply.txt` per request, keyed by what determines the answer.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEYED = ("model", "messages", "tools", "response_format")


@dataclass
class Answer:
    """One HTTP answer: a completion's text, or an error status with a body."""

    content: str = ""
    status: int = 200
    finish: str = "stop"
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


@dataclass
class Server:
    """Where the server listens, and what it was asked."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def request_key(body: dict[str, Any]) -> str:
    """The 16 hex digits that name a request in a recording."""
    canonical = json.dumps({k: body.get(k) for k in KEYED}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def from_folder(folder: Path) -> Callable[[dict[str, Any]], Answer]:
    """Answers of a recording; an unknown request is an error that names it."""

    def answer(body: dict[str, Any]) -> Answer:
        path = folder / f"{request_key(body)}.reply.txt"
        if not path.is_file():
            title = body.get("response_format", {}).get("json_schema", {}).get("name", "?")
            return Answer(content=f"not recorded: {path.name} ({title})", status=404)
        return Answer(content=path.read_text(encoding="utf-8"))

    return answer


@contextmanager
def serve(answer: Callable[[dict[str, Any]], Answer]) -> Iterator[Server]:
    """Serve on a free loopback port until the block ends."""
    server: Server

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            return None

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append(body)
            server.keys.append(self.headers.get("Authorization", ""))
            made = answer(body)
            self.send_response(made.status)
            payload = made.raw if made.raw is not None else _payload(body, made)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            for name, value in made.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

    live = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(url=f"http://127.0.0.1:{live.server_address[1]}/v1")
    thread = threading.Thread(target=live.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        live.shutdown()
        live.server_close()
        thread.join(timeout=5)


def _payload(body: dict[str, Any], made: Answer) -> bytes:
    if made.status != 200:
        return json.dumps({"error": {"message": made.content, "type": "error"}}).encode()
    prompt = len(json.dumps(body["messages"])) // 4
    answered = len(json.dumps({"role": "assistant", "content": made.content})) // 4
    return json.dumps(
        {
            "id": "chatcmpl-test",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": made.content},
                    "finish_reason": made.finish,
                }
            ],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": answered,
                "total_tokens": prompt + answered,
            },
        }
    ).encode()
