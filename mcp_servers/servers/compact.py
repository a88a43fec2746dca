"""Compact discovery: three tools that find, describe and call all other tools.

A client that lists every tool with its schema spends tens of thousands of tokens before
the first question. With compact discovery, it lists only these three tools, searches by
keyword, and reads the schema of the tool that it will call.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import mcp_types as types

from mcp_servers.servers.content import describe, strip_titles
from mcp_servers.spec import ToolSpec

CALL = "call_tool"
MOST = 60
"""Maximum number of tools listed per search."""
WORD = re.compile(r"[a-z0-9]+")
EMPTY_WORDS = frozenset({
    "a", "all", "an", "and", "are", "at", "by", "do", "does", "for", "from", "how", "in", "is",
    "it", "of", "on", "or", "that", "the", "there", "these", "this", "to", "what", "where", "which",
    "who", "with",
})  # fmt: skip
"""Stop words, which do not distinguish tools."""

READS = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)


def describe_arguments(*required: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema for a tool's arguments."""
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": list(required)} if required else {})


SEARCH_TOOL = types.Tool(
    name="search_tools",
    title="Search the tools",
    description=(
        "Find tools by words of the task, best first; without a query, list all. Returns the "
        "name, suite and purpose of each."
    ),
    input_schema=describe_arguments(
        query={"type": "string", "description": "Words of the task", "maxLength": 500}
    ),
    annotations=READS,
)
DESCRIBE_TOOL = types.Tool(
    name="describe_tool",
    title="Describe a tool",
    description="Arguments (JSON schema), result, limits and known failures of a tool.",
    input_schema=describe_arguments(
        "name", name={"type": "string", "description": "A name returned by search_tools"}
    ),
    annotations=READS,
)
CALL_TOOL = types.Tool(
    name=CALL,
    title="Call a tool",
    description=(
        "Call a tool by name with the arguments given by describe_tool. Returns state (done, or "
        "running with a job for job_result), result, files and provenance."
    ),
    input_schema=describe_arguments(
        "name",
        name={"type": "string"},
        arguments={"type": "object", "description": "As in the tool's schema"},
    ),
    annotations=types.ToolAnnotations(
        read_only_hint=False, destructive_hint=False, open_world_hint=False
    ),
)
TOOLS = {tool.name: tool for tool in (SEARCH_TOOL, DESCRIBE_TOOL, CALL_TOOL)}


def search_tools(specs: Iterable[ToolSpec], query: str) -> dict[str, Any]:
    """Search tools for keywords in the name, summary or arguments; best matches first.

    A word in the name or title counts three times, in the summary twice, and in an argument
    once; rare words count more (by the logarithm of inverse document frequency).
    """
    texts = {spec.name: _fields(spec) for spec in specs}
    by_name = {spec.name: spec for spec in specs}
    words = set(WORD.findall(query.casefold())) - EMPTY_WORDS
    frequency = {
        word: sum(any(_contains(word, field) for _, field in fields) for fields in texts.values())
        for word in words
    }
    scores = {
        name: sum(
            weight * math.log(1 + len(texts) / frequency[word])
            for word in words
            if frequency[word]
            for weight, field in fields
            if _contains(word, field)
        )
        for name, fields in texts.items()
    }
    chosen = [name for name in texts if not words or scores[name] > 0]
    chosen.sort(key=lambda name: (-scores[name], name))
    return {
        "tools": [
            {
                "name": name,
                "title": by_name[name].title,
                "suite": by_name[name].suite,
                "summary": by_name[name].summary,
            }
            for name in chosen[:MOST]
        ],
        "of": len(texts),
    }


def _fields(spec: ToolSpec) -> list[tuple[int, set[str]]]:
    properties: Mapping[str, Any] = spec.input_schema.get("properties", {})
    arguments = " ".join(f"{key} {item.get('description', '')}" for key, item in properties.items())
    return [
        (3, _words(f"{spec.name} {spec.title}")),
        (2, _words(f"{spec.summary} {spec.suite}")),
        (1, _words(arguments)),
    ]


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.casefold()))


def _contains(word: str, field: set[str]) -> bool:
    """Check whether a field contains a word, treating plural and singular as the same."""
    return word in field or word.removesuffix("s") in field or f"{word}s" in field


def describe_in_full(spec: ToolSpec) -> dict[str, Any]:
    """Describe a tool in full: arguments, result and limits."""
    tool = describe(spec)
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "arguments": tool.input_schema,
        "result": strip_titles(spec.output_schema),
        "read_only": spec.read_only,
    }
