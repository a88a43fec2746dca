"""Extraction of the JSON object from a reply, ignoring code fences and the model's reasoning."""

from __future__ import annotations

import json
import re

_THOUGHTS = re.compile(r"\s*<(think|thinking|reasoning)>(.*?)</\1>", re.DOTALL)
_CLOSED_ONLY = re.compile(r"(?!\s*(?:\{|```))(.*?)</(?:think|thinking|reasoning)>", re.DOTALL)
_UNFINISHED = re.compile(r"\s*<(?:think|thinking|reasoning)>(.*)", re.DOTALL)


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
