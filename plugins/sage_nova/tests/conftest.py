"""A finished run for the explorations, and a model whose replies are known."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.end_to_end.conftest import finished
from tests.openai_server import Answer

__all__ = ["finished", "replies"]

Reply = str | list[str] | dict[str, Any]


def replies(*said: Reply) -> Callable[[dict[str, Any]], Answer]:
    """A server's answers by how far the conversation is: programs to run, or a final object."""

    def answer(body: dict[str, Any]) -> Answer:
        place = sum(message["role"] == "assistant" for message in body["messages"])
        if place >= len(said):
            return Answer(content="down", status=500)
        reply = said[place]
        if isinstance(reply, dict):
            return Answer(content=json.dumps(reply))
        calls = [
            {"id": f"c{place}-{number}", "type": "function",
             "function": {"name": "act",
                          "arguments": json.dumps({"thought": "see", "code": code})}}
            for number, code in enumerate([reply] if isinstance(reply, str) else reply)
        ]  # fmt: skip
        return Answer(delta={"tool_calls": calls})

    return answer
