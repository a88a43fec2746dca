"""Questions in LAB-Bench's form: read, shuffled, asked, scored, and never repeated in a result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks.adapters.labbench import read_questions
from benchmarks.adapters.multiple_choice import (
    REFUSAL,
    Question,
    Said,
    answer_all,
    by_reasoner,
    lay_out,
    score,
)
from sage.core.errors import InputError
from tests.end_to_end.harness import core_only, sage
from tests.openai_server import Answer, chat_reasoner, serve
from tests.sage.choices import chooses, lab_row, write_lines


def test_right_wrong_declined_and_broken_replies_are_told_apart(tmp_path: Path) -> None:
    rows = [lab_row(f"q{n}", question=f"Question {n}?") for n in range(4)]
    asked = read_questions([write_lines(tmp_path / "q.jsonl", rows)]).questions

    def answer(body: dict[str, Any]) -> Answer:
        text = json.dumps(body["messages"])
        said = ("Mitochondrion", "Golgi", "Insufficient", "")
        return chooses(next(s for n, s in enumerate(said) if f"Question {n}?" in text))(body)

    with serve(answer) as server:
        answered = answer_all(asked, by_reasoner(chat_reasoner(server.url, tmp_path)), 3)
    assert [item.right for item in answered] == [True, False, False, False]
    assert [item.sure for item in answered] == [True, True, False, True]
    (whole,) = score(answered)
    assert whole.precision is not None
    assert (whole.accuracy.count, whole.precision.total, whole.coverage.count) == (1, 3, 3)
    assert (whole.unusable, whole.chance) == (1, 0.25)
    sent = json.dumps(server.requests)
    assert "SECRET-PASSAGE" not in sent and "CANARY" not in sent


def test_the_command_asks_a_model_pays_no_reply_twice_and_repeats_no_question(
    tmp_path: Path,
) -> None:
    write_lines(tmp_path / "q.jsonl", [lab_row(subtask="one"), lab_row("q2", subtask="two")])
    with serve(chooses("Mitochondrion")) as server:
        given = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        words = ("bench", "labbench", "q.jsonl", "--agent", "chat")
        done = sage(*words, "--json", cwd=tmp_path, **given)
        again = sage(*words, cwd=tmp_path, **given)
        assert len(server.requests) == 2
    assert done.code == again.code == 0, done.err + again.err
    found = done.json
    assert [row["group"] for row in found["scores"]] == ["all", "one", "two"]
    assert found["scores"][0]["accuracy"]["value"] == 1
    assert found["spent"]["calls"] == len(server.requests) and found["spent"]["tokens"] > 0
    assert "organelle" not in done.out and "Mitochondrion" not in done.out
    assert "right 100.0% (34.2% to 100.0%)" in again.out and "at random 25.0%" in again.out


def test_the_rules_compute_a_gc_content_and_decline_the_rest(tmp_path: Path) -> None:
    gc = {"question": "What is the percent GC of ACGTACGTACGTGGGG?", "ideal": "62.5",
          "distractors": ["50", "40", "70"]}  # fmt: skip
    two = {**gc, "question": "Percent GC of ACGTACGTACGTGGGG or AAAAAAAAAAAAAAAA?"}
    rows = [lab_row(), lab_row("gc", **gc), lab_row("two", **two)]
    write_lines(tmp_path / "q.jsonl", rows)
    done = sage("bench", "labbench", "q.jsonl", "--json", cwd=tmp_path)
    assert [item["right"] for item in done.json["answers"]] == [False, True, False]
    assert [item["sure"] for item in done.json["answers"]] == [False, True, False]


def test_options_are_in_an_order_of_the_seed_and_the_question_alone() -> None:
    made = Question(id="a", group="g", text="t", right="r", wrong=("1", "2", "3"), declines=True)
    orders = {tuple(lay_out(made, seed).values()) for seed in range(20)}
    assert len(orders) > 5
    assert lay_out(made, 1) == lay_out(made, 1)
    assert set(lay_out(made, 1).values()) == {"r", "1", "2", "3", REFUSAL}
    seen: list[Question] = []
    answer_all([made], lambda item, _: (seen.append(item), Said())[1], 0)
    assert seen[0].right == "" and seen[0].wrong == ()


def test_options_that_are_letters_and_refusals_among_the_answers(tmp_path: Path) -> None:
    bases = lab_row("b", question="Which base?", ideal="A", distractors=["C", "G", "T", REFUSAL])
    write_lines(tmp_path / "q.jsonl", [bases, lab_row("r", ideal=REFUSAL)])
    loaded = read_questions([tmp_path / "q.jsonl"])
    assert loaded.left_out == {"without a right answer": 1}
    (made,) = loaded.questions
    assert made.wrong == ("C", "G", "T")
    seed = next(n for n in range(99) if lay_out(made, n)["C"] == "A" != lay_out(made, n)["A"])
    for said, right in (("C", True), ("a", False), ("C) A", True)):
        with serve(lambda body, said=said: Answer(content=json.dumps({"answer": said}))) as server:
            answer = by_reasoner(chat_reasoner(server.url, tmp_path / said))
            assert answer_all([made], answer, seed)[0].right is right, said


def test_the_data_sets_own_parquet_is_read_and_pictures_are_left_out(tmp_path: Path) -> None:
    place = tmp_path / "FigQA"
    place.mkdir()
    rows = [lab_row("t", figure=None), lab_row("p", figure={"bytes": b"png", "path": "a.png"})]
    pd.DataFrame(rows).to_parquet(place / "train-00000-of-00001.parquet")
    loaded = read_questions([place / "train-00000-of-00001.parquet"])
    assert [item.id for item in loaded.questions] == ["t"]
    assert loaded.questions[0].group == "FigQA"
    assert loaded.left_out == {"about a picture": 1}
    write_lines(tmp_path / "p.jsonl", [lab_row(**{"figure-path": "../../etc/passwd"})])
    with pytest.raises(InputError, match=r"no question that can be asked \(1 about a picture\)"):
        read_questions([tmp_path / "p.jsonl"])


def test_the_answer_null_is_an_option_as_in_the_published_evaluator(tmp_path: Path) -> None:
    write_lines(tmp_path / "n.jsonl", [lab_row(), lab_row("n", ideal="null")])
    loaded = read_questions([tmp_path / "n.jsonl"])
    assert loaded.left_out == {} and loaded.questions[1].right == "null"
    letter = {words: letter for letter, words in lay_out(loaded.questions[1], 0).items()}
    answered = answer_all(loaded.questions, lambda *_: Said(letter=letter["null"]), 0)
    assert answered[1].right and answered[1].sure


def test_csv_json_protocols_and_titles(tmp_path: Path) -> None:
    row = lab_row(protocol="1. Spin.\n2. Wash.")
    pd.DataFrame([{**row, "distractors": json.dumps(row["distractors"])}]).to_csv(
        tmp_path / "q.csv", index=False
    )
    titled = lab_row("q2", **{"paper-title": "A paper", "source": "10.1/x"})
    (tmp_path / "q.json").write_text(json.dumps([titled]))
    one, two = read_questions([tmp_path / "q.csv", tmp_path / "q.json"]).questions
    assert one.material == "1. Spin.\n2. Wash." and one.wrong == ("Ribosome", "Golgi", "Nucleus")
    assert two.material == "Paper: A paper. 10.1/x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no question"),
        ("{", "line 1: is no JSON"),
        ("[" * 100_000, "line 1: is no JSON"),
        ("[1]", "line 1: is no object"),
        ("NaN", "line 1: is no object"),
        (json.dumps({"id": "a", "ideal": "b"}), "has no question, distractors; a row has id,"),
        (json.dumps(lab_row(distractors=None)), "distractors is not a list"),
        (json.dumps(lab_row(distractors="['a', 'b']")), r"list of texts \(in a .csv: .* JSON\)"),
        (json.dumps(lab_row(ideal=None)), "ideal is no text"),
        (json.dumps(lab_row(ideal=float("nan"))), "ideal is no text"),
        (json.dumps(lab_row(ideal=" ")), "right answer is empty"),
        (json.dumps(lab_row(distractors=["Mitochondrion"])), "has 1 answer;"),
        (json.dumps(lab_row(distractors=["a", 1])), "not a list of texts"),
        (json.dumps(lab_row(distractors=[str(n) for n in range(40)])), "has 41 answers"),
        (json.dumps(lab_row(question="x" * 1_000_000)), "1,000,0.. characters; at most 100,000"),
        (json.dumps(lab_row(id="x" * 1_000_000)), "characters; at most"),
        (json.dumps(lab_row()) + "\n" + json.dumps(lab_row()), "two questions have the id 'q1'"),
    ],
)
def test_what_is_not_in_its_form_is_refused_by_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "q.jsonl").write_text(text)
    with pytest.raises(InputError, match=said):
        read_questions([tmp_path / "q.jsonl"])


def test_files_that_are_none_are_refused_with_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "q.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "q.csv").write_text("")
    (tmp_path / "q.jsonl").write_bytes(b"\xff\xfe\x00")
    for name, said in (("q.parquet", "cannot be read"), ("q.csv", "names no columns"),
                       ("q.jsonl", "cannot be read"), ("q.pkl", "give LAB-Bench's questions as"),
                       ("absent.jsonl", "cannot be read")):  # fmt: skip
        done = sage("bench", "labbench", name, cwd=tmp_path)
        assert done.code == 2 and said in done.err and name in done.err, done.err
    pd.DataFrame([lab_row()]).to_parquet(tmp_path / "whole.parquet")
    lacks = core_only(tmp_path / "core")
    done = sage("bench", "labbench", "whole.parquet", cwd=tmp_path, **lacks)
    assert done.code == 2 and "pyarrow" in done.err and "pip install" in done.err
    write_lines(tmp_path / "same.jsonl", [lab_row()])
    done = sage("bench", "labbench", "same.jsonl", "same.jsonl", cwd=tmp_path)
    assert done.code == 2 and "give each file once" in done.err
    assert not (tmp_path / "bench-labbench").exists()


def test_odd_characters_of_an_id_are_printed_harmlessly(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text(json.dumps(lab_row("\ud800\x1b[31m", subtask="a\x1b]0;b")))
    done = sage("bench", "labbench", "q.jsonl", "--json", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "\x1b" not in done.out


def test_shares_are_rounded_once() -> None:
    from benchmarks.adapters.triple_review import proportion
    from benchmarks.cli.choices import in_words

    said = in_words(proportion(n < 120 for n in range(188)))
    assert said == "63.8% (56.7% to 70.4%)", "the lower limit is 56.748%"
