"""The turn loop: tools, bounds, refusals, the trace, its replay, and the same loop for rules."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agents.core.base import Agent, PromptFile, Resources, Role, View
from agents.core.rules import RulesReasoner
from kg.lexicon.ontology import Ontology
from sage.core.errors import FaultError, InputError
from sage.core.llm.budget import BudgetError, Meter, charges
from sage.core.llm.messages import ModelChoice
from sage.core.llm.trace import Trace, episodes, read_trace
from sage.core.llm.turns import BoundError, Bounds, Moves, Tool, Use, replay
from tests.openai_server import Answer, Server, chat_reasoner, serve


class Question(View):
    numbers: tuple[int, ...]


class Total(View):
    total: int


class Pair(BaseModel):
    left: int
    right: int


def add(pair: Pair) -> dict[str, int]:
    if pair.left < 0:
        raise InputError("negative numbers are not added")
    return {"sum": pair.left + pair.right}


ADD = Tool("add", "Adds two numbers.", Pair, add)


def add_up(given: Question, resources: Resources) -> Moves[Total]:
    total = 0
    for number in given.numbers:
        result = yield Use("add", Pair(left=total, right=number))
        total = result["sum"]
    return Total(total=total)


def _agent(folder: Path, **changes: Any) -> Agent[Question, Total]:
    prompt = folder / "total.md"
    prompt.write_text("version: 1\n\n## system\nAdd up.\n\n## user\n{{ numbers }}\n")
    fields: dict[str, Any] = {
        "name": "adder", "role": Role.MINI, "reads": Question, "returns": Total,
        "prompt": PromptFile(prompt), "rule": lambda given, _: Total(total=sum(given.numbers)),
        "tools": (ADD,), "policy": add_up, "bounds": Bounds(turns=6),
    } | changes  # fmt: skip
    return Agent(**fields)


def _rules(folder: Path, **more: Any) -> RulesReasoner:
    return RulesReasoner(Resources(Ontology((), ())), Trace(folder / "trace.jsonl"), **more)


def _adding_model(body: dict[str, Any]) -> Answer:
    """Adds by the tool, one number after another, then answers."""
    numbers = [int(digits) for digits in re.findall(r"\d+", body["messages"][1]["content"])]
    sums = [
        json.loads(message["content"]) for message in body["messages"] if message["role"] == "tool"
    ]
    if len(sums) < len(numbers):
        left = sums[-1]["sum"] if sums else 0
        function = {
            "name": "add",
            "arguments": json.dumps({"left": left, "right": numbers[len(sums)]}),
        }
        return Answer("", finish="tool_calls",
                      delta={"tool_calls": [{"id": f"c{len(sums)}", "type": "function",
                                             "function": function}]})  # fmt: skip
    return Answer(json.dumps({"total": sums[-1]["sum"]}))


def _chat(server: Server, folder: Path, **more: Any) -> Any:
    reasoner = chat_reasoner(server.url, folder, **more)
    reasoner.trace = Trace(folder / "trace.jsonl")
    return reasoner


def _kinds(folder: Path) -> list[str]:
    return [line.kind for line in read_trace(folder / "trace.jsonl")]


def test_a_model_works_with_tools_in_turns_until_it_answers(tmp_path: Path) -> None:
    with serve(_adding_model) as server:
        chat = _chat(server, tmp_path)
        reply = chat.ask(_agent(tmp_path), Question(numbers=(1, 2, 3)))
        assert server.requests[0]["tools"][0]["function"]["name"] == "add"
        told = [message for message in server.requests[-1]["messages"] if message["role"] == "tool"]
        assert [item["tool_call_id"] for item in told] == ["c0", "c1", "c2"]
        assert len(server.requests) == 4
        chat.ask(_agent(tmp_path), Question(numbers=(1, 2, 3)))
        assert len(server.requests) == 4, "kept replies serve every turn again"
    assert reply.output.total == 6
    assert reply.spent.calls == 4
    assert _kinds(tmp_path)[:9] == [
        "ask", "model", "tool", "model", "tool", "model", "tool", "model", "end"
    ]  # fmt: skip


@settings(max_examples=6, deadline=None)
@given(numbers=st.lists(st.integers(0, 1000), min_size=1, max_size=5))
def test_rule_and_model_drive_the_same_tools_to_the_same_end(
    numbers: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("turns")
    asked = Question(numbers=tuple(numbers))
    ruled = _rules(folder / "rules").ask(_agent(folder), asked)
    with serve(_adding_model) as server:
        modelled = _chat(server, folder / "chat").ask(_agent(folder), asked)
    assert ruled.output == modelled.output == Total(total=sum(numbers))
    used = [
        [(line.tool, line.arguments, line.result)
         for line in read_trace(folder / kind / "trace.jsonl") if line.kind == "tool"]
        for kind in ("rules", "chat")
    ]  # fmt: skip
    assert used[0] == used[1] and len(used[0]) == len(numbers)
    for kind in ("rules", "chat"):
        for episode in episodes(read_trace(folder / kind / "trace.jsonl")):
            assert replay(episode, Total) == ruled.output


@pytest.mark.parametrize(
    ("arguments", "name", "told"),
    [
        ('{"left": 1}', "add", "right: Field required"),
        ("{broken", "add", "not valid JSON"),
        ('{"left": -1, "right": 1}', "add", "negative numbers"),
        ('{"left": 1, "right": 1}', "multiply", "multiply"),
    ],
)
def test_a_call_that_cannot_be_made_is_told_and_mended(
    arguments: str, name: str, told: str, tmp_path: Path
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}

    def answer(body: dict[str, Any]) -> Answer:
        last = body["messages"][-1]
        if last["role"] == "tool":
            assert told in json.loads(last["content"])["error"]
            return Answer('{"total": 2}')
        return Answer("", finish="tool_calls", delta={"tool_calls": [call]})

    with serve(answer) as server:
        reply = _chat(server, tmp_path).ask(_agent(tmp_path), Question(numbers=(1, 1)))
    assert reply.output.total == 2
    (episode,) = episodes(read_trace(tmp_path / "trace.jsonl"))
    assert replay(episode, Total) == reply.output


def test_tools_are_asked_in_words_where_the_server_has_none(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        if "tools" in body:
            return Answer("this server does not support tools", status=400)
        last = body["messages"][-1]["content"]
        if "Result of add" in last:
            assert '{"sum": 5}' in last
            return Answer('{"total": 5}')
        assert '"name": "add"' in body["messages"][0]["content"]
        return Answer('{"tool": "add", "arguments": {"left": 2, "right": 3}}')

    with serve(answer) as server:
        reply = _chat(server, tmp_path).ask(_agent(tmp_path), Question(numbers=(2, 3)))
    assert reply.output.total == 5


@pytest.mark.parametrize(
    ("bounds", "unit"),
    [
        ({"turns": 3}, "3 turns"),
        ({"turns": 50, "tokens": 200}, "200 tokens"),
        ({"turns": 50, "usd": 0.3}, "0.3 USD"),
        ({"turns": 10_000, "seconds": 0.2}, "0.2 seconds"),
    ],
)
def test_every_bound_ends_an_agent_that_never_answers(
    bounds: dict[str, Any], unit: str, tmp_path: Path
) -> None:
    function = {"name": "add", "arguments": '{"left": 1, "right": 1}'}
    call = {"id": "c", "type": "function", "function": function}
    never = Answer("", finish="tool_calls", delta={"tool_calls": [call]})
    model = ModelChoice(name="m", price_in=1000.0, price_out=1000.0)
    begun = time.monotonic()
    with serve(lambda body: never) as server, pytest.raises(FaultError, match=unit) as caught:
        agent = _agent(tmp_path, bounds=Bounds(**bounds))
        _chat(server, tmp_path, model=model).ask(agent, Question(numbers=(1, 1)))
    assert time.monotonic() - begun < 20
    turns = [line for line in read_trace(tmp_path / "trace.jsonl") if line.kind == "model"]
    if "turns" in unit:
        assert isinstance(caught.value, FaultError)
        assert len(turns) <= 4 and "tools" not in server.requests[-1]
        assert "No more tools" in server.requests[-1]["messages"][-1]["content"]
    else:
        assert isinstance(caught.value, BoundError)
    assert _kinds(tmp_path)[-1] == "end"


def test_a_tools_price_is_reserved_and_counted(tmp_path: Path) -> None:
    meter = Meter(tmp_path / "spending.jsonl", budget_usd=0.25)
    agent = _agent(tmp_path, tools=(Tool("add", "Adds.", Pair, add, usd=0.1),))
    reply = _rules(tmp_path, meter=meter).ask(agent, Question(numbers=(1, 2)))
    assert reply.spent.usd == pytest.approx(0.2)
    assert [line["model"] for line in charges(meter.path)] == ["tool add", "tool add"]
    with pytest.raises(BudgetError):
        _rules(tmp_path, meter=meter).ask(agent, Question(numbers=(1,)))


def test_a_tools_result_that_names_a_patient_does_not_reach_the_model(tmp_path: Path) -> None:
    leaking = Tool("add", "Adds.", Pair, lambda pair: {"patient": "TCGA-XX-0001"})
    with serve(_adding_model) as server:
        chat = _chat(server, tmp_path, withheld=lambda: frozenset({"TCGA-XX-0001"}))
        with pytest.raises(FaultError, match="names a patient"):
            chat.ask(_agent(tmp_path, tools=(leaking,)), Question(numbers=(1,)))
        assert "TCGA-XX-0001" not in json.dumps(server.requests)


def test_refusals_are_turns_and_replay(tmp_path: Path) -> None:
    # line breaks of Unicode in a reply break no line of the trace
    answers = ["not JSON\u2028\x85", '{"total": "many"}', '{"total": 7}', '{"total": 8}']
    agent = _agent(
        tmp_path, tools=(),
        check=lambda given, output: ["it is not eight"] if output.total != 8 else [],
    )  # fmt: skip
    with serve(lambda body: Answer(answers.pop(0))) as server:
        reply = _chat(server, tmp_path, repairs=3).ask(agent, Question(numbers=(8,)))
    assert reply.spent.repairs == 3
    (episode,) = episodes(read_trace(tmp_path / "trace.jsonl"))
    assert [line.text for line in episode if line.kind == "refusal"][2] == "it is not eight"
    assert replay(episode, Total) == Total(total=8)


@pytest.mark.parametrize("change", ["content", "output", "lost"])
def test_a_trace_that_was_changed_does_not_replay(change: str, tmp_path: Path) -> None:
    _rules(tmp_path).ask(_agent(tmp_path, tools=()), Question(numbers=(8,)))
    lines = read_trace(tmp_path / "trace.jsonl")
    changed = {
        "content": [lines[0], lines[1].model_copy(update={"content": '{"total": 9}'}), lines[2]],
        "output": [lines[0], lines[1], lines[2].model_copy(update={"output": {"total": 9}})],
        "lost": [lines[0], lines[2]],
    }[change]
    with pytest.raises(InputError, match="adder"):
        replay(changed, Total)


def test_a_trace_says_which_line_is_damaged_and_forgives_a_cut_one(tmp_path: Path) -> None:
    _rules(tmp_path).ask(_agent(tmp_path, tools=()), Question(numbers=(8,)))
    path = tmp_path / "trace.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"format": 1, "ti')
    assert len(read_trace(path)) == 3
    path.write_bytes(whole.encode() + '{"text": "µ'.encode()[:-1])
    assert len(read_trace(path)) == 3
    for other in ('"kind": "guess"', f'"kind": {"[" * 99_999}', '"kind": "\udcff"'):
        changed = whole.replace('"kind": "rule"', other)
        path.write_bytes(changed.encode("utf-8", "surrogateescape"))
        with pytest.raises(InputError, match="line 2"):
            read_trace(path)


def test_what_utf8_cannot_hold_is_traced_escaped(tmp_path: Path) -> None:
    class Named(View):
        name: str

    agent = _agent(tmp_path, tools=(), returns=Named, rule=lambda given, _: Named(name="x\ud800"))
    _rules(tmp_path).ask(agent, Question(numbers=(1,)))
    (episode,) = episodes(read_trace(tmp_path / "trace.jsonl"))
    assert episode[-1].output == {"name": "x\ud800"}
    assert replay(episode, Named) == Named(name="x\ud800")
