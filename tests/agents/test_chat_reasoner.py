"""The model path against a real HTTP server: repairs, faults, budget, cache, secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from agents.core.chat import ChatReasoner
from agents.core.rules import RulesReasoner
from agents.path_generation.agent import PATH_GENERATION, PathRequest
from agents.scientist.agent import SCIENTIST
from sage.core.errors import FaultError, InputError
from sage.core.llm.messages import ModelChoice
from tests.agents.bench import RESOURCES, bench, given, world
from tests.openai_server import Answer, Server, chat_reasoner, serve

GOOD = json.dumps({"sources": ["TLS"], "targets": ["FABP5"], "domain": "bladder cancer"})
GIVEN = PathRequest(prompt="TLS and FABP5")
SECRET = "sk-very-secret"


def _reasoner(
    server: Server, folder: Path, *, budget: float | None = None, **more: Any
) -> ChatReasoner:
    model = ModelChoice(name="test-model", price_in=1000.0, price_out=1000.0)
    key = SecretStr(SECRET)
    return chat_reasoner(
        server.url, folder, model=model, budget=budget, api_key=key,
        **{"retries": 1, "timeout_s": 5, **more},
    )  # fmt: skip


def _script(*answers: Answer) -> Callable[[dict[str, Any]], Answer]:
    left = list(answers)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (Answer('{"sources": ["TLS"], "targets": ['), "not complete"),
        (Answer('{"sources": ["TLS"], "targets": [], "domain": 3}'), "domain"),
        (Answer(GOOD, finish="length"), "cut off"),
    ],
    ids=["truncated", "schema", "length"],
)
def test_a_bad_reply_goes_back_with_the_reason(bad: Answer, word: str, tmp_path: Path) -> None:
    with serve(_script(bad, Answer(GOOD))) as server:
        reply = _reasoner(server, tmp_path).ask(PATH_GENERATION, GIVEN)
    assert reply.spent.repairs == 1
    assert word in server.requests[1]["messages"][-1]["content"]


def test_repairs_are_bounded_and_useless_replies_are_forgotten(tmp_path: Path) -> None:
    with serve(_script(Answer("no"))) as server:
        reasoner = _reasoner(server, tmp_path, repairs=2)
        with pytest.raises(FaultError, match="path_generation"):
            reasoner.ask(PATH_GENERATION, GIVEN)
        assert len(server.requests) == 3
    with serve(_script(Answer(GOOD))) as server:
        assert _reasoner(server, tmp_path).ask(PATH_GENERATION, GIVEN).output.domain


@pytest.mark.parametrize(
    ("said", "context", "asked"),
    [(Answer("no"), None, 3), (Answer(GOOD, finish="length"), None, 3), (Answer(GOOD), 20, 0),
     (Answer("request exceeds the available context size", status=400), None, 1)],
    ids=["useless", "cut off", "declared context", "refused for its length"],
)  # fmt: skip
def test_rules_stand_in_for_a_model_that_is_of_no_use(
    said: Answer, context: int | None, asked: int, tmp_path: Path
) -> None:
    reasons: list[str] = []
    with serve(_script(said)) as server:
        reasoner = _reasoner(server, tmp_path, repairs=2)
        model = ModelChoice(name="test-model", context=context)
        reasoner.settings = reasoner.settings.model_copy(
            update={"models": dict.fromkeys(reasoner.settings.models, model)}
        )
        reasoner.stand_in = RulesReasoner(RESOURCES)
        reasoner.on_stand_in = reasons.append
        reply = reasoner.ask(PATH_GENERATION, GIVEN)
    assert reply.reasoner == "rules" and reply.model is None and len(reasons) == 1
    assert len(server.requests) == asked


def test_schemas_and_tools_are_counted_where_the_server_tells_no_usage(tmp_path: Path) -> None:
    looked = world(tmp_path / "w")
    asked = replace(SCIENTIST, tools=bench(looked).tools())
    with serve(_script(Answer("no", usage=False))) as server:
        reasoner = _reasoner(server, tmp_path, repairs=0)
        with pytest.raises(FaultError):
            reasoner.ask(asked, given(looked))
    (body,) = server.requests
    texts = [str(message["content"]) for message in body["messages"]]
    parts = [json.dumps(body["response_format"]["json_schema"]["schema"])]
    parts += [json.dumps(tool) for tool in body["tools"]]
    (line,) = (tmp_path / "spending.jsonl").read_text().splitlines()
    counted = json.loads(line)
    assert len(parts) > 8 and sum(map(len, parts)) > 0.3 * sum(map(len, texts))
    assert counted["estimated"]
    assert counted["prompt_tokens"] == pytest.approx(sum(map(len, texts + parts)) / 4, rel=0.03)


def test_a_key_that_is_refused_has_no_stand_in(tmp_path: Path) -> None:
    with serve(_script(Answer("bad key", status=401))) as server:
        reasoner = _reasoner(server, tmp_path)
        reasoner.stand_in = RulesReasoner(RESOURCES)
        with pytest.raises(InputError):
            reasoner.ask(PATH_GENERATION, GIVEN)


def test_a_reply_is_never_paid_twice(tmp_path: Path) -> None:
    with serve(_script(Answer(GOOD))) as server:
        _reasoner(server, tmp_path).ask(PATH_GENERATION, GIVEN)
        again = _reasoner(server, tmp_path)
        reply = again.ask(PATH_GENERATION, GIVEN)
        assert len(server.requests) == 1
    assert reply.spent.cached == 1
    assert again.client.meter.total_usd == pytest.approx(reply.spent.usd)


def test_no_secret_reaches_a_file(tmp_path: Path) -> None:
    with serve(_script(Answer(GOOD))) as server:
        _reasoner(server, tmp_path).ask(PATH_GENERATION, GIVEN)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET not in path.read_text()
