"""Export of a trace as OpenTelemetry spans (GenAI conventions, OTLP's JSON encoding).

Conventions: `invoke_agent`, `chat` and `execute_tool` spans with `gen_ai.*` attributes.
Other attributes (steps, hypotheses, costs, refusals, human decisions) are under `sage.*`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sage.core.hashes import hash_text
from sage.core.llm.trace import TraceLine, episodes

INTERNAL, CLIENT = 1, 3
ERROR = 2


def spans_of(
    lines: Iterable[TraceLine], run: str, *, version: str = "", content: bool = False
) -> dict[str, Any]:
    """Build an OTLP/JSON document with a span per episode and a child span for each turn.

    Parameters
    ----------
    run : the run's identity, from which the trace's identity is derived
    version : version of SAGE, recorded in the resource
    content : whether to export prompts, replies, arguments, and results too
    """
    trace_id = _hexadecimal(run, 32)
    spans = []
    for episode in episodes(lines):
        parent = _hexadecimal(f"{run} {episode[0].episode}", 16)
        spans.append(_episode_span(episode, trace_id, parent))
        for line in episode:
            span = _turn_span(line, content=content)
            if span is not None:
                span_id = _hexadecimal(f"{run} {line.episode} {line.turn}", 16)
                spans.append(
                    {"traceId": trace_id, "spanId": span_id, "parentSpanId": parent, **span}
                )
    resource = {"service.name": "sage", "service.version": version, "sage.run": run}
    scope = {"scope": {"name": "sage.core.llm", "version": version}, "spans": spans}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}
        ]
    }


def _episode_span(episode: Sequence[TraceLine], trace_id: str, span_id: str) -> dict[str, Any]:
    first, last = episode[0], episode[-1]
    ended = last if last.kind == "end" else None
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": first.agent,
        "gen_ai.conversation.id": first.episode,
        "gen_ai.usage.input_tokens": ended.prompt_tokens if ended else None,
        "gen_ai.usage.output_tokens": ended.completion_tokens if ended else None,
        "sage.reasoner": first.reasoner,
        "sage.node": first.node or None,
        "sage.hypothesis": first.hypothesis or None,
        "sage.usd": ended.usd if ended else None,
        "sage.outcome": ended.outcome if ended else None,
        "error.type": "failed" if ended and ended.outcome == "failed" else None,
    }
    span = {
        "traceId": trace_id,
        "spanId": span_id,
        "name": f"invoke_agent {first.agent}",
        "kind": INTERNAL,
        "startTimeUnixNano": str(min(_began(line) for line in episode)),
        "endTimeUnixNano": str(_nanoseconds(last.time)),
        "attributes": _attributes(attributes),
    }
    if ended and ended.outcome == "failed":
        span["status"] = {"code": ERROR, "message": ended.error or ""}
    return span


def _turn_span(line: TraceLine, *, content: bool) -> dict[str, Any] | None:
    name, kind, attributes = f"sage {line.kind}", INTERNAL, dict[str, Any]()
    match line.kind:
        case "ask" | "end":
            return None
        case "model":
            name, kind = f"chat {line.model}", CLIENT
            attributes = {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "openai",
                "gen_ai.request.model": line.model,
                "gen_ai.response.model": line.model,
                "gen_ai.response.finish_reasons": [line.finish] if line.finish else None,
                "gen_ai.usage.input_tokens": line.prompt_tokens,
                "gen_ai.usage.output_tokens": line.completion_tokens,
                "sage.usd": line.usd,
                "sage.cached": line.cached,
                "sage.tokens_estimated": line.estimated,
            }
            if content:
                attributes["gen_ai.input.messages"] = _text(line.messages)
                parts: list[dict[str, Any]] = [{"type": "text", "content": line.content}]
                parts += [_call(call.id, call.name, call.arguments) for call in line.calls or ()]
                said = {"role": "assistant", "parts": parts, "finish_reason": line.finish}
                attributes["gen_ai.output.messages"] = _text([said])
        case "tool":
            name = f"execute_tool {line.tool}"
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": line.tool,
                "gen_ai.tool.type": "function",
                "gen_ai.tool.call.id": line.call_id,
                "error.type": "tool error" if line.error else None,
                "sage.usd": line.usd,
            }
            if content:
                attributes["gen_ai.tool.call.arguments"] = _text(line.arguments)
                attributes["gen_ai.tool.call.result"] = _text(line.error or line.result)
        case "human":
            automatic = bool((line.decision or {}).get("automatic"))
            attributes = {"sage.decision": line.text, "sage.automatic": automatic}
        case "refusal":
            attributes = {"sage.reason": line.text}
        case "rule":
            attributes = {"gen_ai.agent.name": line.agent}
            if content:
                attributes["sage.output"] = line.content
    span: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(_began(line)),
        "endTimeUnixNano": str(_nanoseconds(line.time)),
        "attributes": _attributes(attributes),
    }
    if line.kind == "tool" and line.error:
        span["status"] = {"code": ERROR, "message": line.error}
    return span


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _hexadecimal(text: str, digits: int) -> str:
    return hash_text(text, digits=digits)


def _nanoseconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp() * 1000) * 1_000_000


def _began(line: TraceLine) -> int:
    """Compute the start time of the event in a line; lines are written when the event ends."""
    return _nanoseconds(line.time) - round((line.seconds or 0.0) * 1e9)


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": _value(value)} for name, value in values.items() if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case _:
            return {"stringValue": str(value)}
