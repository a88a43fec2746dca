"""Counts of a model's replies to a recorded run."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from benchmarks.adapters.models import run
from tests.openai_server import Answer, serve

QUERY = {"sources": ["TLS"], "targets": ["FABP5"], "domain": "bladder cancer"}


def test_replies_are_counted_by_what_became_of_them() -> None:
    asked: Counter[str] = Counter()

    def reply(body: dict[str, Any]) -> Answer:
        name = body["response_format"]["json_schema"]["name"]
        asked[name] += 1
        if name == "PathQuery":
            return Answer(json.dumps(QUERY))
        if name == "Reading" and asked[name] == 2:
            return Answer('```json\n{"intent": "relate", "parts": []}\n```')
        return Answer("no")

    with serve(reply) as server:
        report = run(server.url, context=3000, max_tokens=400, repairs=1, most=1)
    rows = {row["agent"]: row for row in report.data}
    assert rows["path_generation"]["outcome"] == "valid at first"
    assert rows["question"]["outcome"] == "repaired"
    assert rows["ontologist"]["outcome"] == "refused"
    assert rows["interpreter"]["outcome"] == "too long"
    assert sum(row["outcome"] != "too long" for row in rows.values()) == len(asked)
    assert max(asked.values()) == 2  # asked again once, and what does not fit is not sent
    assert f"{len(asked)} of {len(rows)} prompts" in report.rows[0].measured
