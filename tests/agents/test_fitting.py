"""Prompts that are composed to fit a model's context."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agents.core.fitting import fit_input
from agents.core.prompting import render
from agents.novelty.judge import JUDGE
from agents.novelty.prover import PROVER
from agents.novelty.types import CitedRecord, Coverage, CriticInput, ProverPosition, Turn
from agents.novelty.verifier import VERIFIER
from agents.scientist.agent import SCIENTIST
from kg.literature.types import Record
from sage.cli.doctor import read_contexts
from sage.core.llm.messages import Message, ModelChoice, Request, ToolCall
from sage.core.llm.trace import read_trace
from sage.core.llm.turns import LEFT_OUT, ModelPolicy
from sage.run.estimate import describe_misfits, estimate
from sage.settings import Settings
from tests.agents.bench import given, world
from tests.agents.nov_helpers import expanded
from tests.openai_server import Answer, chat_reasoner, serve


class Inner(BaseModel):
    records: tuple[str, ...]


class Given(BaseModel):
    question: str
    genes: tuple[str, ...]
    inner: Inner


ASKED = Given(
    question="does fibrosis follow inflammation",
    genes=tuple(f"GENE{at}" for at in range(50)),
    inner=Inner(records=tuple(
        f"record {at} on {'fibrosis' if at % 10 == 7 else 'nothing'}" for at in range(40))),
)  # fmt: skip
SPARE = ("genes", "inner.records")


@pytest.mark.parametrize("room", range(0, 2600, 130))
def test_whole_items_are_left_out_and_the_relevant_ones_kept(room: int) -> None:
    def fits(given: Given) -> bool:
        return len(given.model_dump_json()) <= room

    found, left_out = fit_input(ASKED, SPARE, fits)
    for before, after in ((ASKED.genes, found.genes), (ASKED.inner.records, found.inner.records)):
        assert [item for item in before if item in after] == list(after)  # whole, in their order
    lost = len(ASKED.genes) - len(found.genes), len(ASKED.inner.records) - len(found.inner.records)
    counts = zip(SPARE, lost, (50, 40), strict=True)
    assert left_out == tuple(f"{path}: {n} of {of}" for path, n, of in counts if n)
    assert fits(found) or not (found.genes or found.inner.records)
    if lost[1]:
        assert not found.genes  # what is needed least goes first
    kept = [("fibrosis" in record) for record in found.inner.records]
    assert sum(kept) == min(len(kept), 4)


@pytest.mark.parametrize("context", [None, 10_000, 5_000])
def test_a_prompt_fits_the_context_and_the_trace_says_what_is_missing(
    context: int | None, tmp_path: Path
) -> None:
    records = tuple(
        CitedRecord(ref=f"R{at}", record=Record(title=f"{at} and TLS", abstract="Words. " * 90))
        for at in range(60)
    )
    asked = CriticInput(expanded=expanded(), records=records)
    with serve(lambda body: Answer("{}")) as server:
        model = ModelChoice(name="m", context=context)
        reasoner = chat_reasoner(server.url, tmp_path, model=model, repairs=0, retries=0)
        reasoner.trace.path = tmp_path / "trace.jsonl"
        with pytest.raises(Exception, match="prover"):
            reasoner.ask(PROVER, asked)
    (sent,) = server.requests
    text = sent["messages"][-1]["content"]
    line = read_trace(tmp_path / "trace.jsonl")[0]
    shown = [record.ref for record in asked.records if f"[{record.ref}]" in text]
    if context is None:
        assert line.left_out is None and len(shown) == 60
    else:
        assert len(json.dumps(sent)) / 4 < 0.8 * context
        assert line.left_out == (f"records: {60 - len(shown)} of 60",) and 0 < len(shown) < 60


def test_the_oldest_results_of_tools_become_outlines() -> None:
    class Silent:
        def ask(self, request: Request) -> Any:
            raise NotImplementedError

        async def ask_async(self, request: Request) -> Any:
            raise NotImplementedError

    messages = [Message(role="system", text="s"), Message(role="user", text="u")]
    for at in range(6):
        call = ToolCall(id=f"c{at}", name="look", arguments="{}")
        text = json.dumps({"sources": ["x" * 99] * 20, "covered": "all"})
        messages += [Message(role="assistant", text="", calls=(call,)),
                     Message(role="tool", text=text, call_id=call.id)]  # fmt: skip
    request = Request("a", ModelChoice(name="m", context=2400), tuple(messages))
    policy = ModelPolicy(Silent(), request, show=str)
    with pytest.raises(NotImplementedError):
        policy.decide()
    assert policy.request.tokens <= 1800
    texts = [message.text for message in policy.request.messages if message.role == "tool"]
    short = [text.startswith(LEFT_OUT) for text in texts]
    assert short == sorted(short, reverse=True) and not short[-1]
    assert texts[0] == LEFT_OUT + "sources (20), covered"


def test_an_agent_names_fields_that_it_has(tmp_path: Path) -> None:
    asked = given(world(tmp_path / "w"))
    found, left_out = fit_input(asked, SCIENTIST.spare, lambda fewer: False)
    assert not found.dictionary.variables and not found.brief.relationships
    assert any(entry.startswith("dictionary.variables") for entry in left_out)


SERVED = {
    "vLLM": {"id": "m", "max_model_len": 2048},
    "llama.cpp": {"id": "m", "meta": {"n_ctx_train": 8192, "n_ctx": 2048}},
    "OpenRouter": {"id": "m", "context_length": 2048, "n_ctx": 4096},
    "silent": {"id": "m"},
}


@pytest.mark.parametrize("server", SERVED)
def test_a_context_too_short_for_an_agent_is_named_before_any_call(server: str) -> None:
    contexts = read_contexts(json.dumps({"data": [SERVED[server]]}).encode())
    assert contexts == ({} if server == "silent" else {"m": 2048})
    told = Settings(models=dict.fromkeys(("nano", "mini", "high"), ModelChoice(name="m")),
                    base_url="http://127.0.0.1:9/v1", reasoner="chat")  # fmt: skip
    misfits = describe_misfits(told, contexts)
    assert (misfits == []) == (server == "silent")
    assert all("context 2,048" in text for text in misfits)
    declared = {"nano": 1_000_000, "mini": 1_000_000, "high": 2048}
    models = {role: ModelChoice(name="m", context=size) for role, size in declared.items()}
    told = told.model_copy(update={"models": type(told.models)(**models)})
    (misfit,) = describe_misfits(told, {"m": 1})  # what is declared counts
    assert "models.high" in misfit and "scientist" in misfit
    rows = {row.agent: row.fits for row in estimate(told, 1).agents}
    assert rows.pop("scientist") == "no"
    assert "no" not in {rows[name] for name in ("prover", "question", "summary")}
    assert read_contexts(b"nothing") == {} == read_contexts(b'{"data": [{}]}')


def test_the_critics_share_all_but_the_end_of_their_prompts() -> None:
    """What bears on the claim is listed once, first, and stays the same from round to round."""
    records = tuple(
        CitedRecord(ref=f"R{at}", record=Record(title=f"{at} and TLS", retracted=at == 9))
        for at in range(10)
    )
    covered = Coverage(searched=("index (10 records)",), relevant=("R2", "R5"))
    position = ProverPosition(score=5.0, confidence=0.5, summary="Nothing.")
    turn = Turn(round=0, critic="prover", position=position)
    first = CriticInput(expanded=expanded(), records=records, coverage=covered)
    later = first.model_copy(update={"debate": (turn,), "round": 1})
    prompts = [render(agent.prompt, asked) for agent in (PROVER, VERIFIER, JUDGE)
               for asked in (first, later)]  # fmt: skip
    assert len({system for system, _ in prompts}) == 1
    users = [user for _, user in prompts]
    assert len(set(users)) == 6

    def share(texts: list[str]) -> str:
        columns = zip(*texts, strict=False)
        return "".join(each[0] for each in takewhile(lambda it: len(set(it)) == 1, columns))

    shared = share(users)
    assert all(f"[{ref}]" in shared for ref in ("R2", "R5", "R9"))
    assert not any(f"[R{at}]" in user for at in (0, 1, 3, 4, 6, 7, 8) for user in users)
    debated = share(users[1::2])
    assert "Round 0, prover" in debated and len(debated) > len(shared)
