"""The model client against a real HTTP server that speaks the protocol, well and badly."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from sage.core.errors import FaultError, InputError
from sage.core.llm.budget import Meter, charges
from sage.core.llm.cache import ReplyCache, request_key
from sage.core.llm.client import UNBOUNDED_REPLY, Client, Endpoint
from sage.core.llm.messages import Image, Message, ModelChoice, Request
from sage.core.llm.repair import read_object, split_thoughts
from tests.openai_server import Answer, Server, serve

MODEL = ModelChoice(name="m", price_in=1.0, price_out=2.0)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ASKED = (Message(role="system", text="Count."), Message(role="user", text="How many?"))
NOW = {"Retry-After": "0"}


def _client(server: Server, folder: Path, **endpoint: Any) -> Client:
    asked = Endpoint(base_url=server.url, **{"retries": 0, "timeout_s": 5, **endpoint})
    return Client(asked, Meter(folder / "spending.jsonl"), ReplyCache(folder / "replies"))


def _request(model: ModelChoice = MODEL, **more: Any) -> Request:
    given = {"messages": ASKED, "schema": SCHEMA, **more}
    return Request(agent="counter", model=model, **given)


@pytest.mark.parametrize(
    ("answer", "options", "kind", "words", "outcome"),
    [
        (Answer("slow reply", pieces=10, pause=0.3), {"stall_s": 0.1}, FaultError,
         "stall_s", "broke off"),
        (Answer("late", silent=0.6), {"timeout_s": 0.2}, FaultError, "timeout_s", "timed out"),
        (Answer("gateway", status=504), {}, FaultError, "504", "timed out"),
        (Answer("half of it", pieces=5, breaks=True), {}, FaultError,
         "sage resume", "broke off"),
        (Answer("half", finish=""), {}, FaultError, "finish_reason", "broke off"),
        (Answer("", finish="content_filter"), {}, FaultError,
         "content filter", "answered"),
        (Answer("", delta={"refusal": "I cannot\nhelp."}), {}, FaultError,
         r"counter .*I cannot help\.", "answered"),
        (Answer("", choices=False), {}, FaultError, "choices", "answered"),
        (Answer("The prompt was flagged", status=400, code="content_filter"), {}, FaultError,
         "The prompt was flagged", None),
        (Answer("maximum context length is 8 tokens", status=400), {}, FaultError,
         "model m .*context", None),
        (Answer("You exceeded your quota", status=429, code="insufficient_quota"), {"retries": 3},
         FaultError, "quota of model m", None),
        (Answer("slow down", status=429, headers=NOW), {"retries": 1}, FaultError,
         "requests_per_minute", None),
        (Answer("come later", status=429, headers={"Retry-After": "60"}), {"retries": 2},
         FaultError, "timeout_s", None),
        (Answer("down", status=503, headers=NOW), {"retries": 1}, FaultError,
         "503", None),
        (Answer("bad key", status=401), {}, InputError, "SAGE_API_KEY", None),
        (Answer("no such model", status=404), {}, InputError, r"sage\.toml", None),
        (Answer(raw=b"<html>gateway</html>"), {}, FaultError, "base_url", None),
        (Answer(raw=b'{"hello": 1}'), {}, FaultError, "base_url", None),
    ],
)  # fmt: skip
def test_a_model_that_misbehaves_is_one_line_with_a_way_on(
    answer: Answer, options: dict[str, Any], kind: type[Exception], words: str,
    outcome: str | None, tmp_path: Path,
) -> None:  # fmt: skip
    with serve(lambda body: answer) as server:
        client = _client(server, tmp_path, **options)
        with pytest.raises(kind, match=words) as caught:
            client.ask(_request())
        served = len(server.requests)
    assert "\n" not in str(caught.value)
    passing = answer.status in (429, 503) and answer.code is None
    waits = answer.headers.get("Retry-After") != "60"
    asked = 2 if outcome == "broke off" else 1  # a reply that breaks off is asked for once more
    assert served == asked + (options.get("retries", 0) if passing and waits else 0)
    paid = charges(tmp_path / "spending.jsonl")
    assert [line["outcome"] for line in paid] == ([outcome] * asked if outcome else [])
    assert client.meter.total_usd == pytest.approx(sum(line["usd"] for line in paid))
    if outcome in ("timed out", "broke off"):
        assert paid[0]["estimated"] and paid[0]["completion_tokens"] == UNBOUNDED_REPLY
        assert paid[0]["usd"] > 0
    assert not list((tmp_path / "replies").glob("*.json"))


@pytest.mark.parametrize(
    "endless",
    [
        Answer("x" * 500_000, pieces=50, usage=False),
        Answer("x" * 500_000, usage=False, whole=True),
        Answer("", usage=False, delta={"tool_calls": [
            {"id": "c", "function": {"name": "f", "arguments": "x" * 500_000}}]}),
    ],
    ids=["stream", "whole", "call"],
)  # fmt: skip
def test_a_reply_without_end_is_cut_off_and_takes_little_of_the_budget(
    endless: Answer, tmp_path: Path
) -> None:
    """A server that ignores the limit: 0.5 MB would be 125,000 tokens."""
    with serve(lambda body: endless) as server:
        client = _client(server, tmp_path)
        client.meter.budget_usd = 1.0
        with pytest.raises(FaultError, match="sage resume"):
            client.ask(_request(MODEL.model_copy(update={"max_tokens": 1000})))
    (paid,) = charges(tmp_path / "spending.jsonl")
    assert server.requests[0]["max_tokens"] == 1000 and paid["outcome"] == "cut off"
    assert 1000 <= paid["completion_tokens"] <= 2000
    assert client.meter.total_usd < 0.04 and not list((tmp_path / "replies").glob("*.json"))


@pytest.mark.parametrize("whole", [False, True])
def test_a_reply_without_usage_is_estimated_and_said_so(whole: bool, tmp_path: Path) -> None:
    with serve(lambda body: Answer('{"a": 12345678}', usage=False, whole=whole)) as server:
        reply = _client(server, tmp_path).ask(_request()).reply
    assert reply.estimated
    assert reply.completion_tokens == 4
    assert reply.prompt_tokens > 0
    assert charges(tmp_path / "spending.jsonl")[0]["estimated"] is True
    assert ReplyCache(tmp_path / "replies").get(_key(MODEL)) == reply


def _key(model: ModelChoice) -> str:
    messages = [message.wire() for message in ASKED]
    return request_key(model.name, messages, SCHEMA, model.temperature)


@pytest.mark.parametrize(
    ("said", "content", "thought"),
    [
        ('<think>Is it {"a": 9}?</think>\n{"a": 1}', '{"a": 1}', 'Is it {"a": 9}?'),
        ('I wonder {about} it.</think>{"a": 1}', '{"a": 1}', "I wonder {about} it."),
        ('<think>a</think><think>b</think>{"a": 1}', '{"a": 1}', "a\n\nb"),
        ('{"a": "</think> in a string"}', '{"a": "</think> in a string"}', ""),
        ("<think>never finished {", "", "never finished {"),
        ('```json\n{"a": 1}\n```', '```json\n{"a": 1}\n```', ""),
    ],
)
def test_thoughts_before_the_answer_are_set_apart(said: str, content: str, thought: str) -> None:
    assert split_thoughts(said) == (content, thought)
    if content:
        assert isinstance(read_object(said), dict)


def test_a_reasoning_models_thoughts_are_kept_apart_and_its_effort_is_asked(tmp_path: Path) -> None:
    model = MODEL.model_copy(update={"reasoning_effort": "low"})
    said = Answer('<think>{"a": 2}?</think>{"a": 1}')
    with serve(lambda body: said) as server:
        reply = _client(server, tmp_path).ask(_request(model)).reply
        assert server.requests[0]["reasoning_effort"] == "low"
    assert (reply.content, reply.reasoning) == ('{"a": 1}', '{"a": 2}?')
    with serve(lambda body: Answer("{}", delta={"reasoning_content": "hm"})) as server:
        assert _client(server, tmp_path / "b").ask(_request(model)).reply.reasoning == "hm"


@pytest.mark.parametrize(
    ("refused", "reason", "left"),
    [
        (lambda body: "stream_options" in body, "Unknown field stream_options", "response_format"),
        (lambda body: "json_schema" in json.dumps(body.get("response_format")),
         "response_format json_schema is not supported", "json_object"),
        (lambda body: "response_format" in body, "unknown parameter: response_format", "prompt"),
        (lambda body: "max_tokens" in body, "use max_completion_tokens instead of max_tokens",
         "max_completion_tokens"),
    ],
)  # fmt: skip
def test_what_a_server_does_not_know_is_asked_another_way(
    refused: Callable[[dict[str, Any]], bool], reason: str, left: str, tmp_path: Path
) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return Answer(reason, status=400) if refused(body) else Answer('{"a": 1}')

    model = MODEL.model_copy(update={"max_tokens": 50})
    with serve(answer) as server:
        client = _client(server, tmp_path)
        assert client.ask(_request(model)).reply.content == '{"a": 1}'
        first = len(server.requests)
        other = (*ASKED, Message(role="user", text="And now?"))
        client.ask(_request(model, messages=other))
        assert len(server.requests) == first + 1, "what was learned is kept"
    sent = server.requests[-1]
    if left == "prompt":
        assert "JSON schema of the reply" in sent["messages"][0]["content"]
    elif left == "json_object":
        assert sent["response_format"] == {"type": "json_object"}
    else:
        assert left in sent


@pytest.mark.parametrize(
    "down",
    [
        Answer("no such model", status=404),
        Answer("quota", status=429, code="insufficient_quota"),
        Answer("busy", status=503, headers=NOW),
    ],
)
def test_the_named_fallback_answers_when_the_model_cannot(down: Answer, tmp_path: Path) -> None:
    spare = ModelChoice(name="m-spare", price_in=100.0, price_out=100.0, max_tokens=7)
    model = MODEL.model_copy(update={"fallback": spare})
    with serve(lambda body: down if body["model"] == "m" else Answer("{}")) as server:
        client = _client(server, tmp_path)
        answer = client.ask(_request(model))
        assert server.requests[-1]["max_tokens"] == 7
        assert answer.reply.model == "m-spare"
        reply = answer.reply
        assert answer.usd == pytest.approx(spare.cost(reply.prompt_tokens, reply.completion_tokens))
        assert client.ask(_request(model)).cached
        assert client.ask(_request(model)).usd == pytest.approx(answer.usd)
    assert [line["model"] for line in charges(tmp_path / "spending.jsonl")] == ["m-spare"]


def test_no_fallback_is_asked_for_what_already_took_its_time(tmp_path: Path) -> None:
    model = MODEL.model_copy(update={"fallback": ModelChoice(name="spare")})
    with serve(lambda body: Answer("late", silent=0.5)) as server:
        with pytest.raises(FaultError, match="timeout_s"):
            _client(server, tmp_path, timeout_s=0.2).ask(_request(model))
        assert [body["model"] for body in server.requests] == ["m"]


def test_azure_is_asked_by_deployment_and_version(tmp_path: Path) -> None:
    model = MODEL.model_copy(update={"max_tokens": 9})
    with serve(lambda body: Answer("{}")) as server:
        endpoint = Endpoint(
            base_url=server.url.removesuffix("/v1"),
            api_key=SecretStr("secret-of-azure"),
            api_version="2024-10-21",
        )
        Client(endpoint, Meter()).ask(_request(model))
    assert server.paths == ["/openai/deployments/m/chat/completions?api-version=2024-10-21"]
    assert server.headers[0]["api-key"] == "secret-of-azure"
    assert server.requests[0]["max_completion_tokens"] == 9


def test_pictures_go_with_the_text(tmp_path: Path) -> None:
    seen = (Message(role="user", text="What is it?", images=(Image(data="AAAA"),)),)
    with serve(lambda body: Answer("{}")) as server:
        _client(server, tmp_path).ask(_request(messages=seen))
    text, picture = server.requests[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert picture["image_url"]["url"] == "data:image/png;base64,AAAA"


def test_no_more_calls_are_under_way_than_allowed(tmp_path: Path) -> None:
    with serve(lambda body: Answer("{}", silent=0.05)) as server:
        client = _client(server, tmp_path, concurrency=3)

        async def many() -> None:
            await asyncio.gather(*(
                client.ask_async(_request(messages=(Message(role="user", text=str(number)),)))
                for number in range(12)
            ))  # fmt: skip

        asyncio.run(many())
        assert len(server.requests) == 12
        assert 1 < server.most_at_once <= 3


def test_calls_begin_no_faster_than_the_rate(tmp_path: Path) -> None:
    with serve(lambda body: Answer("{}")) as server:
        client = _client(server, tmp_path, requests_per_minute=600)
        begun = time.monotonic()

        def ask(number: int) -> None:
            client.ask(_request(messages=(Message(role="user", text=str(number)),)))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(ask, range(6)))
        assert time.monotonic() - begun >= 0.5


def test_a_providers_words_are_short_and_show_no_key(tmp_path: Path) -> None:
    said = "Wrong:\n" + "x" * 5000 + " sk-abcdefghijkl"
    answer = Answer("sk-abcdefghijkl " + said, status=422)
    with serve(lambda body: answer) as server, pytest.raises(FaultError) as caught:
        _client(server, tmp_path).ask(_request())
    assert len(str(caught.value)) < 700
    assert "sk-abc" not in str(caught.value)
