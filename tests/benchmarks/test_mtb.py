"""MTBBench: published answers scored again, and a model asked patient by patient."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapters.mtb import Answered, Loaded, ask_all, load_track, score
from sage.core.errors import InputError
from sage_tumor_board.board import Desk
from sage_tumor_board.tests.test_board import case
from tests.openai_server import Answer, chat_reasoner, serve

PLACE = os.environ.get("SAGE_SHARED", Path(__file__).parents[2].parent / "shared")
SHARED = Path(PLACE) / "data" / "benchmarks" / "mtbbench"


def answers(path: Path, reply: Any) -> tuple[list[Answered], list[dict[str, Any]]]:
    """Answers of a model to the two questions of a case, and the requests it got."""
    loaded = Loaded(track="msk", cases=(case(),), keys={"P-1": {1: "A", 2: "B"}}, published={},
                    drugs={})  # fmt: skip
    with serve(reply) as server:
        reasoner = chat_reasoner(server.url, path)
        rows = list(ask_all(loaded, reasoner, "chat", path / "rows.jsonl", Desk()))
    return rows, server.requests


def request(*names: str) -> Answer:
    """A reply that requests files."""
    function = {"name": "request_files", "arguments": json.dumps({"names": names})}
    made = {"id": "c1", "type": "function", "function": function}
    return Answer(content="", finish="tool_calls", delta={"tool_calls": [made]})


def test_a_model_that_reads_is_right_and_sees_nothing_later(tmp_path: Path) -> None:
    def reply(body: dict[str, Any]) -> Answer:
        if body["messages"][-1]["role"] == "tool":
            late = "LATECONTEXT" in json.dumps(body)
            return Answer(content=json.dumps({"answer": "B" if late else "A", "reason": "read"}))
        return request("timeline0.txt", "lab.csv")

    rows, requests = answers(tmp_path, reply)
    assert [row.right for row in rows] == [True, True]
    assert [row.files for row in rows] == [("timeline0.txt",)] * 2
    assert rows[0].hallucinated == ("lab.csv",)
    first = json.dumps(requests[:2])
    for later in ("LATEFILE", "LATECONTEXT", "LATEROW", "63.2", "timeline1"):
        assert later not in first
    assert all(row.tokens > 0 for row in rows)


def test_an_interrupted_run_asks_nothing_twice(tmp_path: Path) -> None:
    def reply(_: dict[str, Any]) -> Answer:
        return Answer(content='{"answer": "A", "reason": "a guess\\u2028or two"}')

    before, _ = answers(tmp_path, reply)
    file = tmp_path / "rows.jsonl"
    file.write_text(file.read_text() + '{"key": "cut', encoding="utf-8")
    after, requests = answers(tmp_path, reply)
    assert after == before
    assert requests == []
    file.write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 1"):
        answers(tmp_path, reply)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared benchmarks are not here")
def test_published_answers_are_scored_beside_the_best_constant() -> None:
    loaded = load_track(SHARED / "agent_logs_hancock", "hancock")
    found = score(loaded.published["gpt4o"])
    assert (found.questions, found.patients) == (195, 13)
    assert found.accuracy == pytest.approx(132 / 195)
    assert found.floor == pytest.approx(90 / 195)
    assert found.interval[0] < found.accuracy < found.interval[1]
