"""SlideQuest's published rules, and what they get wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapters.slidequest import (
    Question,
    average,
    load_questions,
    run,
    score,
    score_folder,
)
from sage.core.errors import InputError


def question(
    truth: list[dict[str, Any]], tolerances: dict[str, Any], key: str | None = "slide_id"
) -> Question:
    return Question(
        category="data_qa", number=1, id_column=key, tolerances=tolerances, truth=tuple(truth)
    )


def test_values_within_tolerance_count() -> None:
    asked = question([{"slide_id": "a", "x": 10.0}, {"slide_id": "b", "x": 20.0}], {"x": 0.15})
    near = [{"slide_id": "b.svs", "x": 18}, {"slide_id": "a.svs", "x": "11"}]
    assert score(asked, near) == 1
    assert score(asked, [near[0]]) == 0.5
    assert score(asked, [{"x": 10}]) == 0
    assert score(asked, [{"slide_id": "a", "other": 10}, {"slide_id": "b", "other": 20}]) == 1


def test_the_published_rules_refuse_a_negative_truth_and_rows_that_share_an_id() -> None:
    negative = [{"slide_id": "a", "r": -0.3}]
    assert score(question(negative, {"r": 0.15}), negative) == 0
    shared = [{"slide_id": 0, "model": "svm", "x": 1.0}, {"slide_id": 0, "model": "lr", "x": 2.0}]
    asked = question(shared, {"x": 0.15})
    assert score(asked, shared) == score(asked, shared[::-1]) == 0.5


def test_repeats_have_a_standard_error_and_failures_are_counted(tmp_path: Path) -> None:
    asked = question([{"v": 4}], {"v": 0.1}, None)
    folder = tmp_path / "data_qa" / "question_1"
    folder.mkdir(parents=True)
    (folder / "answer.json").write_text(json.dumps([{"v": 4}]))
    repeats = [score_folder([asked], tmp_path), score_folder([asked], tmp_path / "none")]
    assert repeats[1][0].problem == "no answer.json"
    assert average([[item.score for item in part] for part in repeats]) == "0.500 ± 0.500"
    with pytest.raises(InputError, match="not SlideQuest"):
        load_questions(tmp_path)


def test_the_truth_against_itself_is_whole() -> None:
    root = Path(os.environ.get("SAGE_SHARED", Path(__file__).parents[2].parent / "shared"))
    folder = root / "data" / "benchmarks" / "slidequest"
    if not folder.exists():
        pytest.skip(f"SlideQuest is absent: {folder}")
    report = run(folder)
    assert "47 of 90" in report.rows[-1].measured
    assert report.rows[-1].sage.startswith("1.000; 0.000")
