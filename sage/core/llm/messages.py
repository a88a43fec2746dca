"""Requests to and replies from models, in the chat-completions protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from sage.core.models import Strict

IMAGE_TOKENS = 1000
"""Approximate token cost of an image in common vision models, used only for estimates."""


class ModelChoice(Strict):
    """A model by name, with its request options.

    `price_in` and `price_out` are USD per million tokens, if the user set them. `max_tokens`
    limits a reply, and `context` prompt and reply together. `fallback` is used if the model
    is unavailable or its context is too short.
    """

    name: str
    price_in: float | None = Field(default=None, ge=0)
    price_out: float | None = Field(default=None, ge=0)
    temperature: float | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    context: int | None = Field(default=None, ge=1)
    reasoning_effort: str | None = None
    fallback: ModelChoice | None = None

    @property
    def room(self) -> int | None:
        """Largest prompt, in tokens, that leaves room for the reply; None if unknown.

        The context is the longest among the model and its fallbacks. The reply is allotted
        `max_tokens` or, without it, a quarter of the context.
        """
        if self.context is None:
            return None
        here = self.context - (self.max_tokens or self.context // 4)
        there = here if self.fallback is None else self.fallback.room
        return None if there is None else max(here, there)

    @property
    def has_prices(self) -> bool:
        """True if the model and all its fallbacks have both prices."""
        here = self.price_in is not None and self.price_out is not None
        return here and (self.fallback is None or self.fallback.has_prices)

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Compute the cost of a call in USD; return zero if the price is unknown."""
        return (
            prompt_tokens * (self.price_in or 0.0) + completion_tokens * (self.price_out or 0.0)
        ) / 1e6


class Image(Strict):
    """An image in a message, as base64 text."""

    data: str
    media_type: Literal["image/png", "image/jpeg", "image/webp", "image/gif"] = "image/png"


class ToolCall(Strict):
    """A model's request to call a tool; `arguments` is the JSON text written by the model."""

    id: str
    name: str
    arguments: str


class Message(Strict):
    """A message in a conversation, with text and, if the model accepts them, images."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    images: tuple[Image, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None

    def wire(self) -> dict[str, Any]:
        """Convert the message to the chat-completions format."""
        content: str | list[dict[str, Any]] = self.text
        if self.images:
            content = [{"type": "text", "text": self.text}]
            for image in self.images:
                url = f"data:{image.media_type};base64,{image.data}"
                content.append({"type": "image_url", "image_url": {"url": url}})
        wired: dict[str, Any] = {"role": self.role, "content": content}
        if self.calls:
            wired["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self.calls
            ]
        if self.call_id is not None:
            wired["tool_call_id"] = self.call_id
        return wired

    @property
    def tokens(self) -> int:
        """Approximate number of tokens: byte count / 4 plus a fixed number per image."""
        asked = sum(len(call.arguments) for call in self.calls)
        return estimate_tokens(self.text) + asked // 4 + IMAGE_TOKENS * len(self.images)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens in a text as a quarter of its bytes, rounded up."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


@dataclass(frozen=True)
class Request:
    """A request to a model.

    Parameters
    ----------
    schema : JSON schema that the reply must follow, or None for plain text
    """

    agent: str
    model: ModelChoice
    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    title: str = "reply"
    tools: tuple[Mapping[str, Any], ...] = ()

    @property
    def tokens(self) -> int:
        """Approximate number of tokens, including the schema and tools."""
        more = [part for part in (self.schema, *self.tools) if part]
        tokens = sum(message.tokens for message in self.messages)
        return tokens + sum(estimate_tokens(json.dumps(part)) for part in more)


@dataclass(frozen=True)
class Reply:
    """A model's reply: its text, why it ended, and the tokens it cost.

    `reasoning` is the reasoning that the model wrote before its answer. `estimated` means that the
    server reported no usage, so the tokens were estimated from the texts.
    """

    content: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    model: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = field(default=())
    estimated: bool = False

    def dump(self) -> str:
        """Serialize the reply to JSON, omitting empty fields."""
        kept = {name: value for name, value in self.__dict__.items() if value or name in _PLAIN}
        if self.calls:
            kept["calls"] = [call.model_dump() for call in self.calls]
        return json.dumps(kept, ensure_ascii=False)

    @classmethod
    def load(cls, text: str) -> Reply:
        """Parse a reply written by `dump`.

        Raises
        ------
        ValueError, TypeError
            If the text is not a valid serialized reply.
        """
        fields = json.loads(text)
        fields["calls"] = tuple(ToolCall.model_validate(call) for call in fields.get("calls", ()))
        return cls(**fields)


_PLAIN = ("content", "finish", "prompt_tokens", "completion_tokens", "model")
