"""A real HTTP server that speaks the chat-completions protocol, for tests of the model path.

Answers come from a function of the request body, or from a folder of recorded replies, one file
`KEY.reply.txt` per request, keyed by what determines the answer. A request that asks for a stream
gets one, in pieces and as slowly as the answer says.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agents.core.base import Role
from agents.core.chat import ChatReasoner, ChatSettings
from agents.core.disclosure import Withheld
from sage.core.llm.budget import Meter
from sage.core.llm.cache import ReplyCache
from sage.core.llm.client import Client, Endpoint
from sage.core.llm.messages import ModelChoice

KEYED = ("model", "messages", "tools", "response_format")


@dataclass
class Answer:
    """One HTTP answer: a completion, or an error status with a body.

    `delta` holds more fields of the message (`refusal`, `reasoning_content`, `tool_calls`). `pause`
    is slept before every piece of a stream; `silent` before anything is sent. `breaks` ends the
    connection in the middle of a stream. `whole` answers with one object though a stream was asked.
    """

    content: str = ""
    status: int = 200
    finish: str = "stop"
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    delta: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    code: str | None = None
    usage: bool = True
    choices: bool = True
    pieces: int = 1
    pause: float = 0.0
    silent: float = 0.0
    breaks: bool = False
    whole: bool = False


@dataclass
class Server:
    """Where the server listens, and what it was asked."""

    url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_at_once: int = 0


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
    at_once = 0
    count = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            return None

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            nonlocal at_once
            with count:
                at_once += 1
                server.most_at_once = max(server.most_at_once, at_once)
                server.requests.append(body)
                server.keys.append(self.headers.get("Authorization", ""))
                server.paths.append(self.path)
                server.headers.append({name.lower(): text for name, text in self.headers.items()})
            try:
                self._reply(body, answer(body))
            except (BrokenPipeError, ConnectionResetError):
                pass
            finally:
                with count:
                    at_once -= 1

        def _reply(self, body: dict[str, Any], made: Answer) -> None:
            time.sleep(made.silent)
            streamed = bool(body.get("stream")) and made.status == 200
            streamed = streamed and made.raw is None and not made.whole
            self.send_response(made.status)
            for name, value in made.headers.items():
                self.send_header(name, value)
            if streamed:
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                self._stream(body, made)
                return
            payload = made.raw if made.raw is not None else _payload(body, made)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def _stream(self, body: dict[str, Any], made: Answer) -> None:
            whole = json.loads(_payload(body, made))
            base = {name: whole[name] for name in ("id", "created", "model")}
            base["object"] = "chat.completion.chunk"
            length = max(1, -(-len(made.content) // made.pieces))
            texts = [made.content[at : at + length] for at in range(0, len(made.content), length)]
            deltas = [{"content": text} for text in texts] or [{"content": ""}]
            deltas[0] |= {"role": "assistant", **_indexed(made.delta)}
            for number, delta in enumerate(deltas):
                time.sleep(made.pause)
                if made.breaks and number == len(deltas) - 1:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                choice = {"index": 0, "delta": delta, "finish_reason": None}
                self._event({**base, "choices": [choice] if made.choices else []})
            if made.choices:
                last = {"index": 0, "delta": {}, "finish_reason": made.finish}
                self._event({**base, "choices": [last]})
            if made.usage and (body.get("stream_options") or {}).get("include_usage"):
                self._event({**base, "choices": [], "usage": whole["usage"]})
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, chunk: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

    live = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(url=f"http://127.0.0.1:{live.server_address[1]}/v1")
    thread = threading.Thread(target=live.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        live.shutdown()
        live.server_close()
        thread.join(timeout=5)


def chat_reasoner(
    url: str,
    folder: Path,
    *,
    model: ModelChoice | None = None,
    budget: float | None = None,
    repairs: int = 2,
    withheld: Withheld = frozenset,
    **endpoint: Any,
) -> ChatReasoner:
    """A reasoner on a local server that keeps replies and spending in `folder`."""
    settings = ChatSettings(
        models=dict.fromkeys(Role, model or ModelChoice(name="local")), repairs=repairs
    )
    meter = Meter(folder / "spending.jsonl", budget)
    asked = Endpoint(base_url=url, **{"retries": 0, "timeout_s": 30, **endpoint})
    return ChatReasoner(settings, Client(asked, meter, ReplyCache(folder / "replies")), withheld)


def _indexed(delta: dict[str, Any]) -> dict[str, Any]:
    calls = [call | {"index": place} for place, call in enumerate(delta.get("tool_calls", []))]
    return delta | ({"tool_calls": calls} if calls else {})


def _payload(body: dict[str, Any], made: Answer) -> bytes:
    if made.status != 200:
        error = {"message": made.content, "type": "error", "code": made.code}
        return json.dumps({"error": error}).encode()
    message = {"role": "assistant", "content": made.content, **made.delta}
    prompt = len(json.dumps(body["messages"])) // 4
    answered = len(json.dumps(message)) // 4
    choice = {"index": 0, "message": message, "finish_reason": made.finish}
    completion: dict[str, Any] = {
        "id": "chatcmpl-test",
        "object": "chat.completion",
        "created": 0,
        "model": made.model or body["model"],
        "choices": [choice] if made.choices else [],
    }
    if made.usage:
        completion["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": answered,
            "total_tokens": prompt + answered,
        }
    return json.dumps(completion).encode()
