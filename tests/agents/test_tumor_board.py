"""The tumor board: what is later cannot be reached, replies of every sort are scored honestly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapters.mtb.play import play
from benchmarks.adapters.mtb.types import Loaded, Row
from sage.core.errors import InputError
from sage_tumor_board.board.board import Board, Drug, Files, confidence_bin
from sage_tumor_board.board.types import BoardQuestion, Case, CaseFile, Key, Stage, Track, letter_of
from tests.openai_server import Answer, chat_reasoner, serve

YES_NO = {"A": "Yes", "B": "No"}
TIMELINE = (
    "AGE: 60.100, treatment > treatment --> STOP_AGE: 63.2, AGENT: EARLYDRUG, \n"
    "AGE: 60.900, surgery --> SUBTYPE: PROCEDURE, \n"
    "AGE: 61.900, diagnosis > progression --> LATEROW"
)


def case() -> Case:
    """Two stages; the second holds a secret and the first timeline holds what is later."""
    asked = "Given that the patient is {} years old, will it progress?\nA) Yes\nB) No"
    return Case(
        id="P-1", track=Track.MSK,
        stages=(
            Stage(context="A patient.", listed=("timeline0.txt",)),
            Stage(context="LATECONTEXT", listed=("timeline0.txt", "timeline1.txt")),
        ),
        files=(
            CaseFile(name="timeline0.txt", text=TIMELINE),
            CaseFile(name="timeline1.txt", text="LATEFILE"),
        ),
        questions=tuple(
            BoardQuestion(number=n, stage=n - 1, kind="outcome", text=asked.format(age),
                          options=YES_NO, age=age)
            for n, age in ((1, 61.0), (2, 62.0))
        ),
    )  # fmt: skip


def loaded() -> Loaded:
    """The case with its key."""
    keys = {"P-1": Key(case="P-1", letters={1: "A", 2: "B"})}
    return Loaded(track=Track.MSK, cases=(case(),), keys=keys, said={}, drugs={}, absent={})


def test_nothing_later_is_reachable_by_any_request() -> None:
    board = Board(case(), 1)
    names = ("timeline0.txt", "timeline1.txt", "../timeline1.txt", "/etc/passwd", "TIMELINE1.TXT")
    opened = board.request_files(Files(names=names))
    everything = json.dumps([item.model_dump() for item in opened]) + repr(vars(board))
    assert "EARLYDRUG" in everything
    for later in ("LATEFILE", "LATECONTEXT", "LATEROW", "63.2", "62.0 years"):
        assert later not in everything
    assert board.read == ["timeline0.txt"]
    assert board.hallucinated == list(names[1:])
    assert {item.note for item in opened[1:]} == {"not found; ask only for files that are listed"}


def test_files_are_closed_after_a_question_and_can_be_requested_again() -> None:
    first, second = Board(case(), 1), Board(case(), 2)
    first.request_files(Files(names=("timeline0.txt",)))
    assert second.read == []
    again = second.request_files(Files(names=("timeline0.txt",)))
    assert "LATEROW" in (again[0].text or "")
    assert "63.2" not in (again[0].text or "")


def test_tools_are_offered_only_where_their_inputs_exist() -> None:
    assert [tool.name for tool in Board(case(), 1).tools()] == ["request_files"]


@pytest.mark.parametrize(
    ("answer", "letter"),
    [("A", "A"), ("b", "B"), ("B) No", "B"), ("[A]", "A"), ("no", "B"), ("C", None), ("", None),
     ("A patient", None), ("I refuse", None)],
)  # fmt: skip
def test_letter_of_reads_letters_and_words_of_options_alone(
    answer: str, letter: str | None
) -> None:
    assert letter_of(answer, YES_NO) == letter


def test_confidence_bins_are_fifths() -> None:
    said = [confidence_bin(p) for p in (0.0, 0.2, 0.5, 0.79, 1.0)]
    assert said == ["very low", "low", "medium", "high", "very high"]


def call(names: list[str]) -> Answer:
    """A reply that requests files."""
    made: dict[str, Any] = {
        "id": "c1", "type": "function",
        "function": {"name": "request_files", "arguments": json.dumps({"names": names})},
    }  # fmt: skip
    return Answer(content="", finish="tool_calls", delta={"tool_calls": [made]})


def answers(path: Path, reply: Any) -> tuple[list[Row], list[dict[str, Any]]]:
    """What a server's replies come to, and what it was asked."""
    with serve(reply) as server:
        rows = list(play(loaded(), chat_reasoner(server.url, path), "chat", path / "rows.jsonl"))
    return rows, server.requests


def test_a_reader_of_files_is_right_and_told_nothing_later(tmp_path: Path) -> None:
    def good(body: dict[str, Any]) -> Answer:
        if body["messages"][-1]["role"] == "tool":
            late = "LATECONTEXT" in json.dumps(body)
            return Answer(content=json.dumps({"answer": "B" if late else "A", "reason": "read"}))
        return call(["timeline0.txt"])

    rows, requests = answers(tmp_path, good)
    assert [row.right for row in rows] == [True, True]
    assert [row.files for row in rows] == [("timeline0.txt",)] * 2
    first = json.dumps(requests[:2])
    for later in ("LATEFILE", "LATECONTEXT", "LATEROW", "63.2", "timeline1"):
        assert later not in first
    assert all(row.tokens > 0 for row in rows)


def test_a_liar_about_files_is_logged_and_told_nothing(tmp_path: Path) -> None:
    def liar(body: dict[str, Any]) -> Answer:
        if body["messages"][-1]["role"] == "tool":
            return Answer(content=json.dumps({"answer": "A", "reason": "as lab.csv shows"}))
        return call(["timeline1.txt", "lab.csv"])

    rows, requests = answers(tmp_path, liar)
    assert rows[0].hallucinated == ("timeline1.txt", "lab.csv")
    assert "LATEFILE" not in json.dumps(requests[:2])


def test_three_replies_without_an_answer_are_wrong(tmp_path: Path) -> None:
    rows, requests = answers(tmp_path, lambda _: Answer(content="I would rather not say."))
    assert [(row.answer, row.right) for row in rows] == [(None, False)] * 2
    assert "3 attempts" in rows[0].error
    assert len(requests) == 6
    assert all(row.tokens > 0 for row in rows)  # a wrong answer is paid for too


def test_a_run_that_was_cut_short_asks_nothing_twice(tmp_path: Path) -> None:
    def lazy(_: dict[str, Any]) -> Answer:
        return Answer(content='{"answer": "A", "reason": "a guess"}')

    before, _ = answers(tmp_path, lazy)
    file = tmp_path / "rows.jsonl"
    file.write_text(file.read_text() + '{"key": "cut', encoding="utf-8")
    after, requests = answers(tmp_path, lazy)
    assert after == before
    assert requests == []
    assert before[0].files == ()


def test_a_damaged_answer_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"rows.jsonl, line 1 is damaged"):
        answers(tmp_path, lambda _: Answer(content="{}"))


def test_an_unknown_question_is_refused() -> None:
    with pytest.raises(InputError, match="no question 9"):
        Board(case(), 9)
    assert Drug(name="ab").name == "ab"
