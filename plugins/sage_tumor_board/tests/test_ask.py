"""`sage board ask`: passages that occur in the files, by a model alone."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sage.core.llm.turns import UnusableError
from sage_tumor_board.agent import Passage, Passages, check_passages, find_passages
from sage_tumor_board.board import Board
from sage_tumor_board.patient import DEFAULT_QUESTION, read_patient
from sage_tumor_board.tests.test_board import case
from sage_tumor_board.tests.test_patient import patient
from tests.end_to_end.harness import sage
from tests.openai_server import Answer, chat_reasoner, serve


def reply(*passages: dict[str, str]) -> Any:
    """A model that opens the report, then returns these passages."""

    def answer(body: dict[str, Any]) -> Answer:
        if any(message["role"] == "tool" for message in body["messages"]):
            return Answer(content=json.dumps({"passages": list(passages)}))
        asked = json.dumps({"names": ["report.txt"]})
        call = {"id": "c", "type": "function",
                "function": {"name": "request_files", "arguments": asked}}  # fmt: skip
        return Answer(content="", finish="tool_calls", delta={"tool_calls": [call]})

    return answer


def answer_passages(tmp_path: Path, passage: dict[str, str]) -> Passages:
    """The passages that a model comes to."""
    read = read_patient(patient(tmp_path), DEFAULT_QUESTION, date(2024, 6, 1))
    with serve(reply(passage)) as server:
        board = Board(read.case, 1)
        return find_passages(board, chat_reasoner(server.url, tmp_path), "2024-06-01").output


def test_a_passage_that_occurs_in_its_file_is_kept(tmp_path: Path) -> None:
    passage = {"file": "report.txt", "quote": "R0, 0.4  cm."}
    assert answer_passages(tmp_path, passage).passages == (Passage(**passage),)


@pytest.mark.parametrize(
    ("file", "quote"),
    [("report.txt", "HPV positive"), ("blood.csv", "Hemoglobin,10.1"), ("/etc/passwd", "root"),
     ("report.txt", ".")],
)  # fmt: skip
def test_an_invented_passage_is_rejected(tmp_path: Path, file: str, quote: str) -> None:
    with pytest.raises(UnusableError):
        answer_passages(tmp_path, {"file": file, "quote": quote})


def test_a_passage_of_a_paper_must_have_been_found() -> None:
    board = Board(case(), 1)
    made = Passages(passages=(Passage(file="PMID 1", quote="so"),))
    assert len(check_passages(board, made)) == 1
    board.papers["PMID 1"] = "It is so."
    assert check_passages(board, made) == []


def test_the_command_keeps_answer_and_conversation(tmp_path: Path) -> None:
    patient(tmp_path)
    passage = {"file": "report.txt", "quote": "pT2 pN1, G3"}
    with serve(reply(passage)) as server:
        ended = sage("board", "ask", "patient", "--out", "kept", "--as-of", "2024-06-01", "--json",
                     cwd=tmp_path, SAGE_BASE_URL=server.url, SAGE_API_KEY="none")  # fmt: skip
    assert ended.code == 0, ended.err
    assert ended.json["passages"] == [passage]
    assert ended.json["rows_later"] == 1
    assert ended.json["tools_missing"]["he"] == "--weights FOLDER"
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"board.json", "board.txt", "trace.jsonl"} <= kept


@pytest.mark.parametrize(
    ("line", "word"),
    [(("--as-of", "June"), "--as-of"), (("--question", " "), "--question"),
     (("--out", "patient/kept"), "--out"), (("../none",), "folder not found")],
)  # fmt: skip
def test_bad_input_ends_with_code_2(tmp_path: Path, line: tuple[str, ...], word: str) -> None:
    patient(tmp_path)
    given = line if line[0] == "../none" else ("patient", *line)
    ended = sage("board", "ask", *given, cwd=tmp_path, SAGE_BASE_URL="http://localhost:9",
                 SAGE_API_KEY="none")  # fmt: skip
    assert ended.code == 2
    assert word in ended.err
    assert not (tmp_path / "board").exists()


def test_without_a_model_the_command_names_the_remedy(tmp_path: Path) -> None:
    ended = sage("board", "ask", str(patient(tmp_path)), cwd=tmp_path)
    assert ended.code == 2
    assert "base_url" in ended.err
