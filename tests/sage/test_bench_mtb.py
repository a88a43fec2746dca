"""`sage bench mtb` over published conversations: what is read of them, and how it is scored."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.adapters.mtb.play import earlier_rows
from benchmarks.adapters.mtb.scores import score
from benchmarks.adapters.mtb.types import Row
from sage_tumor_board.board.types import Track
from tests.end_to_end.harness import sage

PLACE = os.environ.get("SAGE_SHARED", Path(__file__).parents[2].parent / "shared")
SHARED = Path(PLACE) / "data" / "benchmarks" / "mtbbench"


def test_one_patient_gives_no_interval_and_beats_no_letter() -> None:
    rows = [
        Row(key=f"{n}", case="P", track=Track.MSK, number=n, kind="outcome", half="development",
            truth=letter, answer=letter, right=True)
        for n, letter in enumerate("AABB")
    ]  # fmt: skip
    whole = score(rows, "rules").groups[0]
    assert (whole.accuracy, whole.low, whole.high) == (1.0, 0.0, 1.0)
    assert (whole.over_low, whole.over_high) == (-1.0, 1.0)


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared benchmarks are not here")
def test_published_answers_are_scored_beside_the_best_constant(tmp_path: Path) -> None:
    found = sage("bench", "mtb", str(SHARED), "--json", "--out", "kept", cwd=tmp_path).json
    scored = {(item["track"], item["agent"]): item["groups"][0] for item in found["tracks"]}
    whole = scored["hancock", "replay of gpt4o"]
    assert (whole["questions"], whole["patients"]) == (195, 13)
    assert whole["accuracy"] == pytest.approx(132 / 195)
    assert whole["floor"] == pytest.approx(90 / 195)
    assert whole["low"] < whole["accuracy"] < whole["high"]
    assert scored["msk", "replay of gpt4o"]["questions"] == 81
    rows = earlier_rows(tmp_path / "kept" / "replay of gpt4o.hancock.jsonl").values()
    assert sum(row.right for row in rows) == 132


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared benchmarks are not here")
def test_rules_answer_without_a_model_and_name_what_they_lean_on(tmp_path: Path) -> None:
    ended = ("--agent", "rules", "--track", "msk", "--limit", "2", "--json", "--out", "kept")
    found = sage("bench", "mtb", str(SHARED), *ended, cwd=tmp_path).json
    whole = found["tracks"][0]["groups"][0]
    assert (whole["tokens"], whole["unanswered"], whole["hallucinated"]) == (0, 0, 0)
    kept = (tmp_path / "kept" / "rules.msk.jsonl").read_text(encoding="utf-8")
    assert "timeline0.txt" in kept


def test_a_folder_without_conversations_is_refused(tmp_path: Path) -> None:
    ended = sage("bench", "mtb", str(tmp_path), cwd=tmp_path)
    assert ended.code == 2
    assert "agent_logs_hancock" in ended.err


def test_an_answer_with_line_breaks_of_unicode_is_found_again(tmp_path: Path) -> None:
    row = Row(key="k", case="c", track="msk", number=1, kind="outcome", half="development",
              truth="A", reason="A\u2028then\x85B")  # fmt: skip
    (tmp_path / "a.jsonl").write_text(row.model_dump_json() + "\n", encoding="utf-8")
    assert earlier_rows(tmp_path / "a.jsonl") == {"k": row}
