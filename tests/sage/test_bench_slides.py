"""Benchmarks of questions about slides: three formats, and scores computed a second way."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.adapters.slide_questions import (
    Asked,
    Item,
    choices,
    open_answers,
    read_questions,
    slide_files,
    slide_of,
    text_scores,
)
from sage.core.errors import InputError
from tests.end_to_end.harness import sage
from validation.simulate.slide import Scene, render_slide

WHERE = "In which half is the tumor?"
HALVES = ["left half", "right half"]


def wsi_vqa() -> list[dict[str, Any]]:
    return [
        {"Id": "TCGA-AA-0001", "Question": WHERE, "Choice": HALVES, "Answer": "left half"},
        {"Id": "TCGA-AA-0001", "Question": "Where is the tumor?", "Answer": "In the upper left"},
        {"Id": "TCGA-AA-0009", "Question": WHERE, "Choice": HALVES, "Answer": "right half"},
        {"Id": "TCGA-AA-0001", "Question": "What is the HER2 status?",
         "Choice": ["positive", "negative"], "Answer": "B"},
    ]  # fmt: skip


def write_slidebench(path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, ["ID", "Slide", "Task", "Question", "A", "B", "C", "D", "Answer"]
        )
        writer.writeheader()
        row = {"Slide": "TCGA-AA-0001-01Z-00-DX1", "Task": "Place", "Question": WHERE,
               "A": "right half", "B": "left half", "C": "", "D": "", "Answer": "B"}  # fmt: skip
        writer.writerows([row, {**row, "Slide": "7", "Answer": "A"}])


def pathmmu() -> dict[str, Any]:
    asked = {"No": 1, "img": "a/field.png", "question": "What does most of this field show?",
             "options": ["A) tumor", "B) stroma", "C) necrosis", "D) lymphocytes"],
             "answer": "B) stroma", "explanation": "x"}  # fmt: skip
    return {"PubMed": {"test": [asked], "val": [{**asked, "No": 2, "img": "gone.png"}]}}


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slides")
    scene = Scene(tumor=((250, 250, 110),))
    render_slide(folder / "TCGA-AA-0001-01Z-00-DX1.tiff", seed=4, size_px=1536, aggregates=[],
                 scene=scene)  # fmt: skip
    return folder


@pytest.mark.parametrize("form", ["WSI-VQA", "SlideBench", "PathMMU"])
def test_each_format_is_known_by_its_fields(tmp_path: Path, form: str) -> None:
    path = tmp_path / ("q.csv" if form == "SlideBench" else "q.json")
    if form == "SlideBench":
        write_slidebench(path)
    else:
        path.write_text(json.dumps(wsi_vqa() if form == "WSI-VQA" else pathmmu()))
    found, items = read_questions(path)
    assert found == form
    truths = {
        "WSI-VQA": ["left half", "In the upper left", "right half", "negative"],
        "SlideBench": ["left half", "right half"],
        "PathMMU": ["stroma", "stroma"],
    }
    assert [item.truth for item in items] == truths[form]
    assert all(not item.options or item.truth in item.options for item in items)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("q.json", "", "no JSON"),
        ("q.json", "[" * 100_000, "no JSON"),
        ("q.json", "3", "neither"),
        ("q.json", "[]", "no question"),
        ("q.json", '{"a": 1}', "no question"),
        ("q.json", '[{"Id": "x", "Question": "why?"}]', "question 1: field 'Answer' is missing"),
        ("q.json", '[{"Id": "x", "Question": ["y"], "Answer": "z"}]', "a text is expected"),
        ("q.json", '[{"Id": "x", "Question": "y?", "Answer": "c", "Choice": ["a", "b"]}]',
         "none of the options"),
        ("q.json", '[{"Id": "x", "Question": "y?", "Answer": "c", "Choice": {"a": 1}}]', "no list"),
        ("q.json", "[3]", "question 1"),
        ("q.csv", "Slide,Question\n1,2\n", "no column A"),
        ("q.csv", 'Slide,Question,A,B,Answer\n1,why?,a,b,"E\n', "no CSV"),
        ("q.csv", "Slide,Question,A,B,Answer\n1,why?,a,b,E\n", "none of the options"),
        ("q.csv", "Slide,Question,A,B,Answer\n,why?,a,b,A\n", "a text is empty"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused_with_its_place(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=words):
        read_questions(tmp_path / name)


def test_a_question_finds_its_slide_and_none_outside(tmp_path: Path) -> None:
    outside = tmp_path / "secret.png"
    outside.write_bytes(b"x")
    root = tmp_path / "slides"
    (root / "in").mkdir(parents=True)
    names = ["TCGA-AA-0001-01A-TS1.svs", "TCGA-AA-0001-01Z-DX1.svs", "in/7.png", "8.jpg"]
    for name in names:
        (root / name).write_bytes(b"x")
    (root / "secret.png").symlink_to(outside)
    files = slide_files(root)
    asked = {"TCGA-AA-0001": names[1], "TCGA-AA-0001-01A-TS1": names[0], "7": names[2],
             "x/7.png": names[2], "../secret.png": None, "/etc/passwd": None, "TCGA": None,
             "TCGA-AA": None, "TCGA-AA-000": None, "8.jpg": names[3]}  # fmt: skip
    for slide, wanted in asked.items():
        found = slide_of(Item(number=1, slide=slide, question="?", truth="x"), files)
        assert found == (None if wanted is None else root / wanted), slide


def row(slide: str, right: bool, place: int = 0, error: str = "") -> Asked:
    return Asked(
        key="k", number=1, slide=slide, group="", options=2, place=place, truth="ab"[place],
        answer=None if error else "a", right=right, error=error,
    )  # fmt: skip


def test_accuracy_counts_failures_as_wrong_and_stands_beside_a_constant() -> None:
    rows = [row("1", True), row("1", False, 1), row("2", True), row("3", False, error="no slide")]
    (found,) = choices(rows)
    assert found.accuracy == 0.5 and found.failed == 0.25
    assert found.floor == 0.75 and found.floor_answer == "always option A"
    assert found.low <= found.accuracy <= found.high


WORDS = ["ductal", "lobular", "carcinoma", "in", "situ", "of", "the", "breast"]
words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)


@given(st.lists(st.tuples(words, words), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_scores_are_those_of_the_textbook(pairs: list[tuple[str, str]]) -> None:
    answers, truths = [a for a, _ in pairs], [t for _, t in pairs]
    found = text_scores(answers, truths)
    said, true = [a.split() for a in answers], [t.split() for t in truths]
    hits = sum(sum((Counter(s) & Counter(t)).values()) for s, t in zip(said, true, strict=True))
    length, wanted = sum(map(len, said)), sum(map(len, true))
    brevity = 1.0 if length > wanted else math.exp(1 - wanted / length)
    if hits:
        assert found["bleu_1"] == pytest.approx(100 * brevity * hits / length)

    def lcs(a: list[str], b: list[str]) -> int:
        if not a or not b:
            return 0
        if a[-1] == b[-1]:
            return lcs(a[:-1], b[:-1]) + 1
        return max(lcs(a[:-1], b), lcs(a, b[:-1]))

    shares = [2 * lcs(s, t) / (len(s) + len(t)) for s, t in zip(said, true, strict=True)]
    assert found["rouge_l"] == pytest.approx(100 * sum(shares) / len(shares))
    assert all(0 <= value <= 100 + 1e-9 for value in found.values())
    perfect = text_scores(truths, truths)
    assert perfect["bleu_1"] == pytest.approx(100) and perfect["rouge_l"] == pytest.approx(100)
    assert perfect["meteor"] >= found["meteor"] - 1e-9


def test_stems_match_in_meteor_and_synonyms_do_not() -> None:
    assert text_scores(["tumors"], ["tumor"])["meteor"] > 0
    assert text_scores(["neoplasm"], ["tumor"])["meteor"] == 0
    assert text_scores([""], ["tumor"]) == dict.fromkeys(
        ("bleu_1", "bleu_4", "rouge_l", "meteor"), 0
    )
    unanswered = row("1", False).model_copy(update={"options": 0, "answer": None})
    found = open_answers([unanswered])
    assert found is not None and found.abstained == 1 and found.floor_bleu_1 == 100


def bench(cwd: Path, file: str, slides: Path, *more: str) -> Any:
    return sage("bench", "slides", file, "--slides", str(slides), "--patch-px", "128", "--json",
                *more, cwd=cwd)  # fmt: skip


def test_wsi_vqa_runs_from_the_command_line_and_goes_on(tmp_path: Path, slides: Path) -> None:
    (tmp_path / "q.json").write_text(json.dumps(wsi_vqa()))
    first = bench(tmp_path, "q.json", slides, "--limit", "2")
    assert first.code == 0, first.err
    assert first.json["open"]["questions"] == 1 and first.json["open"]["bleu_1"] >= 0
    answers = tmp_path / "bench-slides" / "answers.jsonl"
    # a model's answer may hold line breaks of Unicode, which are none of the file
    answers.write_text(answers.read_text().replace('"answer":"', '"answer":"\u2028\x85', 1))
    before = answers.read_text()
    with answers.open("a") as file:
        file.write('{"key": "cut sho')
    whole = bench(tmp_path, "q.json", slides)
    assert whole.code == 0, whole.err
    kept = [json.loads(line) for line in answers.read_text().split("\n")[:-1]]
    assert [one["number"] for one in kept] == [1, 2, 3, 4]
    assert answers.read_text().startswith(before)
    by = {one["number"]: one for one in kept}
    assert by[1]["right"] and by[2]["answer"] and by[3]["error"] == "there is no slide of this name"
    assert by[4]["answer"] is None and not by[4]["right"] and not by[4]["error"]
    (everything, _) = whole.json["choice"]
    assert everything["accuracy"] == pytest.approx(1 / 3)
    assert everything["failed"] == everything["abstained"] == pytest.approx(1 / 3)
    assert whole.json["usd"] == 0 and whole.json["failures"] == {"3": by[3]["error"]}
    assert json.loads((tmp_path / "bench-slides/scores.json").read_text()) == whole.json


@pytest.mark.parametrize("form", ["SlideBench", "PathMMU"])
def test_the_other_formats_run_from_the_command_line(
    tmp_path: Path, slides: Path, form: str
) -> None:
    from PIL import Image

    from mcp_servers.slides.slide import Slide

    folder = tmp_path / "own"
    (folder / "a").mkdir(parents=True)
    (folder / "TCGA-AA-0001-01Z-00-DX1.tiff").symlink_to(slides / "TCGA-AA-0001-01Z-00-DX1.tiff")
    with Slide.open(slides / "TCGA-AA-0001-01Z-00-DX1.tiff") as slide:
        Image.fromarray(slide.read(700, 700, 500, 500)).save(folder / "a" / "field.png")
    name = "q.csv" if form == "SlideBench" else "q.json"
    if form == "SlideBench":
        write_slidebench(tmp_path / name)
        folder = slides
    else:
        (tmp_path / name).write_text(json.dumps(pathmmu()))
    done = bench(tmp_path, name, folder, "--mpp", "0.5")
    assert done.code == 0, done.err
    assert done.json["format"] == form and done.json["questions"] == 2
    assert list(done.json["failures"].values()) == ["there is no slide of this name"]
    everything = done.json["choice"][0]
    assert everything["accuracy"] == 0.5, done.json


def test_what_is_no_benchmark_ends_with_code_2_and_no_folder(tmp_path: Path, slides: Path) -> None:
    (tmp_path / "q.json").write_text("[{}]")
    for more in ((), ("--slides", "nowhere")):
        done = bench(tmp_path, "q.json", slides, *more)
        assert done.code == 2 and "Traceback" not in done.err
    assert not (tmp_path / "bench-slides").exists()


def test_the_terminal_says_why_questions_failed_and_gives_no_interval_of_one_slide(
    tmp_path: Path, slides: Path
) -> None:
    gone = {"Id": "TCGA-AA-0009", "Question": WHERE, "Choice": HALVES, "Answer": "left half"}
    (tmp_path / "q.json").write_text(json.dumps([gone]))
    done = sage("bench", "slides", "q.json", "--slides", str(slides), cwd=tmp_path)
    assert done.code == 0, done.err
    assert "all: 0% (one slide, no interval) of 1" in done.out
    assert "question 1, TCGA-AA-0009: there is no slide of this name" in done.out
