"""The debate with a model behind an OpenAI-compatible endpoint: a local one that makes mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.novelty.debate import hold_debate
from kg.literature.types import Query, Record, SearchAnswer
from sage.core.llm.messages import ModelChoice
from tests.agents.nov_helpers import expanded
from tests.core.http_server import Answer, Seen, as_json, serving
from tests.openai_server import chat_reasoner

PAPER = Record(title="A paper on FABP5", year=2020)


def completion(content: dict[str, Any]) -> Answer:
    return as_json(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "local",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": json.dumps(content)},
                }
            ],
            "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
        }
    )


def critic(seen: Seen) -> Answer:
    """The prover cites a paper that was not retrieved until it is rejected."""
    body = json.loads(seen.params["_body"])
    system = body["messages"][0]["content"]
    output = any("was refused" in str(message["content"]) for message in body["messages"])
    if "You are the prover" in system:
        claim = {"id": "P0.1", "text": "New.", "citations": ["R1" if output else "R42"]}
        return completion(
            {
                "kind": "prover",
                "score": 6.0,
                "confidence": 0.6,
                "summary": "New.",
                "claims": [claim],
                "queries": [],
            }
        )
    if "You are the verifier" in system:
        return completion(
            {
                "kind": "verifier",
                "score": 5.0,
                "confidence": 0.6,
                "summary": "Known in part.",
                "answers": [],
                "specious": [],
                "queries": [],
            }
        )
    return completion(
        {
            "kind": "judge",
            "score": 5.5,
            "confidence": 0.6,
            "summary": "Between.",
            "citations": ["R1"],
            "upheld": [],
            "overruled": [],
            "reasons": ["Name the population."],
        }
    )


def test_a_model_that_cites_an_unretrieved_paper_is_told_and_mends_it(tmp_path: Path) -> None:
    def retrieve(wanted: dict[str, list[Query]]) -> dict[str, SearchAnswer]:
        return {name: SearchAnswer(records=(PAPER,)) for name in wanted}

    with serving() as services:
        services.routes["/v1/chat/completions"] = critic
        price = ModelChoice(name="local", price_in=1.0, price_out=2.0)
        reasoner = chat_reasoner(services.url + "/v1", tmp_path, model=price)
        outcome = hold_debate(expanded(), reasoner, retrieve)
        bodies = [item.params["_body"] for item in services.seen]
    assert len(bodies) == 4
    assert "R42, which was not retrieved" in bodies[1]
    assert outcome.transcript[0].position.claims[0].citations == ("R1",)
    assert outcome.transcript[0].rejected == ()
    assert outcome.score == 5.5 and outcome.reasoner == "chat"
    assert outcome.spent.repairs == 1
    assert outcome.spent.usd > 0
