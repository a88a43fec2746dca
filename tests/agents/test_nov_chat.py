"""The debate with a model behind an OpenAI-compatible endpoint: a local one that makes mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.novelty.debate import hold_debate
from kg.literature.types import Query, Record, SearchAnswer
from sage.core.llm.messages import ModelChoice
from tests.agents.nov_helpers import PARTS, expanded
from tests.openai_server import Answer, chat_reasoner, serve

PAPER = Record(title="A paper on FABP5 in bladder cancer", year=2020)


OTHERS = {
    "verifier": {"kind": "verifier", "score": 5.0, "confidence": 0.6, "summary": "Known in part.",
                 "answers": [], "specious": [], "queries": []},
    "judge": {"kind": "judge", "score": 5.5, "confidence": 0.6, "summary": "Between.",
              "citations": ["R1"], "upheld": [], "overruled": [],
              "reasons": [{"change": "narrow_population"}]},
}  # fmt: skip


def critic(body: dict[str, Any]) -> Answer:
    """The prover cites a paper that was not retrieved until it is rejected."""
    asked = body["messages"][1]["content"]
    for name, position in OTHERS.items():
        if f"You are the {name}" in asked:
            return Answer(json.dumps(position))
    told = len(body["messages"]) > 2
    claim = {"id": "P0.1", "kind": "population", "parts": [PARTS[0]],
             "citations": ["R1" if told else "R42"]}  # fmt: skip
    return Answer(json.dumps({"kind": "prover", "score": 6.0, "confidence": 0.6, "summary": "New.",
                              "claims": [claim], "queries": []}))  # fmt: skip


def test_a_model_that_cites_an_unretrieved_paper_is_told_and_mends_it(tmp_path: Path) -> None:
    def retrieve(wanted: dict[str, list[Query]]) -> dict[str, SearchAnswer]:
        return {name: SearchAnswer(records=(PAPER,)) for name in wanted}

    with serve(critic) as server:
        price = ModelChoice(name="local", price_in=1.0, price_out=2.0)
        reasoner = chat_reasoner(server.url, tmp_path, model=price)
        outcome = hold_debate(expanded(), reasoner, retrieve)
    assert len(server.requests) == 4
    assert "R42" in server.requests[1]["messages"][-1]["content"]
    assert outcome.transcript[0].position.claims[0].citations == ("R1",)
    assert outcome.transcript[0].rejected == ()
    assert outcome.score == 5.5 and outcome.reasoner == "chat"
    assert outcome.spent.repairs == 1
    assert outcome.spent.usd > 0
