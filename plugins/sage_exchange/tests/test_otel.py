"""A trace as OpenTelemetry spans."""

from __future__ import annotations

import json
from pathlib import Path

from sage.core.llm.trace import Trace, read_trace
from sage_exchange.otel import spans_of
from tests.core.llm.test_turns import Question, _adding_model, _agent, _chat
from tests.openai_server import serve


def test_a_trace_becomes_spans_with_the_conventions_names(tmp_path: Path) -> None:
    with serve(_adding_model) as server:
        _chat(server, tmp_path).ask(_agent(tmp_path), Question(numbers=(1, 2)))
    Trace(tmp_path / "trace.jsonl").human("review", "approve", "h1", {"automatic": False})
    lines = read_trace(tmp_path / "trace.jsonl")
    document = spans_of(lines, "run-1", version="0", content=True)
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    names = [span["name"] for span in spans]
    assert names[:5] == [
        "invoke_agent adder", "chat local", "execute_tool add", "chat local", "execute_tool add"
    ]  # fmt: skip
    assert names[-2:] == ["invoke_agent review", "sage human"]
    attributes = {attribute["key"]: attribute["value"] for attribute in spans[1]["attributes"]}
    assert attributes["gen_ai.operation.name"] == {"stringValue": "chat"}
    assert int(attributes["gen_ai.usage.input_tokens"]["intValue"]) > 0
    assert "Add up." in attributes["gen_ai.input.messages"]["stringValue"]
    assert {span["traceId"] for span in spans} == {spans[0]["traceId"]}
    assert len({span["spanId"] for span in spans}) == len(spans)
    for span in spans:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    assert "Add up." not in json.dumps(spans_of(lines, "run-1"))
