"""A record of agents' questions, decisions, calls and answers, with one JSON object per line.

An *episode* is one question to an agent: it runs from its `ask` line to its `end` line,
with its turns in between. A line contains only the fields for its kind. docs/traces.md
documents the fields.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sage.core import clock
from sage.core.errors import InputError
from sage.core.files import append_line
from sage.core.llm.budget import current_step
from sage.core.llm.messages import Message, ToolCall
from sage.core.models import Strict

FORMAT = 1
Kind = Literal["ask", "model", "rule", "tool", "repair", "refusal", "human", "end"]


class TraceLine(Strict):
    """A line of a trace."""

    format: int = Field(default=FORMAT, description="version of this schema")
    time: str = Field(description="time when the line was written, UTC, ISO 8601")
    kind: Kind = Field(description="kind of event")
    episode: str = Field(description="identifies one question to one agent")
    turn: int = Field(default=0, description="position in the episode; the `ask` line is 0")
    agent: str = Field(description="agent that was asked; `review` or `escalation` for a person")
    node: str = Field(default="", description="the run's step, if any")
    hypothesis: str = Field(default="", description="the run's hypothesis, if any")
    seconds: float | None = Field(default=None, description="duration of the turn or episode")
    reasoner: str | None = Field(default=None, description="`ask`: chat, rules or replay")
    input_sha256: str | None = Field(default=None, description="`ask`: hash of the agent's input")
    returns: str | None = Field(default=None, description="`ask`: name of the output schema")
    tools: tuple[str, ...] | None = Field(default=None, description="`ask`: available tools")
    bounds: dict[str, float] | None = Field(
        default=None, description="`ask`: maximum turns, tokens, USD and seconds"
    )
    left_out: tuple[str, ...] | None = Field(
        default=None, description="`ask`, `model`: what did not fit the model's context, by number"
    )
    messages: tuple[dict[str, Any], ...] | None = Field(
        default=None,
        description="`model`: messages sent since the last turn; pictures as their SHA-256",
    )
    key: str | None = Field(default=None, description="`model`: name of the stored reply")
    model: str | None = Field(default=None, description="`ask`, `model`: model that answers")
    content: str | None = Field(default=None, description="`model`, `rule`: text of the reply")
    reasoning: str | None = Field(default=None, description="`model`: reasoning before the reply")
    finish: str | None = Field(default=None, description="`model`: reason why the reply ended")
    calls: tuple[ToolCall, ...] | None = Field(
        default=None, description="`model`, `rule`: requested tool calls"
    )
    prompt_tokens: int | None = Field(
        default=None, description="tokens read, in the turn or episode"
    )
    completion_tokens: int | None = Field(
        default=None, description="tokens written, in the turn or episode"
    )
    usd: float | None = Field(default=None, description="cost in USD, of the turn or episode")
    estimated: bool | None = Field(
        default=None, description="true if the server reported no tokens"
    )
    cached: bool | None = Field(
        default=None, description="true if the reply came from the cache, at no cost"
    )
    tool: str | None = Field(default=None, description="`tool`: name of the tool")
    call_id: str | None = Field(default=None, description="`tool`: call that it answers")
    arguments: Any = Field(default=None, description="`tool`: its arguments")
    result: Any = Field(default=None, description="`tool`: its result")
    text: str | None = Field(
        default=None,
        description="`repair`: the repairs; `refusal`: the reason; `human`: the decision",
    )
    decision: dict[str, Any] | None = Field(
        default=None, description="`human`: the decision as data; `automatic` if nobody was asked"
    )
    output: Any = Field(default=None, description="`end`: the agent's output")
    outcome: Literal["answered", "reworded", "failed"] | None = Field(
        default=None, description="`end`: `reworded` has SAGE's sentences for refused ones"
    )
    error: str | None = Field(default=None, description="`tool`, `end`: error message")


class Trace:
    """A writer that appends trace lines to a file, or discards them if it has no path."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path

    def episode(self, agent: str) -> Episode:
        """Start tracing a question to `agent`."""
        return Episode(self, agent)

    def human(self, agent: str, text: str, hypothesis: str, decision: dict[str, Any]) -> None:
        """Record a person's decision as a single-turn episode."""
        self.episode(agent).add("human", text=text, decision=decision, hypothesis=hypothesis)

    def write(self, line: TraceLine) -> None:
        """Append a line in a single write, so that lines stay intact."""
        if self.path is None:
            return
        plain = line.model_dump(mode="json", exclude_none=True)
        append_line(self.path, json.dumps(plain, ensure_ascii=False))


class Episode:
    """A question to an agent, whose turns are numbered as they are written."""

    def __init__(self, trace: Trace, agent: str) -> None:
        self.trace = trace
        self.id = secrets.token_hex(8)
        self.agent = agent
        self.begun = time.perf_counter()
        self._turns = 0

    def add(self, kind: Kind, **fields: Any) -> None:
        """Write a line of this episode."""
        node, hypothesis = current_step()
        line = {"node": node, "hypothesis": hypothesis, **fields}
        self.trace.write(
            TraceLine(
                time=clock.stamp(),
                kind=kind,
                episode=self.id,
                turn=self._turns,
                agent=self.agent,
                **line,
            )
        )
        self._turns += 1


def traced_message(message: Message) -> dict[str, Any]:
    """Return a message in the form stored in the trace, with each image replaced by its hash."""
    wired = message.model_copy(update={"images": ()}).wire()
    if message.images:
        wired["images"] = [
            hashlib.sha256(image.data.encode()).hexdigest() for image in message.images
        ]
    return wired


def read_trace(path: Path) -> list[TraceLine]:
    """Read the lines of a trace, ignoring a last line truncated when the process was killed.

    Raises
    ------
    InputError
        If the trace does not exist, or a line is not a valid trace line.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"{path} not found: the run was created by an older SAGE version"
        ) from None
    # Only a newline ends a line: model output may contain other Unicode line breaks.
    texts = data.removesuffix(b"\n").split(b"\n") if data else []
    found = []
    for number, text in enumerate(texts, 1):
        try:
            found.append(TraceLine.model_validate(json.loads(text)))
        except (ValueError, RecursionError) as error:
            if number == len(texts) and isinstance(
                error, json.JSONDecodeError | UnicodeDecodeError
            ):
                break
            raise InputError(
                f"{path}, line {number} is damaged; restore it from a backup"
            ) from None
    return found


def list_stand_ins(lines: Iterable[TraceLine]) -> list[tuple[str, str]]:
    """List (node, hypothesis) for each question that rules answered because the model could not.

    The lines must come from a run with a model, which uses rules only as a fallback.
    """
    asked = (line for line in lines if line.kind == "ask" and line.reasoner == "rules")
    return list(dict.fromkeys((line.node, line.hypothesis) for line in asked))


def episodes(lines: Iterable[TraceLine]) -> list[list[TraceLine]]:
    """Group the lines by episode, in the order in which the episodes started."""
    found: dict[str, list[TraceLine]] = {}
    for line in lines:
        found.setdefault(line.episode, []).append(line)
    return list(found.values())
