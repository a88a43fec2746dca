"""A reply received from a model's server: assembled, counted, cut off and parsed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sage.core.llm.messages import Reply, ToolCall, estimate_tokens
from sage.core.progress import report_progress

_THOUGHTS = re.compile(r"\s*<(think|thinking|reasoning)>(.*?)</\1>", re.DOTALL)
_CLOSED_ONLY = re.compile(r"(?!\s*(?:\{|```))(.*?)</(?:think|thinking|reasoning)>", re.DOTALL)
_UNFINISHED = re.compile(r"\s*<(?:think|thinking|reasoning)>(.*)", re.DOTALL)


class BrokenOff(Exception):  # noqa: N818 - becomes a fault with its cause
    """A reply ended before it was complete."""


class TooLong(Exception):  # noqa: N818 - becomes a fault with its cause
    """A reply continued well past the limit that was sent to the server."""


class Received:
    """The part of a reply received so far, at most `most` tokens, kept even after a timeout."""

    def __init__(self, prompt_tokens: int, most: int) -> None:
        self.under_way = False
        self.completion = False
        self.choices = False
        self.finish = ""
        self.refusal = ""
        self._prompt_tokens = prompt_tokens
        self._most = most
        self._bytes = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._usage: Mapping[str, Any] | None = None
        self._model = ""

    async def read(self, raw: Any) -> None:
        """Read a response to its end, whether it is a stream or a single object."""
        if "event-stream" not in raw.headers.get("content-type", ""):
            self._add(json.loads(await raw.http_response.aread()), part="message")
            return
        try:
            async for chunk in raw.parse():
                self._add(chunk.model_dump(), part="delta")
                so_far = f"about {self._bytes // 4:,} tokens so far"
                report_progress(f"{self._model or 'the model'} writes, {so_far}")
        finally:
            await raw.http_response.aclose()  # disconnecting makes the server stop generating
        if self.choices and not self.finish:
            raise BrokenOff("the stream ended without a finish_reason")

    def _add(self, chunk: Mapping[str, Any], part: str) -> None:
        if "choices" not in chunk:
            raise ValueError("no completion")
        self.completion = True
        self._model = chunk.get("model") or self._model
        self._usage = chunk.get("usage") or self._usage
        for choice in (chunk["choices"] or [])[:1]:
            self.choices = True
            self.finish = choice.get("finish_reason") or self.finish
            piece = choice.get(part) or {}
            self._text.append(piece.get("content") or "")
            self._reasoning.append(piece.get("reasoning_content") or piece.get("reasoning") or "")
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
        self._bytes += sum(len(text.encode("utf-8", "replace")) for text in texts)
        if self._bytes > 4 * self._most:
            raise TooLong

    def reply(self, asked: str) -> Reply:
        """Return the reply received so far, estimating its tokens if no usage was reported."""
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


def split_thoughts(text: str) -> tuple[str, str]:
    """Split a reply into the answer and the reasoning that precedes it.

    Reasoning models write `<think>…</think>` before their answer; some servers omit the opening
    tag. Only tags before the answer count: a tag inside a JSON string is left alone.
    """
    thoughts = []
    while found := _THOUGHTS.match(text):
        thoughts.append(found[2].strip())
        text = text[found.end() :]
    if not thoughts and (found := _CLOSED_ONLY.match(text)):
        thoughts.append(found[1].strip())
        text = text[found.end() :]
    elif found := _UNFINISHED.fullmatch(text):
        thoughts.append(found[1].strip())
        text = ""
    return (text.strip() if thoughts else text), "\n\n".join(thoughts)


def extract_json(text: str) -> object:
    """Parse the JSON object in a reply, with or without a code fence around it.

    Raises
    ------
    ValueError
        If the reply contains no complete JSON object.
    """
    bare = split_thoughts(text)[0].strip()
    fenced = re.search(r"```(?:json)?\s*(\{.*\})\s*```", bare, re.DOTALL)
    if fenced:
        bare = fenced[1]
    start = bare.find("{")
    if start < 0:
        raise ValueError("the reply contains no JSON object")
    try:
        value, end = json.JSONDecoder().raw_decode(bare[start:])
    except json.JSONDecodeError as error:
        raise ValueError(
            f"the reply is not complete JSON ({error.msg} at character {error.pos})"
        ) from None
    if bare[start + end :].strip().startswith("{"):
        raise ValueError("the reply contains more than one JSON object")
    return value
