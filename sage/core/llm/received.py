"""Assembly of a streamed or complete model reply: token counting, truncation and parsing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sage.core.llm.messages import Reply, ToolCall, estimate_tokens
from sage.core.llm.repair import split_thoughts
from sage.core.progress import report_progress


class BrokenOff(Exception):  # noqa: N818 - becomes a fault with its cause
    """Error raised when a reply ends before it is complete."""


class TooLong(Exception):  # noqa: N818 - becomes a fault with its cause
    """Error raised when a reply runs well past the limit sent to the server."""


class ErrorBody(Exception):  # noqa: N818 - becomes a fault with its cause
    """An error body that the server sent with a success status instead of a reply."""

    def __init__(self, error: object) -> None:
        body = error if isinstance(error, Mapping) else {"message": error}
        code = body.get("code") or body.get("status")
        if not (isinstance(code, int | str) and str(code).isdigit()):
            code = 429 if "rate" in f"{body.get('type')} {body.get('code')}" else 500
        self.status = int(code)
        super().__init__(f"{self.status}: {body.get('message') or 'no reason given'}")


class Received:
    """The part of a reply received so far, at most `most` tokens, kept even after a timeout.

    Parameters
    ----------
    on_growth : called when more of the reply has arrived; keep-alive messages do not count
    """

    def __init__(
        self, prompt_tokens: int, most: int, on_growth: Callable[[], None] = lambda: None
    ) -> None:
        self.under_way = False
        self.completion = False
        self.choices = False
        self.finish = ""
        self.refusal = ""
        self._prompt_tokens = prompt_tokens
        self._most = most
        self._on_growth = on_growth
        self._bytes = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._usage: Mapping[str, Any] | None = None
        self._model = ""

    @property
    def has_content(self) -> bool:
        """True if any part of a reply has arrived."""
        return self._bytes > 0

    async def read(self, raw: Any) -> None:
        """Read a response to its end, whether streamed or a single JSON object."""
        if "event-stream" not in raw.headers.get("content-type", ""):
            self._add(json.loads(await raw.http_response.aread()), part="message")
            return
        try:
            async for chunk in raw.parse():
                self._add(chunk.model_dump(warnings=False), part="delta")
                so_far = f"about {self._bytes // 4:,} tokens so far"
                report_progress(f"{self._model or 'the model'} writes, {so_far}")
        finally:
            await raw.http_response.aclose()  # disconnecting makes the server stop generating
        if self.choices and not self.finish:
            raise BrokenOff("the stream ended without a finish_reason")

    def _add(self, chunk: Mapping[str, Any], part: str) -> None:
        if chunk.get("error") and not chunk.get("choices"):
            raise ErrorBody(chunk["error"])
        if "choices" not in chunk:
            raise ValueError("no completion")
        self.completion = True
        self._model = chunk.get("model") or self._model
        self._usage = chunk.get("usage") or self._usage
        for choice in (chunk["choices"] or [])[:1]:
            self.choices = True
            self.finish = choice.get("finish_reason") or self.finish
            piece = choice.get(part) or {}
            text, thoughts = _read_content(piece.get("content"))
            said = piece.get("reasoning_content") or piece.get("reasoning") or thoughts
            self._text.append(text)
            self._reasoning.append(said if isinstance(said, str) else "")
            refusal = piece.get("refusal") or ""
            self.refusal += refusal
            self._count(self._text[-1], self._reasoning[-1], refusal)
            for place, call in enumerate(piece.get("tool_calls") or []):
                index = call.get("index")
                kept = self._calls.setdefault(
                    place if index is None else index, {"id": "", "name": "", "arguments": ""}
                )
                function = call.get("function") or {}
                kept["id"] = call.get("id") or kept["id"]
                name, arguments = function.get("name") or "", function.get("arguments") or ""
                kept["name"] += name
                kept["arguments"] += arguments
                self._count(name, arguments)

    def _count(self, *texts: str) -> None:
        grown = sum(len(text.encode("utf-8", "replace")) for text in texts)
        self._bytes += grown
        if grown:
            self._on_growth()
        if self._bytes > 4 * self._most:
            raise TooLong

    def reply(self, asked: str) -> Reply:
        """Build the reply from the data received, estimating tokens if no usage was reported."""
        text = "".join(self._text)
        content, thoughts = split_thoughts(text)
        reasoning = "".join(self._reasoning) or thoughts
        calls = tuple(
            ToolCall(**call | {"id": call["id"] or f"call_{index}"})
            for index, call in sorted(self._calls.items())
        )
        usage = self._usage or {}
        prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
        counted = estimate_tokens(text + "".join(self._reasoning) + self.refusal)
        counted += sum(estimate_tokens(call.name + call.arguments) for call in calls)
        estimated = prompt is None or completion is None
        return Reply(
            content=content,
            finish=self.finish,
            prompt_tokens=self._prompt_tokens if estimated else int(prompt or 0),
            completion_tokens=min(counted, self._most) if estimated else int(completion or 0),
            model=self._model or asked,
            reasoning=reasoning,
            calls=calls,
            estimated=estimated,
        )


def _read_content(content: object) -> tuple[str, str]:
    """Return the text and the reasoning in a message's content, a string or a list of parts."""
    if not isinstance(content, list):
        return (content if isinstance(content, str) else ""), ""
    text, thoughts = [], []
    for part in content:
        if isinstance(part, str):
            text.append(part)
        elif isinstance(part, Mapping):
            inner = part.get("thinking") or part.get("reasoning")
            thoughts.append(_read_content(inner)[0] if inner else "")
            said = part.get("text") or part.get("content")
            text.append(said if isinstance(said, str) and not inner else "")
    return "".join(text), "".join(thoughts)
