"""The board's environment: nothing later can be reached, by files or by requests."""

from __future__ import annotations

import json

import pytest

from sage_tumor_board.board import NOT_FOUND, Board, Files
from sage_tumor_board.case import BoardQuestion, Case, CaseFile, Stage, parse_letter

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
        id="P-1",
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
    assert {item.note for item in opened[1:]} == {NOT_FOUND}


def test_files_are_closed_after_a_question_and_can_be_requested_again() -> None:
    first, second = Board(case(), 1), Board(case(), 2)
    first.request_files(Files(names=("timeline0.txt",)))
    assert second.read == []
    again = second.request_files(Files(names=("timeline0.txt",)))
    assert "LATEROW" in (again[0].text or "")
    assert "63.2" not in (again[0].text or "")


@pytest.mark.parametrize(
    ("answer", "letter"),
    [("A", "A"), ("b", "B"), ("B) No", "B"), ("[A]", "A"), ("no", "B"), ("C", None), ("", None),
     ("A patient", None), ("I refuse", None)],
)  # fmt: skip
def test_parse_letter_reads_letters_and_words_of_options_alone(
    answer: str, letter: str | None
) -> None:
    assert parse_letter(answer, YES_NO) == letter
