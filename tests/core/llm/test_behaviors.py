"""Behaviors of real servers and models, one a row, and what SAGE makes of each.

Rows name where the behavior was documented or reported: OpenAI, Azure, Ollama, vLLM, llama.cpp,
LM Studio, OpenRouter, SGLang, or the family of models that shows it. "answered" is an answer to the
first call, "repaired" one that the trace notes, "asked again" one after a complaint to the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from sage.core.errors import FaultError
from sage.core.llm import client
from sage.core.llm.budget import Meter, charges
from sage.core.llm.messages import Message, ModelChoice, Reply, Request
from sage.core.llm.repair import fit, read_object
from sage.core.llm.trace import Trace
from sage.core.llm.turns import ModelPolicy, Result, Task, Tool, take_turns
from sage.core.models import Strict
from sage.core.printable import one_line
from tests.openai_server import Answer, serve


class Found(Strict):
    """A part of a reading, with a tag."""

    kind: Literal["gene"]
    symbol: str


class Seen(Strict):
    """A part of a reading, with another tag."""

    kind: Literal["cell_type"]
    name: str


class Reading(Strict):
    """What the model is asked for."""

    n: int
    share: float = 0.0
    verdict: Literal["novel", "not_novel"] = "novel"
    notes: tuple[str, ...] = ()
    parts: tuple[Found | Seen, ...] = ()


class Tagged(Strict):
    """A reading of tagged parts."""

    n: int
    part: Found | Seen | None = Field(default=None, discriminator="kind")


class Look(BaseModel):
    """Arguments of the tool."""

    gene: str


GOOD = '{"n": 3}'
BAD = "no object here"


class Model:
    """A model without a server, which gives these replies."""

    def __init__(self, *texts: str) -> None:
        self.left = list(texts)

    def ask(self, request: Request) -> client.Answer:
        reply = Reply(self.left.pop(0), "stop", 10, 1, "m")
        return client.Answer(reply, 0.0, key="")

    async def ask_async(self, request: Request) -> client.Answer:
        raise NotImplementedError


def _run(model: client.Model, folder: Path, *, tools: bool = False) -> tuple[Result[Reading], int]:
    """The result, and how often the tool was used."""
    looked: list[str] = []

    def look(given: Look) -> object:
        looked.append(given.gene)
        return {"gene": given.gene}

    tool = Tool("look", "Look a gene up.", Look, look)
    task = Task(
        agent="reader", given=Look(gene="x"), returns=Reading, check=lambda _: [], repairs=2,
        tools=(tool,) if tools else (),
    )  # fmt: skip
    request = Request(
        agent="reader", model=ModelChoice(name="m", max_tokens=500),
        messages=(Message(role="system", text="Read."), Message(role="user", text="Now.")),
        schema=Reading.model_json_schema(), title="Reading",
        tools=(tool.wire(),) if tools else (),
    )  # fmt: skip
    policy = ModelPolicy(model, request, show=one_line)
    return take_turns(task, policy, Trace(folder / "trace.jsonl"), "chat"), len(looked)


def _ask(
    answer: Callable[[dict[str, Any]], Answer], folder: Path, *, tools: bool = False, **more: Any
) -> tuple[Result[Reading], int, list[dict[str, Any]]]:
    """The same over HTTP, and the requests."""
    with serve(answer) as server:
        options = {"base_url": server.url, "retries": 1, "timeout_s": 5, "stall_s": 0.3, **more}
        model = client.Client(client.Endpoint(**options), Meter(folder / "spending.jsonl"))
        return *_run(model, folder, tools=tools), server.requests


def _kinds(folder: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in (folder / "trace.jsonl").read_text().splitlines()]


TEXTS: list[tuple[str, str, str]] = [
    ("OpenAI", GOOD, "answered"),
    ("llama.cpp", "\ufeff" + GOOD, "answered"),
    ("LM Studio", f"```JSON\n{GOOD}\n```\nI hope that this helps!", "answered"),
    ("Llama 3", f"Here is the reading:\n{GOOD}", "answered"),
    ("Mistral", f"{GOOD}\nLet me know if you need more.", "answered"),
    ("Qwen 3", f"<think>Is it 4?</think>\n{GOOD}", "answered"),
    ("DeepSeek R1", f"It is 3.</think>{GOOD}", "answered"),
    ("Phi", '{"n": 3,}', "repaired"),
    ("Gemma", '{"n": 3 // three\n}', "repaired"),
    ("Gemma", '{/* counted */ "n": 3}', "repaired"),
    ("Llama 2", "{'n': 3}", "repaired"),
    ("Llama 2", "{'n': 3, 'notes': ['it\\'s'], 'verdict': 'novel'}", "repaired"),
    ("Llama 2", "{n: 3}", "repaired"),
    ("Code Llama", "{'n': 3, 'notes': [], 'share': 0.5, 'verdict': None}", "repaired"),
    ("Gemma", "{“n”: 3}", "repaired"),
    ("vLLM", '{"n": 3, "notes": ["line\nbreak"]}', "answered"),
    ("Mixtral", f"[{GOOD}]", "repaired"),
    ("Hermes", '<tool_call>{"name": "Reading", "arguments": {"n": 3}}</tool_call>', "repaired"),
    ("Hermes", '<tool_call>\n{"name": "Reading", "arguments": {"n": 3}}', "repaired"),
    ("Llama 3.1", '{"name": "Reading", "parameters": {"n": 3}}', "repaired"),
    ("Command R", '{"type": "function", "name": "Reading", "parameters": {"n": 3}}', "repaired"),
    ("OpenRouter", '{"Reading": {"n": 3}}', "repaired"),
    ("SGLang", '{"response": {"n": 3}}', "repaired"),
    ("Ollama", '{"n": "3"}', "answered"),
    ("Ollama", '{"n": 3.0}', "answered"),
    ("Ollama", '{"n": 3, "share": "0.5"}', "answered"),
    ("Ollama", '{"n": 3, "reasoning": "I counted."}', "repaired"),
    ("LM Studio", '{"n": 3, "notes": null}', "repaired"),
    ("LM Studio", '{"n": 3, "share": null, "verdict": null}', "repaired"),
    ("Azure", '{"n": 3, "verdict": "Novel"}', "repaired"),
    ("Azure", '{"n": 3, "verdict": "NOT NOVEL"}', "repaired"),
    ("Azure", '{"n": 3, "verdict": "not-novel"}', "repaired"),
    ("Mistral", '{"n": 3, "notes": "one note"}', "repaired"),
    ("OpenRouter", '{"Reading": {"n": 3, "extra": 1, "verdict": "Novel", "notes": null,}}',
     "repaired"),
    ("any", "", "asked again"),
    ("any", BAD, "asked again"),
    ("any", '{"n": 3', "asked again"),
    ("any", GOOD + GOOD, "asked again"),
    ("any", f"[{GOOD}, {GOOD}]", "asked again"),
    ("any", '{"n": NaN}', "asked again"),
    ("any", '{"n": 3, "share": Infinity}', "asked again"),
    ("any", '{"n": "three"}', "asked again"),
    ("any", '{"n": 3, "verdict": "quite novel"}', "asked again"),
    ("any", '{"count": 3}', "asked again"),
    ("any", "[" * 1_500, "asked again"),
    ("any", '{"n": ' * 250, "asked again"),
    ("any", "{'n': __import__('os').getpid()}", "asked again"),
    ("Qwen 3", "<think>I never stop", "asked again"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "text", "outcome"), TEXTS)
def test_texts(where: str, text: str, outcome: str, tmp_path: Path) -> None:
    model = Model(text, GOOD)
    result, _ = _run(model, tmp_path)
    assert result.output.n == 3
    assert len(model.left) == (0 if outcome == "asked again" else 1)
    kinds = _kinds(tmp_path)
    assert ("repair" in kinds, "refusal" in kinds) == (
        outcome == "repaired", outcome == "asked again",
    )  # fmt: skip


def _turn(body: dict[str, Any]) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"gene": "A"}'}}


def _call(name: str = "look", arguments: str = '{"gene": "A"}', **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{**CALL, "function": {"name": name, "arguments": arguments}, **more}]}


MESSAGES: list[tuple[str, Answer, bool, int]] = [
    ("Azure: whole", Answer(delta=_call(), whole=True), True, 1),
    ("Ollama: a call without id", Answer(delta=_call(id=None)), True, 1),
    ("Gemini by OpenRouter: module", Answer(delta=_call("functions.look")), True, 1),
    ("Kimi: module and colon", Answer(delta=_call("functions:look")), True, 1),
    ("Qwen: call in text", Answer(
        '<tool_call>{"name": "look", "arguments": {"gene": "A"}}</tool_call>'), True, 1),
    ("Llama: call in text", Answer('{"name": "look", "parameters": {"gene": "A"}}'), True, 1),
    ("prompted: call in text", Answer('{"tool": "look", "arguments": {"gene": "A"}}'), True, 1),
    ("Ollama: extra argument", Answer(delta=_call(arguments='{"gene": "A", "why": 1}')), True, 1),
    ("Mistral: trailing comma", Answer(delta=_call(arguments='{"gene": "A",}')), True, 1),
    ("two calls", Answer(delta={"tool_calls": [CALL, CALL | {"id": "d"}]}), True, 2),
    ("no such tool", Answer(delta=_call("search")), True, 0),
    ("arguments cut", Answer(delta=_call(arguments='{"gene": ')), True, 0),
    ("Claude by OpenRouter: answer as a call", Answer(delta=_call("Reading", GOOD)), True, 0),
    ("vLLM: answer as a call", Answer(delta=_call("Reading", GOOD)), False, 0),
    ("Mistral: content in parts", Answer(delta={"content": [{"type": "text", "text": GOOD}]}),
     False, 0),
    ("Magistral: thinking part", Answer(delta={"content": [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm {"}]},
        {"type": "text", "text": GOOD}]}), False, 0),
    ("content null", Answer(delta={"content": None, "reasoning_content": GOOD}), False, 0),
    ("vLLM: answer in reasoning_content", Answer(delta={"reasoning_content": f"So:\n{GOOD}"}),
     False, 0),
    ("OpenRouter: answer in reasoning", Answer(delta={"reasoning": f"{{x}} {GOOD}"}), False, 0),
    ("SGLang: unclosed thoughts", Answer(f"<think>It is {GOOD}"), False, 0),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "tools", "looks"), [row[1:] for row in MESSAGES],
                         ids=[row[0] for row in MESSAGES])  # fmt: skip
def test_messages(answer: Answer, tools: bool, looks: int, tmp_path: Path) -> None:
    answers = [answer, Answer(GOOD)]
    result, looked, requests = _ask(
        lambda body: answers[min(1, _turn(body))], tmp_path, tools=tools
    )
    assert result.output.n == 3 and looked == looks
    assert "refusal" not in _kinds(tmp_path)
    assert len(requests) <= 2


def _error(code: object, message: str = "busy") -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()


def _stream(*events: str) -> Answer:
    text = "".join(event if event.startswith(":") else f"data: {event}\n\n" for event in events)
    return Answer(raw=text.encode(), headers={"Content-Type": "text/event-stream"})


def _chunk(content: str, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return json.dumps({"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m",
                       "choices": [choice]})  # fmt: skip


SERVERS: list[tuple[str, Answer]] = [
    ("503 once", Answer("loading", status=503, headers={"Retry-After": "0"})),
    ("OpenRouter: 200 with an error", Answer(raw=_error(502))),
    ("LM Studio: 200 with an error of text", Answer(raw=b'{"error": "model is loading"}')),
    ("llama.cpp: error in the stream", _stream(_error(503).decode())),
    ("OpenAI: server_error in the stream", _stream(
        '{"error": {"type": "server_error", "message": "retry", "code": null}}')),
    ("cut after a part", _stream(_chunk('{"n"'))),
    ("stall after a part", Answer('{"n": 3}', pieces=2, pause=0.5)),
    ("OpenRouter: keep-alive comments", _stream(
        ": OPENROUTER PROCESSING\n\n", ": OPENROUTER PROCESSING\n\n", _chunk(GOOD, "stop"))),
    ("Azure: a first chunk without choices", _stream(
        json.dumps({"choices": [], "prompt_filter_results": [], "id": "", "model": "",
                    "object": "", "created": 0}), _chunk(GOOD, "stop"))),
    ("usage: null in chunks", _stream(
        _chunk(GOOD, "stop")[:-1] + ', "usage": null}', "[DONE]")),
    ("length, then shorter", Answer('{"n": 3, "notes": ["a', finish="length")),
]  # fmt: skip


@pytest.mark.parametrize("answer", [row[1] for row in SERVERS], ids=[row[0] for row in SERVERS])
def test_servers(answer: Answer, tmp_path: Path) -> None:
    left = [answer, Answer(GOOD)]
    result, *_ = _ask(lambda body: left.pop(0), tmp_path)
    assert result.output.n == 3
    known = {"answered", "broke off"}
    assert {line["outcome"] for line in charges(tmp_path / "spending.jsonl")} <= known


FORMATS: list[tuple[str, int, str, str]] = [
    ("TGI", 422, "Unprocessable entity", "json_schema"),
    ("FastAPI", 422, "body.response_format: extra fields not permitted", "response_format"),
    ("OpenRouter", 404, "No endpoints found that support response_format", "response_format"),
    ("LM Studio", 400, "'response_format.type' must be 'json_schema' or 'text'", "json_object"),
    ("llama.cpp", 501, "json_schema is not implemented", "json_schema"),
    ("Ollama", 400, "m does not support tools", "tools"),
    ("OpenRouter", 404, "No endpoints found that support tool use", "tools"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "status", "reason", "word"), FORMATS)
def test_formats(where: str, status: int, reason: str, word: str, tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        sent = json.dumps({name: body[name] for name in body if name != "messages"})
        return Answer(reason, status=status) if f'"{word}"' in sent else Answer(GOOD)

    structured = "json_object" if word == "json_object" else "json_schema"
    result, *_ = _ask(answer, tmp_path, tools=word == "tools", structured=structured)
    assert result.output.n == 3


def test_each_problem_is_sent_back_at_once(tmp_path: Path) -> None:
    bad = json.dumps({"n": "x", "share": "y", "verdict": "z", "notes": [[1]] * 6})
    answers = [Answer(bad), Answer(GOOD)]
    *_, requests = _ask(lambda body: answers[_turn(body)], tmp_path)
    complaint = requests[1]["messages"][-1]["content"]
    places = ["n: ", "share: ", "verdict: ", *(f"notes.{at}: " for at in range(6))]
    assert all(place in complaint for place in places)
    assert requests[1]["messages"][:2] == requests[0]["messages"], "the prefix stays the same"


def test_an_error_of_the_request_is_not_repeated(tmp_path: Path) -> None:
    left = [Answer(raw=_error(400, "unknown option"))]
    with pytest.raises(FaultError, match="unknown option"):
        _ask(lambda body: left.pop(), tmp_path)


def test_the_case_of_a_tag_is_repaired() -> None:
    notes: list[str] = []
    value = read_object('{"n": 1, "part": {"kind": "Cell type", "name": "B cell", "id": 4}}')
    fitted = fit(value, Tagged, notes=notes)
    assert fitted.part == Seen(kind="cell_type", name="B cell") and len(notes) == 2
    assert value == {"n": 1, "part": {"kind": "Cell type", "name": "B cell", "id": 4}}


def test_a_union_without_a_tag_is_left_alone() -> None:
    with pytest.raises(ValueError, match="parts"):
        fit({"n": 1, "parts": [{"kind": "gene", "symbol": "A", "name": "B"}]}, Reading)
